//! A histogram of times in nanoseconds with 16 buckets per power of two: small enough for one per
//! thread, precise enough for a quantile.

/// Buckets within a power of two.
const STEPS: usize = 16;
/// Buckets for all times below 2^44 ns, nearly five hours.
const LENGTH: usize = 42 * STEPS;

/// Counts per bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; LENGTH],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; LENGTH] }
    }
}

impl Histogram {
    /// Records a time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[step(ns)] += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the quantile of `share`, to within a sixteenth; 0 without times.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, most)
    }
}

/// Returns the bucket of a time: below 32 the time itself, above it the power of two and the four
/// bits below the highest.
#[inline]
fn step(ns: u64) -> usize {
    let shift = ((ns | 1).ilog2() as usize).saturating_sub(STEPS.ilog2() as usize);
    (shift * STEPS + (ns >> shift) as usize).min(LENGTH - 1)
}

/// Returns the largest time of a bucket.
fn most(step: usize) -> u64 {
    let shift = (step / STEPS).saturating_sub(1);
    (((step - shift * STEPS) as u64 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_covers_them() {
        for ns in (0..4096).chain([u64::from(u32::MAX), 1 << 40, (1 << 44) - 1]) {
            let step = step(ns);
            assert!(most(step) >= ns && (step == 0 || most(step - 1) < ns), "{ns} in {step}");
            assert!(most(step) - ns <= ns / STEPS as u64, "{ns} up to {}", most(step));
        }
        assert_eq!(step(u64::MAX), LENGTH - 1);
    }

    #[test]
    fn quantiles_are_bucket_maximums() {
        let mut one = Histogram::default();
        assert_eq!(one.quantile(0.5), 0);
        (1..=20).for_each(|ns| one.record(ns));
        let mut all = Histogram::default();
        all.record(1_000_000);
        all.add(&one);
        assert_eq!((all.quantile(0.5), all.quantile(20.0 / 21.0), all.count()), (11, 20, 21));
        assert!((1_000_000..1_062_500).contains(&all.quantile(1.0)));
    }
}
