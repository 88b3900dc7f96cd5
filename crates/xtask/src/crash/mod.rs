//! `cargo xtask crash`: kills the server with kill -9 during tpcb-like, repeatedly on one
//! directory, and checks what is left.
//!
//! What must hold after every restart:
//! 1. Every transaction whose COMMIT was acknowledged is there, exactly once.
//! 2. No other transaction is there, except for those whose COMMIT was unanswered: each is there
//!    completely or not at all.
//! 3. No transaction is there partially: the balance of each account, teller and branch is the sum
//!    of its history.
//! 4. Each counter has the acknowledged value, or one more if a statement was unanswered.
//!
//! The moment of the kill is random in time and in progress. Every few rounds the server is killed
//! again during recovery. In every second round a small buffer pool makes it write pages of
//! unfinished transactions. `--seed` repeats the choices of a run, but not the scheduling of its
//! threads.

mod load;
mod verdict;

use crate::options::Options;
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::TempDir;
use clearway_harness::{Res, pgbench, process};
use clearway_testkit::Rng;
use load::{Load, Outcome};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Rounds without `--rounds`.
const ROUNDS: u32 = 30;
/// Longest time from the first transaction to the kill.
const LONGEST_MS: u64 = 2_000;
/// Longest wait for the first transaction.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time from the start of a recovery to its kill.
const LONGEST_RECOVERY_MS: u64 = 60;
/// A pool too small for the tables.
const SMALL_POOL: &str = "4MB";

/// Runs the rounds; fails at the first violated promise.
pub fn run(options: &Options) -> Res<()> {
    let kind = options.kind()?;
    let seed = options.seed.unwrap_or_else(Rng::fresh_seed);
    println!("crash: seed {seed}");
    let directory = TempDir::new("crash")?;
    let result = rounds(
        &kind,
        &directory.path().join("data"),
        options.rounds.unwrap_or(ROUNDS),
        Rng::new(seed),
    );
    result.map_err(|why| {
        format!("{why}\nseed {seed}; the data directory stays at {}", directory.keep().display())
    })
}

fn rounds(kind: &Kind, data: &Path, rounds: u32, mut rng: Rng) -> Res<()> {
    kind.prepare(data)?;
    let server = kind.start(data)?;
    pgbench::init(server.endpoint(), "dtgvp", 1)?;
    load::create(server.endpoint())?;
    let mut seen = Outcome::default();
    let mut server = Some(server);
    for round in 1..=rounds {
        let kind = variant(kind, round);
        let running = match server.take() {
            Some(running) => running,
            None => restart(&kind, data, &mut rng)?,
        };
        let recovered = running.start_took;
        let checked = verdict::check(running.endpoint(), &mut seen)
            .map_err(|why| failed(round, &why, running.id()))?;
        let load = Load::start(running.endpoint(), round, rng.next_u64());
        let progress = until_a_random_moment(&load, &mut rng);
        running.kill();
        let outcome = load.finish()?;
        println!(
            "crash: round {round}: start {recovered:.0?}, {checked} transactions in order; killed after {progress} more, \
             {} under way",
            outcome.under_way()
        );
        if progress == 0 {
            return Err(format!("round {round}: no transaction was acknowledged"));
        }
        seen.add(outcome);
    }
    let last = kind.start(data)?;
    let checked = verdict::check(last.endpoint(), &mut seen)
        .map_err(|why| failed(rounds + 1, &why, last.id()))?;
    last.stop()?;
    println!("crash: {rounds} rounds, {checked} transactions acknowledged and there");
    Ok(())
}

fn failed(round: u32, why: &str, pid: u32) -> String {
    format!("crash: before round {round} (server {pid}): {why}")
}

/// Gives every second round a pool that cannot hold the data.
fn variant(kind: &Kind, round: u32) -> Kind {
    if round.is_multiple_of(2) {
        kind.with(&["--buffer-pool", SMALL_POOL], &[])
    } else {
        kind.clone()
    }
}

/// Starts the server again; in one of three cases kills it first during recovery.
fn restart(kind: &Kind, data: &Path, rng: &mut Rng) -> Res<PrivateServer> {
    if rng.between(1, 3) == 1 {
        let mut command = kind.command(data, 0)?;
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().map_err(|e| e.to_string())?;
        let (_nobody_sends, never) = std::sync::mpsc::channel::<()>();
        // Nothing is ever sent: this waits for a random time.
        let _ = never.recv_timeout(Duration::from_millis(rng.between(0, LONGEST_RECOVERY_MS)));
        process::signal(child.id(), "KILL")?;
        child.wait().map_err(|e| e.to_string())?;
    }
    kind.start(data)
}

/// Runs the load for a random time, until at least one transaction is acknowledged; returns the
/// number of acknowledged ones.
fn until_a_random_moment(load: &Load, rng: &mut Rng) -> u64 {
    let moment = Instant::now() + Duration::from_millis(rng.between(1, LONGEST_MS));
    let mut progress = 0;
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        let wait = if progress == 0 { left.max(PATIENCE) } else { left };
        match load.acknowledged().recv_timeout(wait) {
            Ok(()) => progress += 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return progress,
        }
        if Instant::now() >= moment {
            return progress;
        }
    }
}
