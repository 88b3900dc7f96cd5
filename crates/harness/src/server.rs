//! A private server in its own directory, on a free loopback port: Clearway, or PostgreSQL for
//! comparison.
//!
//! Dropping the value kills the server, so no process is left behind.

use crate::client::PgClient;
use crate::memory::MemoryGroup;
use crate::process::{self, Running};
use crate::{Endpoint, Res, tools};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum time of a start (including recovery) or a clean stop.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// The kind of server and its configuration.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `clearway serve`.
    Clearway {
        /// The server's binary.
        binary: PathBuf,
        /// Additional arguments of `serve`, after `--data` and `--listen`.
        args: Vec<String>,
    },
    /// PostgreSQL with `fsync` on, and defaults except for these settings.
    Postgres {
        /// `name=value` settings.
        settings: Vec<String>,
    },
}

/// A running server.
#[derive(Debug)]
pub struct PrivateServer {
    running: Running,
    endpoint: Endpoint,
    many_processes: bool,
    /// From the start of the process to the first successful login.
    pub start_took: Duration,
}

impl Kind {
    /// Returns the name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Clearway { .. } => "clearway",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// Returns the same kind with additional arguments of `serve`, or additional settings.
    pub fn with(&self, clearway: &[&str], postgres: &[&str]) -> Self {
        let mut kind = self.clone();
        match &mut kind {
            Self::Clearway { args, .. } => args.extend(clearway.iter().map(|a| (*a).to_owned())),
            Self::Postgres { settings } => {
                settings.extend(postgres.iter().map(|s| (*s).to_owned()))
            }
        }
        kind
    }

    /// Creates the directory, and returns the same kind with a Unix socket there. Any user may
    /// change the directory: PostgreSQL may run as another one. [`Endpoint::socket_in`] names the
    /// socket.
    pub fn with_sockets_in(&self, directory: &Path) -> Res<Self> {
        let path = directory.to_str().ok_or("the directory's name is not UTF-8")?;
        std::fs::create_dir(directory)
            .and_then(|()| std::fs::set_permissions(directory, Permissions::from_mode(0o1777)))
            .map_err(|e| format!("{path}: {e}"))?;
        Ok(self.with(&["--unix-socket", path], &[&format!("unix_socket_directories={path}")]))
    }

    /// Returns the command that serves `data` on `port`. For PostgreSQL, [`Kind::prepare`] must
    /// have created the directory.
    pub fn command(&self, data: &Path, port: u16) -> Res<Command> {
        match self {
            Self::Clearway { binary, args } => {
                let mut command = Command::new(binary);
                command.arg("serve").arg("--data").arg(data);
                command.arg("--listen").arg(format!("127.0.0.1:{port}")).args(args);
                Ok(command)
            }
            Self::Postgres { settings } => {
                let mut command = as_ordinary_user(&tools::need("postgres")?)?;
                command.arg("-D").arg(data).args([
                    "-h",
                    "127.0.0.1",
                    "-k",
                    "",
                    "-p",
                    &port.to_string(),
                ]);
                for setting in settings {
                    command.arg("-c").arg(setting);
                }
                Ok(command)
            }
        }
    }

    /// Creates the data directory, if the server does not create it itself.
    pub fn prepare(&self, data: &Path) -> Res<()> {
        self.prepare_in(None, data)
    }

    /// Like [`Kind::prepare`], inside this group.
    pub fn prepare_in(&self, group: Option<&MemoryGroup>, data: &Path) -> Res<()> {
        let Self::Postgres { .. } = self else { return Ok(()) };
        std::fs::create_dir_all(data).map_err(|e| e.to_string())?;
        if is_root() {
            let user = ordinary_user()?;
            process::run(Command::new("chown").arg(user).arg(data), "", START_LIMIT)?
                .success("chown")?;
        }
        let mut command = as_ordinary_user(&tools::need("initdb")?)?;
        command.arg("-D").arg(data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        process::run(&mut entered(group, command), "", START_LIMIT)?.success("initdb").map(|_| ())
    }

    /// Starts the server on `data` and a free port, and waits until a client has logged in and its
    /// session has ended: the server has no session when this returns. Clearway binds port 0 and
    /// reports the port. PostgreSQL cannot do that and gets a reserved one: a port that was only
    /// found free could be taken by another process, such as another test's server.
    pub fn start(&self, data: &Path) -> Res<PrivateServer> {
        self.start_in(None, data)
    }

    /// Like [`Kind::start`], with all server processes in this group. The group must outlive the
    /// server.
    pub fn start_in(&self, group: Option<&MemoryGroup>, data: &Path) -> Res<PrivateServer> {
        let reserved = match self {
            Self::Clearway { .. } => None,
            Self::Postgres { .. } => Some(ReservedPort::new().map_err(|e| e.to_string())?),
        };
        let wanted = reserved.as_ref().map_or(0, |reserved| reserved.port);
        let started = Instant::now();
        let mut running = Running::start(&mut entered(group, self.command(data, wanted)?), "")?;
        let port = loop {
            let left = START_LIMIT.saturating_sub(started.elapsed());
            let line =
                running.line(left).map_err(|e| format!("{} did not start: {e}", self.name()))?;
            let Some(line) = line else {
                return Err(format!(
                    "{} is not ready after {START_LIMIT:?}:\n{}",
                    self.name(),
                    running.output()
                ));
            };
            if let Some(port) = self.ready(&line, wanted) {
                break port;
            }
        };
        drop(reserved);
        let endpoint = Endpoint::loopback(port);
        let client = PgClient::connect(&endpoint, START_LIMIT).map_err(|refused| {
            format!("{} refuses the login: {refused}\n{}", self.name(), running.output())
        })?;
        let start_took = started.elapsed();
        client.end()?;
        let many_processes = matches!(self, Self::Postgres { .. });
        Ok(PrivateServer { running, endpoint, many_processes, start_took })
    }

    /// Returns the port if this output line says that the server accepts connections. Only then can
    /// a listener on the port be this server.
    fn ready(&self, line: &str, wanted: u16) -> Option<u16> {
        match self {
            Self::Clearway { .. } => {
                let (_, rest) = line.split_once(" listens on 127.0.0.1:")?;
                rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            }
            Self::Postgres { .. } => {
                line.ends_with("database system is ready to accept connections").then_some(wanted)
            }
        }
    }
}

impl PrivateServer {
    /// Returns the address it listens on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns its process ID.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Returns its log so far.
    pub fn log(mut self) -> String {
        while self.running.line(Duration::ZERO).is_ok_and(|line| line.is_some()) {}
        self.running.output().to_owned()
    }

    /// Kills the server with SIGKILL. PostgreSQL's processes must end together: SIGQUIT makes it
    /// stop as if it had crashed.
    pub fn kill(mut self) {
        if self.many_processes && self.running.signal("QUIT").is_ok() {
            // The processes end by themselves, or are killed with their parent below.
            while self.running.line(START_LIMIT).is_ok_and(|line| line.is_some()) {}
        }
        self.running.kill();
    }

    /// Stops the server cleanly (SIGINT: PostgreSQL's fast shutdown), waits for exit status 0 and
    /// returns the log.
    pub fn stop(self) -> Res<String> {
        self.running.signal("INT")?;
        self.finish("stop after SIGINT")
    }

    /// Like [`PrivateServer::stop`], by SIGTERM.
    pub fn terminate(self) -> Res<String> {
        self.running.signal("TERM")?;
        self.finish("stop after SIGTERM")
    }

    fn finish(self, what: &str) -> Res<String> {
        self.running.finish(START_LIMIT).map_err(|e| format!("{what}: {e}"))?.success(what)
    }
}

fn entered(group: Option<&MemoryGroup>, command: Command) -> Command {
    match group {
        Some(group) => group.enter(&command),
        None => command,
    }
}

/// A loopback port that the system assigns to no other socket while this exists. Its socket is
/// bound with SO_REUSEADDR and does not listen, so a server can listen on the port if it sets
/// SO_REUSEADDR, too, as PostgreSQL does.
struct ReservedPort {
    port: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    fn new() -> rustix::io::Result<Self> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = SocketAddrV4::try_from(net::getsockname(&socket)?)?.port();
        Ok(Self { port, _socket: socket })
    }
}

fn id(args: &[&str]) -> Option<String> {
    let output = Command::new("id").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn is_root() -> bool {
    id(&["-u"]).as_deref() == Some("0")
}

fn ordinary_user() -> Res<&'static str> {
    ["postgres", "nobody"].into_iter().find(|user| id(&["-u", user]).is_some()).ok_or_else(|| {
        "PostgreSQL refuses to run as root, and there is no other user to run it as".into()
    })
}

/// Returns a command that runs the program, as another user if this process is root: PostgreSQL
/// refuses to run as root.
fn as_ordinary_user(program: &Path) -> Res<Command> {
    if !is_root() {
        return Ok(Command::new(program));
    }
    let user = ordinary_user()?;
    let group = id(&["-g", user]).ok_or_else(|| format!("{user} has no group"))?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", &group, "--clear-groups"]).arg(program);
    // The other user must be able to enter the working directory.
    command.current_dir(std::env::temp_dir());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn reserved_port_is_taken_except_for_its_server() {
        let reserved = ReservedPort::new().unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, reserved.port);
        assert!(TcpStream::connect(address).is_err(), "the reservation listens");
        let other = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(net::bind(&other, &address), Err(rustix::io::Errno::ADDRINUSE));
        // The standard library sets SO_REUSEADDR.
        let server = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(address).unwrap();
        drop(reserved);
        assert_eq!(server.accept().unwrap().1, client.local_addr().unwrap());
    }

    #[test]
    fn servers_report_readiness_and_port() {
        let clearway = Kind::Clearway { binary: PathBuf::new(), args: Vec::new() };
        let banner = "clearway 0.1.0 listens on 127.0.0.1:40321 and /run/.s.PGSQL.40321: 2 partitions, buffer pool 8 MiB";
        assert_eq!(clearway.ready(banner, 0), Some(40321));
        assert_eq!(clearway.ready("hint: it listens on nothing", 0), None);
        let postgres = Kind::Postgres { settings: Vec::new() };
        let log = "2024-02-29 12:00:00.000 UTC [7] LOG:  ";
        assert_eq!(
            postgres
                .ready(&format!("{log}listening on IPv4 address \"127.0.0.1\", port 5433"), 5433),
            None
        );
        assert_eq!(
            postgres.ready(&format!("{log}database system is ready to accept connections"), 5433),
            Some(5433)
        );
    }
}
