//! Times counted by size: two buckets for each doubling.

/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = 64;

/// The first bucket is for times below 2^FIRST ns.
const FIRST: u32 = 5;

/// A histogram of times from 32 ns to 100 s; what is beyond is counted in the outermost buckets. A
/// bucket's upper bound is at most 1.5 times its lower one.
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

/// The bucket of a time.
pub(super) fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST {
        return 0;
    }
    let doublings = ns.ilog2();
    let upper_half = ns >> (doublings - 1) & 1;
    (1 + 2 * (doublings - FIRST) as usize + upper_half as usize).min(BUCKETS - 1)
}

/// The first time, in ns, that is too long for a bucket but the last.
fn upper_ns(bucket: usize) -> u64 {
    let doublings = FIRST + (bucket as u32).saturating_sub(1) / 2;
    if bucket == 0 {
        1 << FIRST
    } else if bucket % 2 == 1 {
        3 << (doublings - 1)
    } else {
        2 << doublings
    }
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(into, from)| *into += from);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Takes away what it had counted earlier.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.buckets
            .iter_mut()
            .zip(&earlier.buckets)
            .for_each(|(from, less)| *from = from.saturating_sub(*less));
        self.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of the times, in ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The mean, in ns; 0 if nothing was counted.
    pub fn mean_ns(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }

    /// The time, in ns, that the share `q` (0 to 1) of those counted did not exceed, as far as the
    /// buckets tell: within the one that has it, times are taken as spread evenly. 0 if nothing was
    /// counted.
    pub fn quantile_ns(&self, q: f64) -> f64 {
        let wanted = q.clamp(0.0, 1.0) * self.count() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (count, upper) in
            self.buckets.iter().enumerate().map(|(at, count)| (*count as f64, upper_ns(at) as f64))
        {
            if count > 0.0 && below + count >= wanted {
                return lower + (upper - lower) * ((wanted - below) / count);
            }
            (below, lower) = (below + count, upper);
        }
        0.0
    }

    /// The buckets in order: the first time, in ns, that is too long for it, and how many times it
    /// has. The last bucket has all that are longer, too.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().enumerate().map(|(at, count)| (upper_ns(at), *count))
    }
}
