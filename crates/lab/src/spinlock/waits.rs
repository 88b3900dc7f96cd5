//! Latch waits of a server, from `clearway.contention`.

use crate::contention::{self, Row};
use clearway_harness::{Endpoint, Res};
use std::time::Duration;

/// The class of the replacement policy's latch.
const POLICY: &str = "buffer.policy";
/// Classes that are not latches: transactions' locks, the disk, and messages left to the thread
/// that runs a partition.
const NOT_LATCHES: [&str; 3] = ["lock.", "log.", "partition."];

/// The waits of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// Length of the period.
    pub seconds: f64,
    /// Requests for the policy's latch.
    pub policy_requests: f64,
    /// Percent of these requests that waited.
    pub policy_contended: f64,
    /// Waiting for the policy's latch, in percent of the workers' time.
    pub policy_share: f64,
    /// Waiting for any latch, in percent of the workers' time.
    pub latch_share: f64,
}

impl Waits {
    /// Reads the waits of this many workers in this period.
    pub fn read(endpoint: &Endpoint, workers: usize, elapsed: Duration) -> Res<Self> {
        Ok(Self::of(&contention::read(endpoint)?, workers, elapsed))
    }

    fn of(rows: &[Row], workers: usize, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let share = |rows: &mut dyn Iterator<Item = &Row>| {
            100.0 * rows.map(|row| row.wait_us).sum::<f64>() / (seconds * 1e6 * workers as f64)
        };
        let policy = || rows.iter().filter(|row| row.name == POLICY);
        let requests = policy().map(|row| row.requests).fold(0.0, f64::max);
        let contended: f64 = policy().map(|row| row.contended).sum();
        let is_latch = |row: &&Row| !NOT_LATCHES.iter().any(|prefix| row.name.starts_with(prefix));
        Self {
            seconds,
            policy_requests: requests,
            policy_contended: if requests > 0.0 { 100.0 * contended / requests } else { 0.0 },
            policy_share: share(&mut policy()),
            latch_share: share(&mut rows.iter().filter(is_latch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_shares_are_relative_to_worker_time() {
        let row = |name: &str, requests, contended, wait_us| Row {
            name: name.into(),
            requests,
            contended,
            wait_us,
        };
        let rows = [
            row(POLICY, 1000.0, 30.0, 150_000.0),
            row(POLICY, 1000.0, 20.0, 50_000.0),
            row("env.io_queue", 10.0, 5.0, 200_000.0),
            row("lock.key_shared", 10.0, 5.0, 900_000.0),
            row("buffer.free_list", 0.0, 0.0, 0.0),
        ];
        let waits = Waits::of(&rows, 4, Duration::from_secs(1));
        let want = Waits {
            seconds: 1.0,
            policy_requests: 1000.0,
            policy_contended: 5.0,
            policy_share: 5.0,
            latch_share: 10.0,
        };
        assert_eq!(waits, want);
        assert_eq!(Waits::of(&rows[4..], 4, Duration::from_secs(1)).policy_contended, 0.0);
    }
}
