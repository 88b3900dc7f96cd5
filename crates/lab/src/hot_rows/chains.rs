//! Samples how many transactions are behind another on one row while a load runs.
//!
//! Only early retire makes such chains. A second connection reads `clearway.hot_rows` repeatedly;
//! each sample is the longest chain at that moment.

use clearway_harness::client::PgClient;
use clearway_harness::{Endpoint, Res};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Time between two samples.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum time for the server to answer.
pub const LIMIT: Duration = Duration::from_secs(60);
const LONGEST: &str = "SELECT coalesce(max(behind), 0) FROM clearway.hot_rows";

/// The longest chains in the samples of a run, in transactions behind a row's first holder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chains {
    /// The mean over all samples.
    pub mean: f64,
    /// The longest in any sample.
    pub most: f64,
}

impl Chains {
    /// The server does not report chains.
    pub const UNKNOWN: Self = Self { mean: f64::NAN, most: f64::NAN };

    fn of(looks: &[i64]) -> Self {
        let sum: i64 = looks.iter().sum();
        let most = looks.iter().max().map_or(f64::NAN, |most| *most as f64);
        Self { mean: sum as f64 / looks.len() as f64, most }
    }
}

/// Runs the load and samples its chains in the meantime, at least once.
pub fn watch<T>(endpoint: &Endpoint, load: impl FnOnce() -> Res<T>) -> Res<(T, Chains)> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<()>();
        let looks = scope.spawn(move || -> Res<Vec<i64>> {
            let mut looks = Vec::new();
            loop {
                looks.push(client.number(LONGEST)?);
                if is_over.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return Ok(looks);
                }
            }
        });
        let result = load();
        drop(over);
        let looks = looks.join().map_err(|_| "the thread that samples chains panicked")?;
        Ok((result?, Chains::of(&looks?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_summed_up() {
        assert_eq!(Chains::of(&[0, 5, 1]), Chains { mean: 2.0, most: 5.0 });
        assert!(Chains::of(&[]).mean.is_nan() && Chains::of(&[]).most.is_nan());
    }
}
