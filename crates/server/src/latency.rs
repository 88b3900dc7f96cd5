//! Latency histograms, one per worker and kind.
//!
//! Two buckets per doubling, from 1 µs to more than a minute: a quantile is exact to within 50 %.
//!
//! Invariant: only the worker's thread writes to a histogram, by a load and a store. A reader adds
//! up the histograms of all workers.

use clearway_latch::lockstat::Doublings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets.
pub(crate) const BUCKETS: usize = 54;

/// The first bucket is for times below 2^10 ns.
const SCALE: Doublings = Doublings::new(10, BUCKETS);

/// Returns the exclusive upper bound of a bucket, in ns; `None` for the last one.
fn upper_ns(bucket: usize) -> Option<u64> {
    (bucket < BUCKETS - 1).then(|| SCALE.upper_ns(bucket))
}

/// A worker's histogram.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a time. Only the worker's thread may call this.
    pub(crate) fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a statistic that orders nothing. A load and a store suffice, because there is
        // only one writer.
        let add = |to: &AtomicU64, by: u64| {
            to.store(to.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
        };
        add(&self.buckets[SCALE.bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }
}

/// The sum of several histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Latency {
    /// Adds a worker's histogram.
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        // Relaxed: as in `record`.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (sum, counter) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += load(counter);
        }
        self.sum_ns = self.sum_ns.saturating_add(load(&histogram.sum_ns));
    }

    /// Returns the buckets in ascending order: the exclusive upper bound in ns, `None` for the last
    /// one, and the count.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets.iter().enumerate().map(|(at, count)| (upper_ns(at), *count))
    }

    /// Returns the sum of all times, in ns.
    pub(crate) fn sum_ns(&self) -> u64 {
        self.sum_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(ns: u64) -> usize {
        SCALE.bucket(ns)
    }

    #[test]
    fn times_fall_into_the_bucket_of_their_bounds() {
        let mut below = 0;
        for at in 0..BUCKETS - 1 {
            let upper = upper_ns(at).unwrap();
            assert!(upper > below && (at == 0 || upper * 2 <= below * 3), "{at}");
            assert_eq!((bucket(below), bucket(upper - 1), bucket(upper)), (at, at, at + 1));
            below = upper;
        }
        assert!(below > 60_000_000_000 && upper_ns(BUCKETS - 1).is_none());
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn histograms_of_workers_add_up() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_micros(3));
        one.record(Duration::from_millis(5));
        other.record(Duration::from_micros(3));
        let mut sum = Latency::default();
        [one, other].iter().for_each(|histogram| sum.add(histogram));
        let counts: Vec<u64> = sum.buckets().map(|(_, n)| n).filter(|n| *n > 0).collect();
        assert_eq!((counts, sum.sum_ns()), (vec![2, 1], 5_006_000));
    }
}
