//! The options after the command's name.

use clearway_harness::server::Kind;
use clearway_harness::{Endpoint, Res, tools};
use std::path::PathBuf;

/// Options of all commands; each command uses its own.
#[derive(Debug, Default)]
pub struct Options {
    /// Small scale.
    pub quick: bool,
    /// Update the ratchet file after files shrank.
    pub update: bool,
    /// Crash rounds.
    pub rounds: Option<u32>,
    /// The seed to repeat.
    pub seed: Option<u64>,
    /// The fuzz target to run, instead of all.
    pub target: Option<String>,
    /// Minutes for each fuzz target, or for the simulation.
    pub minutes: Option<u32>,
    /// Executions of each fuzz target.
    pub runs: Option<u64>,
    /// Add new inputs to the repository.
    pub merge: bool,
    /// Number of seeds to simulate.
    pub seeds: Option<u64>,
    /// The first seed to simulate.
    pub first: Option<u64>,
    /// Check that planted bugs are found.
    pub canaries: bool,
    /// Simulate many partitions on separate nodes.
    pub cluster: bool,
    /// Simulate the buffer pool alone.
    pub pool: bool,
    /// Judge the simulation only by the checker of histories.
    pub histories: bool,
    /// Only scenarios whose name contains this.
    pub only: Option<String>,
    /// Address of a running server.
    pub against: Option<Endpoint>,
    /// Start PostgreSQL instead of Clearway.
    pub postgres: bool,
    /// Server binary to use instead of one built from the tree.
    pub binary: Option<PathBuf>,
    /// Clients of a history.
    pub clients: Option<u32>,
    /// Transactions after which a history ends.
    pub transactions: Option<u64>,
    /// Isolation level.
    pub isolation: Option<String>,
    /// More arguments for `clearway serve`.
    pub serve_args: Vec<String>,
}

impl Options {
    /// Parses the options; an unknown one is an error.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Res<Self> {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} requires a value"));
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--update" => options.update = true,
                "--rounds" => {
                    options.rounds = Some(value()?.parse().map_err(|e| format!("--rounds: {e}"))?)
                }
                "--seed" => {
                    options.seed = Some(value()?.parse().map_err(|e| format!("--seed: {e}"))?)
                }
                "--target" => options.target = Some(value()?),
                "--minutes" => {
                    options.minutes = Some(value()?.parse().map_err(|e| format!("--minutes: {e}"))?)
                }
                "--runs" => {
                    options.runs = Some(value()?.parse().map_err(|e| format!("--runs: {e}"))?)
                }
                "--merge" => options.merge = true,
                "--seeds" => {
                    options.seeds = Some(value()?.parse().map_err(|e| format!("--seeds: {e}"))?)
                }
                "--first" => {
                    options.first = Some(value()?.parse().map_err(|e| format!("--first: {e}"))?)
                }
                "--clients" => {
                    options.clients = Some(value()?.parse().map_err(|e| format!("--clients: {e}"))?)
                }
                "--transactions" => {
                    options.transactions =
                        Some(value()?.parse().map_err(|e| format!("--transactions: {e}"))?);
                }
                "--isolation" => options.isolation = Some(value()?),
                "--cluster" => options.cluster = true,
                "--pool" => options.pool = true,
                "--histories" => options.histories = true,
                "--canaries" => options.canaries = true,
                "--only" => options.only = Some(value()?),
                "--binary" => options.binary = Some(value()?.into()),
                "--against" => options.against = Some(Endpoint::parse(&value()?)?),
                "--server" => {
                    options.postgres = match value()?.as_str() {
                        "clearway" => false,
                        "postgres" => true,
                        other => return Err(format!("--server {other}: clearway or postgres")),
                    }
                }
                "--" => options.serve_args.extend(args.by_ref()),
                _ => return Err(format!("unknown option {arg}\n{}", super::HELP)),
            }
        }
        Ok(options)
    }

    /// Returns the server to start; builds Clearway first, in release mode.
    pub fn kind(&self) -> Res<Kind> {
        if self.postgres {
            return Ok(Kind::Postgres { settings: vec!["max_connections=1300".into()] });
        }
        let binary = self.binary.clone().map_or_else(tools::build_server, Ok)?;
        Ok(Kind::Clearway { binary, args: self.serve_args.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Res<Options> {
        Options::parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_parsed_and_mistakes_are_named() {
        let o = parse("--quick --rounds 3 --server postgres -- --partitions 2").unwrap();
        assert!(o.quick && o.postgres);
        assert_eq!((o.rounds, o.serve_args.join(" ").as_str()), (Some(3), "--partitions 2"));
        assert!(parse("--rounds").unwrap_err().contains("requires a value"));
        assert!(parse("--rouns 3").unwrap_err().contains("--rouns"));
    }
}
