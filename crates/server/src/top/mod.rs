//! `clearway top`: what a running server waits for and what it does, sorted by the time lost, as
//! long as one looks.
//!
//! It asks over PostgreSQL's protocol for `clearway.activity` and `clearway.contention`, and shows
//! what has changed between two answers: its own statements are among those counted. Waits for
//! locks are those of the second moment, from `clearway.locks`.

mod blocked;
mod sample;
mod terminal;
mod view;

use crate::client::{Client, Reply};
use crate::exit::{ExitCode, Failure};
use blocked::Blocked;
use clap::Args;
use clearway_types::{SqlError, SqlState};
use sample::Sample;
use std::io::{self, IsTerminal, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terminal::Terminal;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing is looked for but a key or a signal.
const MOMENT: Duration = Duration::from_millis(100);

/// Flags of `top`.
#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub struct TopFlags {
    /// Address and port of the server
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5432")]
    pub connect: String,
    /// Directory of the server's Unix socket, or its data directory, instead of an address
    #[arg(long, value_name = "DIR", conflicts_with = "connect")]
    pub unix_socket: Option<PathBuf>,
    /// Seconds between two looks, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub interval: Duration,
    /// Shows one interval and ends, as it does if the output is no terminal
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("\"{text}\" is not a number of seconds from 0.1 to 3600")),
    }
}

/// `clearway top`
///
/// # Errors
/// There is no such server, it is none of ours, or it is gone.
pub fn top(flags: &TopFlags) -> Result<(), Failure> {
    let mut server = Server::reach(flags)?;
    let stop = signals()
        .map_err(|e| Failure::new(ExitCode::Other, format!("cannot handle signals: {e}")))?;
    if flags.once || !io::stdout().is_terminal() {
        return once(&mut server, flags, &stop);
    }
    let mut terminal = Terminal::enter()
        .map_err(|e| Failure::new(ExitCode::Other, format!("the terminal: {e}")))?;
    // Left, and so restored, before anything else is said.
    let result = watch(&mut server, flags, &stop, &mut terminal);
    drop(terminal);
    result
}

fn once(server: &mut Server, flags: &TopFlags, stop: &AtomicBool) -> Result<(), Failure> {
    let before = server.sample()?;
    let until = Instant::now() + flags.interval;
    while let Some(left) = left(until) {
        // Relaxed, as below: a flag that a signal sets, and nothing else with it.
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::park_timeout(left.min(MOMENT));
    }
    let after = server.sample()?;
    let blocked = server.blocked()?;
    let (lines, _) = view::lines(&server.name, &after.since(&before), &blocked, usize::MAX);
    let text = lines.join("\n") + "\n";
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ExitCode::Other, format!("output: {e}")))
        }
        _ => Ok(()),
    }
}

fn watch(
    server: &mut Server,
    flags: &TopFlags,
    stop: &AtomicBool,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let lost = |e| Failure::new(ExitCode::Other, format!("the terminal: {e}"));
    let mut before = server.sample()?;
    let (mut lines, mut head) =
        (vec![format!("{}: the first figures come in {:?}", server.name, flags.interval)], 1);
    loop {
        terminal.draw(&lines, head).map_err(lost)?;
        let until = Instant::now() + flags.interval;
        while let Some(left) = left(until) {
            if stop.load(Ordering::Relaxed) || terminal.quit(left.min(MOMENT)).map_err(lost)? {
                return Ok(());
            }
        }
        let after = server.sample()?;
        let blocked = server.blocked()?;
        (lines, head) = view::lines(&server.name, &after.since(&before), &blocked, terminal.rows());
        before = after;
    }
}

fn left(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Set by SIGINT and SIGTERM.
fn signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The server that is looked at.
struct Server {
    name: String,
    client: Client<Box<dyn Stream>>,
}

impl Server {
    fn reach(flags: &TopFlags) -> Result<Self, Failure> {
        let (name, stream) = match &flags.unix_socket {
            None => (flags.connect.clone(), tcp(&flags.connect)),
            Some(dir) => (dir.display().to_string(), unix(dir)),
        };
        match stream.and_then(|stream| Client::log_in(stream, "clearway top")) {
            Ok(client) => Ok(Self { name, client }),
            Err(e) => {
                let hint = "Is the server running? Say where it listens with --connect ADDR, or --unix-socket DIR.";
                let message = format!("no server answers at {name}: {e}");
                Err(Failure { hint: Some(hint), ..Failure::new(ExitCode::Other, message) })
            }
        }
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        let activity = self.rows(sample::ACTIVITY)?;
        let contention = self.rows(sample::CONTENTION)?;
        Sample::read(&activity, &contention).ok_or_else(|| self.makes_no_sense())
    }

    fn blocked(&mut self) -> Result<Blocked, Failure> {
        let locks = self.rows(blocked::LOCKS)?;
        // Nobody waits, as a rule.
        let states = if locks.is_empty() { Vec::new() } else { self.rows(blocked::STATES)? };
        Blocked::read(&locks, &states).ok_or_else(|| self.makes_no_sense())
    }

    fn makes_no_sense(&self) -> Failure {
        Failure::new(ExitCode::Other, format!("what {} answers makes no sense", self.name))
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Failure> {
        let mut rows = Vec::new();
        let answer = self.client.run(sql, &mut |reply| {
            if let Reply::Row(row) = reply {
                rows.push(row);
            }
        });
        match answer {
            Ok(Ok(())) => Ok(rows),
            Ok(Err(e)) => Err(self.refused(&e)),
            Err(e) => {
                let message = format!("the server at {} is gone: {e}", self.name);
                Err(Failure::new(ExitCode::Other, message))
            }
        }
    }

    fn refused(&self, error: &SqlError) -> Failure {
        let foreign =
            [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_SCHEMA].contains(&error.state());
        let message = format!("the server at {} refuses: {error}", self.name);
        let hint =
            foreign.then_some("It is not Clearway, or an older release: it has no system views.");
        Failure { hint, ..Failure::new(ExitCode::Other, message) }
    }
}

fn tcp(address: &str) -> io::Result<Box<dyn Stream>> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(Box::new(stream));
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// The one socket in a directory, by libpq's name for it.
fn unix(dir: &Path) -> io::Result<Box<dyn Stream>> {
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.strip_prefix(".s.PGSQL.").is_some_and(|port| port.parse::<u16>().is_ok()) {
            sockets.push(name.into_owned());
        }
    }
    match sockets.as_slice() {
        [one] => {
            let stream = UnixStream::connect(dir.join(one))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        [] => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no socket .s.PGSQL.PORT in the directory",
        )),
        several => Err(io::Error::other(format!(
            "there are several sockets in the directory: {}",
            several.join(", ")
        ))),
    }
}
