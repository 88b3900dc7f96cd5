//! `clearway top`: the activity of a running server and what its threads and sessions wait for,
//! refreshed at an interval.
//!
//! It queries `clearway.activity`, `clearway.contention` and `clearway.latency` over PostgreSQL's
//! protocol and shows the changes between two answers, which include its own statements. Waits for
//! locks are shown as of the end of the interval, from `clearway.locks` and `clearway.sessions`.

mod blocked;
mod sample;
mod terminal;
mod view;

use crate::client::{Client, Reply};
use crate::control;
use crate::exit::{ExitCode, ExitFailure};
use crate::output;
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
use terminal::{Key, Terminal};
use view::{Row, Style};

/// Maximum time for the server to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks for keys and signals.
const POLL: Duration = Duration::from_millis(100);

/// Keys and environment of `top`.
const TOP_HELP: &str = "\
Keys: h or ? shows what the figures mean, q or Ctrl-C quits.
Colours are off if NO_COLOR is set and not empty, or if TERM is dumb.";

/// Flags of `top`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = TOP_HELP)]
pub struct TopFlags {
    /// Address or host name, and port, of the server
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5432")]
    pub connect: String,
    /// Directory of the server's Unix socket, or its data directory; replaces --connect
    #[arg(long, value_name = "DIR", conflicts_with = "connect")]
    pub unix_socket: Option<PathBuf>,
    /// Seconds between two updates, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub interval: Duration,
    /// Print one interval as text and exit; the default if the output is not a terminal
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("\"{text}\" is not a number of seconds from 0.1 to 3600")),
    }
}

/// Runs `clearway top`.
///
/// # Errors
/// The server cannot be reached, is not Clearway, or closed the connection.
pub fn top(flags: &TopFlags) -> Result<(), ExitFailure> {
    let mut server = Server::reach(flags)?;
    let stop = signals()
        .map_err(|e| ExitFailure::new(ExitCode::Other, format!("cannot handle signals: {e}")))?;
    if flags.once || !io::stdout().is_terminal() {
        return once(&mut server, flags, &stop);
    }
    let mut terminal = Terminal::enter(colours())
        .map_err(|e| ExitFailure::new(ExitCode::Other, format!("the terminal: {e}")))?;
    // The terminal is restored before anything else is printed.
    let result = watch(&mut server, flags, &stop, &mut terminal);
    drop(terminal);
    result
}

fn once(server: &mut Server, flags: &TopFlags, stop: &AtomicBool) -> Result<(), ExitFailure> {
    let before = server.sample()?;
    let until = Instant::now() + flags.interval;
    while let Some(left) = left(until) {
        // Relaxed, as below: a flag set by a signal; it orders nothing.
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::park_timeout(left.min(POLL));
    }
    let after = server.sample()?;
    let blocked = server.blocked()?;
    let rows = view::screen(&server.name, &after.since(&before), &blocked, usize::MAX, usize::MAX);
    let lines: Vec<&str> = rows.iter().map(|row| row.text.trim_end()).collect();
    output::print(lines.join("\n"))
}

fn watch(
    server: &mut Server,
    flags: &TopFlags,
    stop: &AtomicBool,
    terminal: &mut Terminal,
) -> Result<(), ExitFailure> {
    let lost = |e| ExitFailure::new(ExitCode::Other, format!("the terminal: {e}"));
    let mut before = server.sample()?;
    let first = format!("{}: the first figures appear after {:?}", server.name, flags.interval);
    let mut rows = vec![Row { text: first, style: Style::Plain }];
    let (help_page, mut help) = (view::help(), false);
    loop {
        let until = Instant::now() + flags.interval;
        terminal.draw(if help { &help_page } else { &rows }).map_err(lost)?;
        while let Some(left) = left(until) {
            let key = terminal.key(left.min(POLL)).map_err(lost)?;
            match key {
                _ if stop.load(Ordering::Relaxed) => return Ok(()),
                Some(Key::Quit) => return Ok(()),
                Some(Key::Help) => help = !help,
                Some(Key::Other) => help = false,
                None => continue,
            }
            terminal.draw(if help { &help_page } else { &rows }).map_err(lost)?;
        }
        let after = server.sample()?;
        let blocked = server.blocked()?;
        let (height, width) = terminal.size();
        rows = view::screen(&server.name, &after.since(&before), &blocked, height, width);
        before = after;
    }
}

/// Returns true if the environment allows colours: <https://no-color.org>.
fn colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn left(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Returns a flag that SIGINT and SIGTERM set.
fn signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The observed server.
struct Server {
    name: String,
    client: Client<Box<dyn Stream>>,
}

impl Server {
    fn reach(flags: &TopFlags) -> Result<Self, ExitFailure> {
        let (name, stream) = match &flags.unix_socket {
            None => (flags.connect.clone(), tcp(&flags.connect)),
            Some(dir) => (dir.display().to_string(), unix(dir)),
        };
        match stream.and_then(|stream| Client::log_in(stream, "clearway top")) {
            Ok(client) => Ok(Self { name, client }),
            Err(e) => {
                let hint = "Is the server running? Give its address with --connect ADDR or --unix-socket DIR.";
                let message = format!("no server answers at {name}: {e}");
                Err(ExitFailure { hint: Some(hint), ..ExitFailure::new(ExitCode::Other, message) })
            }
        }
    }

    fn sample(&mut self) -> Result<Sample, ExitFailure> {
        let activity = self.rows(sample::ACTIVITY)?;
        let contention = self.rows(sample::CONTENTION)?;
        let latency = self.rows(sample::LATENCY)?;
        Sample::read(&activity, &contention, &latency).ok_or_else(|| self.malformed())
    }

    fn blocked(&mut self) -> Result<Blocked, ExitFailure> {
        let locks = self.rows(blocked::LOCKS)?;
        // Usually no session waits, and the second query is not needed.
        let states = if locks.is_empty() { Vec::new() } else { self.rows(blocked::STATES)? };
        Blocked::read(&locks, &states).ok_or_else(|| self.malformed())
    }

    fn malformed(&self) -> ExitFailure {
        let message = format!("the server at {} sent a malformed answer", self.name);
        ExitFailure::new(ExitCode::Other, message)
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, ExitFailure> {
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
                let message = format!("lost the connection to the server at {}: {e}", self.name);
                Err(ExitFailure::new(ExitCode::Other, message))
            }
        }
    }

    fn refused(&self, error: &SqlError) -> ExitFailure {
        let foreign =
            [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_SCHEMA].contains(&error.state());
        let message = format!("the server at {} reported an error: {error}", self.name);
        let hint =
            foreign.then_some("It is not Clearway, or an older release that lacks a system view.");
        ExitFailure { hint, ..ExitFailure::new(ExitCode::Other, message) }
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

/// Connects to the only socket in a directory, which has libpq's name for sockets. In a data
/// directory that may have two, it is the control socket.
fn unix(dir: &Path) -> io::Result<Box<dyn Stream>> {
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.strip_prefix(".s.PGSQL.").is_some_and(|port| port.parse::<u16>().is_ok()) {
            sockets.push(name.into_owned());
        }
    }
    if sockets.iter().any(|name| name == control::NAME) {
        sockets = vec![control::NAME.to_owned()];
    }
    match sockets.as_slice() {
        [one] => {
            let stream = control::reach(dir, one, |path| UnixStream::connect(path))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        [] => {
            Err(io::Error::new(io::ErrorKind::NotFound, "no socket .s.PGSQL.PORT in the directory"))
        }
        several => Err(io::Error::other(format!(
            "several sockets in the directory: {}",
            several.join(", ")
        ))),
    }
}
