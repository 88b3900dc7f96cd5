//! The load to kill: TPC-B transactions, each with a tag, and single statements. Its clients record
//! exactly what was acknowledged.

use clearway_harness::client::{PgClient, QueryError};
use clearway_harness::{Endpoint, Res};
use clearway_testkit::Rng;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients that run TPC-B transactions.
const TELLERS: u32 = 8;
/// Clients that each increment their own counter with single statements.
pub const COUNTERS: u32 = 4;
/// Longest wait for an answer; a killed server answers nothing.
const LIMIT: Duration = Duration::from_secs(60);
/// Serialization failures and deadlocks: the client retries.
const RETRY: [&str; 2] = ["40001", "40P01"];

/// What the clients know after a kill.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Tags of transactions whose COMMIT was acknowledged.
    pub committed: HashSet<String>,
    /// Tags of transactions without an answer to COMMIT: they may exist or not.
    pub in_doubt: HashSet<String>,
    /// Acknowledged statements of each counter.
    pub counted: HashMap<u32, i64>,
    /// Counters with an unanswered statement.
    pub counting: HashSet<u32>,
}

impl Outcome {
    /// Adds the outcome of another round.
    pub fn add(&mut self, other: Self) {
        self.committed.extend(other.committed);
        self.in_doubt.extend(other.in_doubt);
        for (counter, n) in other.counted {
            *self.counted.entry(counter).or_default() += n;
        }
        self.counting.extend(other.counting);
    }

    /// Returns the number of unanswered transactions and statements.
    pub fn under_way(&self) -> usize {
        self.in_doubt.len() + self.counting.len()
    }
}

/// Creates the counters.
pub fn create(endpoint: &Endpoint) -> Res<()> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    client.query("create table crash_counter (id int primary key, n int not null)")?;
    for id in 0..COUNTERS {
        client.query(&format!("insert into crash_counter values ({id}, 0)"))?;
    }
    Ok(())
}

/// A running load.
pub struct Load {
    threads: Vec<JoinHandle<Res<Outcome>>>,
    acknowledged: Receiver<()>,
}

impl Load {
    /// Starts all clients.
    pub fn start(endpoint: &Endpoint, round: u32, seed: u64) -> Self {
        let (tx, acknowledged) = channel();
        let mut threads = Vec::new();
        for client in 0..TELLERS {
            let (endpoint, tx) = (endpoint.clone(), tx.clone());
            let rng = Rng::new(seed.wrapping_add(u64::from(client)));
            threads.push(std::thread::spawn(move || {
                teller(&endpoint, &format!("r{round}c{client}n"), rng, &tx)
            }));
        }
        for counter in 0..COUNTERS {
            let (endpoint, tx) = (endpoint.clone(), tx.clone());
            threads.push(std::thread::spawn(move || count(&endpoint, counter, &tx)));
        }
        Self { threads, acknowledged }
    }

    /// Returns a channel with one item for each acknowledged transaction or statement.
    pub fn acknowledged(&self) -> &Receiver<()> {
        &self.acknowledged
    }

    /// Waits for the clients, which end with the server.
    pub fn finish(self) -> Res<Outcome> {
        drop(self.acknowledged);
        let mut all = Outcome::default();
        for thread in self.threads {
            all.add(thread.join().map_err(|_| "a client of the load panicked")??);
        }
        Ok(all)
    }
}

/// Runs TPC-B transactions until the connection is lost.
fn teller(
    endpoint: &Endpoint,
    prefix: &str,
    mut rng: Rng,
    acknowledged: &Sender<()>,
) -> Res<Outcome> {
    let mut outcome = Outcome::default();
    let Ok(mut client) = PgClient::connect(endpoint, LIMIT) else { return Ok(outcome) };
    for number in 0_u64.. {
        let tag = format!("{prefix}{number}");
        match transaction(&mut client, &tag, &mut rng) {
            Ok(()) => {
                outcome.committed.insert(tag);
                // The receiver is gone once the moment of the kill is chosen.
                let _ = acknowledged.send(());
            }
            Err(QueryError::Sql { code, .. }) if RETRY.contains(&code.as_str()) => {
                if client.query("rollback").is_err() {
                    break;
                }
            }
            // The server ends a session with an error only during an orderly stop, which nobody
            // requested.
            Err(error @ QueryError::Sql { .. }) => return Err(format!("{tag}: {error}")),
            Err(QueryError::Lost(_)) => {
                outcome.in_doubt.insert(tag);
                break;
            }
        }
    }
    Ok(outcome)
}

fn transaction(client: &mut PgClient, tag: &str, rng: &mut Rng) -> Result<(), QueryError> {
    let (aid, tid, delta) =
        (rng.between(1, 100_000), rng.between(1, 10), rng.between(1, 10_000) as i64 - 5_000);
    client.query("begin")?;
    client.query(&format!(
        "update pgbench_accounts set abalance = abalance + {delta} where aid = {aid}"
    ))?;
    client.query(&format!("select abalance from pgbench_accounts where aid = {aid}"))?;
    client.query(&format!(
        "update pgbench_tellers set tbalance = tbalance + {delta} where tid = {tid}"
    ))?;
    client.query(&format!(
        "update pgbench_branches set bbalance = bbalance + {delta} where bid = 1"
    ))?;
    client.query(&format!(
        "insert into pgbench_history (tid, bid, aid, delta, mtime, filler) \
         values ({tid}, 1, {aid}, {delta}, current_timestamp, '{tag}')"
    ))?;
    client.query("commit").map(|_| ())
}

/// Runs single statements on one row until the connection is lost.
fn count(endpoint: &Endpoint, counter: u32, acknowledged: &Sender<()>) -> Res<Outcome> {
    let mut outcome = Outcome::default();
    let Ok(mut client) = PgClient::connect(endpoint, LIMIT) else { return Ok(outcome) };
    let sql = format!("update crash_counter set n = n + 1 where id = {counter}");
    loop {
        match client.query(&sql) {
            Ok(_) => {
                *outcome.counted.entry(counter).or_default() += 1;
                let _ = acknowledged.send(());
            }
            Err(QueryError::Lost(_)) => {
                outcome.counting.insert(counter);
                return Ok(outcome);
            }
            Err(error) => return Err(format!("{sql}: {error}")),
        }
    }
}
