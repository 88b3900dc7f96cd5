//! A histogram of times: two buckets for each doubling.

/// Number of buckets of a [`Histogram`].
pub const BUCKETS: usize = 64;

/// Buckets of times: two for each doubling. A bucket's upper bound is at most 1.5 times its lower
/// one.
#[derive(Clone, Copy, Debug)]
pub struct Doublings {
    first: u32,
    buckets: usize,
}

impl Doublings {
    /// Describes this many buckets, of which the first is for times below 2^`first` ns.
    pub const fn new(first: u32, buckets: usize) -> Self {
        Self { first, buckets }
    }

    /// Returns the bucket of a time. The last one also has all longer times.
    #[inline]
    pub fn bucket(self, ns: u64) -> usize {
        if ns < 1 << self.first {
            return 0;
        }
        let doublings = ns.ilog2();
        let upper_half = ns >> (doublings - 1) & 1;
        (1 + 2 * (doublings - self.first) as usize + upper_half as usize).min(self.buckets - 1)
    }

    /// Returns the first time, in ns, that is too long for the bucket. The last bucket has no upper
    /// bound.
    pub fn upper_ns(self, bucket: usize) -> u64 {
        let doublings = self.first + (bucket as u32).saturating_sub(1) / 2;
        if bucket == 0 {
            1 << self.first
        } else if bucket % 2 == 1 {
            3 << (doublings - 1)
        } else {
            2 << doublings
        }
    }
}

/// The buckets of a [`Histogram`].
pub(super) const SCALE: Doublings = Doublings::new(5, BUCKETS);

/// A histogram of times from 32 ns to 100 s; the outermost buckets count times beyond. A bucket's
/// upper bound is at most 1.5 times its lower one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, ns: u64) {
        self.buckets[SCALE.bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(into, from)| *into += from);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Subtracts earlier counts of this histogram.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.buckets
            .iter_mut()
            .zip(&earlier.buckets)
            .for_each(|(from, less)| *from = from.saturating_sub(*less));
        self.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
    }

    /// Returns the number of times counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the times, in ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the mean, in ns; 0 if nothing was counted.
    pub fn mean_ns(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }

    /// Estimates the time, in ns, that the share `q` (0 to 1) of the counted times did not exceed.
    /// Within a bucket, times are assumed to be evenly distributed. 0 if nothing was counted.
    pub fn quantile_ns(&self, q: f64) -> f64 {
        let wanted = q.clamp(0.0, 1.0) * self.count() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (count, upper) in self
            .buckets
            .iter()
            .enumerate()
            .map(|(at, count)| (*count as f64, SCALE.upper_ns(at) as f64))
        {
            if count > 0.0 && below + count >= wanted {
                return lower + (upper - lower) * ((wanted - below) / count);
            }
            (below, lower) = (below + count, upper);
        }
        0.0
    }

    /// Returns the buckets in order: the first time, in ns, that is too long for the bucket, and
    /// its count. The last bucket also has all longer times.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().enumerate().map(|(at, count)| (SCALE.upper_ns(at), *count))
    }
}
