//! The command line.

use clearway_remote::ycsb::{PAYLOAD_WORDS, Plans, Transport};
use clearway_remote::{LockKind, MAX_PLACES, Mode, Protocol, StoreLayout, WorkerLimits};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Keys of one bucket of the index.
const BUCKET_KEYS: u32 = 8;

/// The options of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Owns no keys and serves nobody.
    pub is_client: bool,
    pub node: u32,
    pub nodes: u32,
    pub clients: u32,
    pub transport: Transport,
    pub mode: Mode,
    pub rows: u32,
    pub operations: usize,
    pub theta: f64,
    pub writes: f64,
    pub transactions: usize,
    /// Key locations that the process caches; `None` for all.
    pub cached: Option<usize>,
    pub latency: Duration,
    pub seed: u64,
    pub segment: Option<PathBuf>,
}

impl Options {
    /// Parses and validates the command line.
    ///
    /// # Errors
    /// Returns a message about the first invalid argument.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let [command, flags @ ..] = args else { return Err("missing command".into()) };
        let is_client = match command.as_str() {
            "serve" => false,
            "client" => true,
            _ => return Err(format!("unknown command `{command}`")),
        };
        let mut options = Self {
            is_client,
            node: u32::MAX,
            nodes: 4,
            clients: 0,
            transport: Transport::OneSided,
            mode: Mode { protocol: Protocol::NoWait, kind: LockKind::Shared },
            rows: 100_000,
            operations: 10,
            theta: 0.0,
            writes: 0.5,
            transactions: 4,
            cached: None,
            latency: Duration::ZERO,
            seed: 1,
            segment: None,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let value = flags.next().ok_or_else(|| format!("{flag} requires a value"))?;
            options.set(flag, value)?;
        }
        options.check()
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        let bad = || format!("invalid value for {flag}: `{value}`");
        match flag {
            "--node" => self.node = number(flag, value)?,
            "--nodes" => self.nodes = number(flag, value)?,
            "--clients" => self.clients = number(flag, value)?,
            "--rows" => self.rows = number(flag, value)?,
            "--operations" => self.operations = number(flag, value)?,
            "--theta" => self.theta = number(flag, value)?,
            "--writes" => self.writes = number(flag, value)?,
            "--transactions" => self.transactions = number(flag, value)?,
            "--cached" => self.cached = Some(number(flag, value)?),
            "--latency-ns" => self.latency = Duration::from_nanos(number(flag, value)?),
            "--seed" => self.seed = number(flag, value)?,
            "--segment" => self.segment = Some(value.into()),
            "--transport" => {
                self.transport = match value {
                    "one-sided" => Transport::OneSided,
                    "two-sided" => Transport::TwoSided,
                    "tcp" => Transport::Tcp,
                    _ => return Err(bad()),
                }
            }
            "--protocol" => {
                self.mode.protocol = match value {
                    "no-wait" => Protocol::NoWait,
                    "wait-die" => Protocol::WaitDie,
                    _ => return Err(bad()),
                }
            }
            "--locks" => {
                self.mode.kind = match value {
                    "mutual" => LockKind::Mutual,
                    "shared" => LockKind::Shared,
                    "one-round" => LockKind::OneRound,
                    "line" => LockKind::Line,
                    "adaptive" => LockKind::Adaptive,
                    _ => return Err(bad()),
                }
            }
            _ => return Err(format!("unknown option {flag}")),
        }
        Ok(())
    }

    fn check(self) -> Result<Self, String> {
        let limits = [
            (self.nodes >= 1 && self.nodes <= 64, "--nodes must be 1 to 64"),
            (self.clients <= 64, "--clients must be at most 64"),
            (self.is_client || self.node < self.nodes, "--node must be less than --nodes"),
            (
                !self.is_client || (self.nodes..self.members()).contains(&self.node),
                "--node of a client must be at least --nodes, and below the sum of --nodes and \
                 --clients",
            ),
            (self.rows >= 2 && self.rows < 1 << 30, "--rows must be at least 2 and less than 2^30"),
            ((1..=64).contains(&self.operations), "--operations must be 1 to 64"),
            (
                self.operations as u64 <= u64::from(self.rows),
                "--rows must be at least --operations",
            ),
            ((0.0..1.0).contains(&self.theta), "--theta must be at least 0 and below 1"),
            ((0.0..=1.0).contains(&self.writes), "--writes must be 0 to 1"),
            ((1..=32).contains(&self.transactions), "--transactions must be 1 to 32"),
            (
                self.mode.kind != LockKind::Line
                    || self.transactions * self.limits().rows <= MAX_PLACES,
                "--transactions times --operations is too large for --locks line",
            ),
            (
                self.segment.is_some() || self.node == 0 || self.transport == Transport::Tcp,
                "--segment is required",
            ),
        ];
        match limits.into_iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(why.into()),
            None => Ok(self),
        }
    }

    /// Returns the number of processes: nodes and clients.
    pub fn members(&self) -> u32 {
        self.nodes.saturating_add(self.clients)
    }

    /// Returns the layout of the store: an owner has room for twice as many keys as at the start.
    pub fn layout(&self) -> StoreLayout {
        let buckets = self.rows.div_ceil(BUCKET_KEYS / 2);
        StoreLayout { mode: self.mode, value_words: PAYLOAD_WORDS, buckets, entries: BUCKET_KEYS }
    }

    pub fn limits(&self) -> WorkerLimits {
        self.layout().limits(self.transactions, self.operations)
    }

    pub fn plans(&self) -> Plans {
        Plans::new(self.nodes, self.rows, self.operations, self.theta, self.writes)
    }
}

fn number<T: FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("invalid value for {flag}: `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_parsed_and_validated() {
        let options =
            parse("serve --node 3 --theta 0.85 --transport two-sided --locks line --segment /x")
                .unwrap();
        assert_eq!(
            (options.node, options.theta, options.transport),
            (3, 0.85, Transport::TwoSided)
        );
        assert_eq!(options.mode, Mode { protocol: Protocol::NoWait, kind: LockKind::Line });
        let client = parse("client --nodes 2 --clients 1 --node 2 --transport tcp").unwrap();
        assert!(client.is_client && client.members() == 3);
        assert!(parse("serve --node 0 --locks line --operations 64").is_ok());
        let bad = [
            "work --node 0",
            "client --nodes 2 --clients 1 --node 1 --transport tcp",
            "client --nodes 2 --clients 1 --node 3 --transport tcp",
            "client --nodes 2 --clients 1 --node 2",
            "serve --node 0 --locks line --operations 64 --transactions 32",
            "serve",
            "serve --node",
            "serve --node 4",
            "serve --node 1",
            "serve --node 0 --theta 1",
            "serve --node 0 --writes nan",
            "serve --node 0 --rows 9",
            "serve --node 0 --locks none",
            "serve --node 0 --transactions 0",
            "serve --node 0 --colour red",
        ];
        for line in bad {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
