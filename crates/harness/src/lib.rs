//! Code shared by `xtask` and the lab: private servers on a free loopback port, runs of the real
//! pgbench and psql, and a small blocking client that reports exactly which commits were
//! acknowledged.
//!
//! This crate knows nothing of the engine. It reaches servers like any client, so everything can be
//! tested against PostgreSQL first and comparisons are fair. Errors are strings for a person at a
//! terminal.

#![forbid(unsafe_code)]

pub mod batch;
pub mod client;
pub mod cpu;
pub mod disk;
pub mod memory;
pub mod pgbench;
pub mod process;
pub mod server;
pub mod sums;
pub mod tools;

use std::path::{Path, PathBuf};

/// Result of a harness step; the error is a message for a person.
pub type Res<T> = Result<T, String>;

/// Address of a server, and the role to log in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address; servers started by the harness listen on loopback only.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Role to log in as; no password is sent.
    pub user: String,
    /// Database to connect to.
    pub database: String,
}

impl Endpoint {
    /// Returns a loopback endpoint with PostgreSQL's usual superuser.
    pub fn loopback(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            user: "postgres".into(),
            database: "postgres".into(),
        }
    }

    /// Returns the Unix socket of the server with this port in the directory, as both servers name
    /// it.
    pub fn socket_in(&self, directory: &Path) -> PathBuf {
        directory.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Parses `HOST:PORT`.
    pub fn parse(text: &str) -> Res<Self> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| format!("`{text}` is not HOST:PORT"))?;
        let port = port.parse().map_err(|e| format!("`{text}`: port: {e}"))?;
        Ok(Self { host: host.into(), ..Self::loopback(port) })
    }

    /// Returns the psql and pgbench options for this server.
    pub fn client_args(&self) -> Vec<String> {
        ["-h", &self.host, "-p", &self.port.to_string(), "-U", &self.user]
            .map(String::from)
            .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_parse_host_and_port() {
        let e = Endpoint::parse("localhost:5433").unwrap();
        assert_eq!((e.host.as_str(), e.port), ("localhost", 5433));
        assert!(Endpoint::parse("localhost").is_err());
        assert!(Endpoint::parse("localhost:x").is_err());
        assert_eq!(e.client_args(), ["-h", "localhost", "-p", "5433", "-U", "postgres"]);
    }
}
