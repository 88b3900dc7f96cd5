//! Times in nanoseconds by size, in steps of a sixteenth: small enough for a thread to keep its
//! own, exact enough for a quantile.

/// Steps within a power of two.
const STEPS: usize = 16;
/// Steps for all times below 2^44 ns, nearly five hours.
const LENGTH: usize = 42 * STEPS;

/// How many times fell into each step.
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
    /// Counts one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[step(ns)] += 1;
    }

    /// Counts all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time that `share` of all are not above, to a sixteenth; 0 if there are none.
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

/// The step that a time falls into: below 32 the time itself, above it the power of two and the
/// four bits below the highest.
#[inline]
fn step(ns: u64) -> usize {
    let shift = ((ns | 1).ilog2() as usize).saturating_sub(STEPS.ilog2() as usize);
    (shift * STEPS + (ns >> shift) as usize).min(LENGTH - 1)
}

/// The greatest time of a step.
fn most(step: usize) -> u64 {
    let shift = (step / STEPS).saturating_sub(1);
    (((step - shift * STEPS) as u64 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_falls_into_the_step_that_covers_it() {
        for ns in (0..4096).chain([u64::from(u32::MAX), 1 << 40, (1 << 44) - 1]) {
            let step = step(ns);
            assert!(most(step) >= ns && (step == 0 || most(step - 1) < ns), "{ns} in {step}");
            assert!(most(step) - ns <= ns / STEPS as u64, "{ns} up to {}", most(step));
        }
        assert_eq!(step(u64::MAX), LENGTH - 1);
    }

    #[test]
    fn a_quantile_is_the_time_that_so_many_do_not_exceed() {
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
