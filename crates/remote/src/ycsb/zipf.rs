//! Ranks with a Zipf distribution, drawn as in YCSB (Gray et al., SIGMOD 1994).

use clearway_env::{Entropy, SeededEntropy};

/// Ranks below `count`, of which the `n`-th has weight `1 / n^theta`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

/// Ranks whose weights are added one by one.
const ADDED: u32 = 10_000;

/// Returns the sum of all weights. Beyond the first ranks, by the Euler-Maclaurin formula: the
/// first term that is left out is below 10^-13 of the sum.
fn weights(count: u32, theta: f64) -> f64 {
    let weight = |rank: u32| f64::from(rank).powf(-theta);
    let sum = (1..=count.min(ADDED)).map(weight).sum::<f64>();
    if count <= ADDED {
        return sum;
    }
    let integral = |rank: u32| f64::from(rank) * weight(rank) / (1.0 - theta);
    let slope = |rank: u32| -theta * weight(rank) / f64::from(rank);
    let over = |of: &dyn Fn(u32) -> f64| of(count) - of(ADDED);
    sum + over(&integral) + over(&weight) / 2.0 + over(&slope) / 12.0
}

impl Zipf {
    /// Computes the constants of the distribution.
    ///
    /// # Panics
    /// Panics unless theta is from 0 to below 1, and `count` is at least 2.
    pub fn new(count: u32, theta: f64) -> Self {
        assert!((0.0..1.0).contains(&theta) && count >= 2, "theta {theta}, {count} ranks");
        let zeta = weights(count, theta);
        let count = f64::from(count);
        let eta =
            (1.0 - (2.0 / count).powf(1.0 - theta)) / (1.0 - (1.0 + 0.5_f64.powf(theta)) / zeta);
        Self { count, theta, zeta, eta }
    }

    pub fn draw(&self, rng: &SeededEntropy) -> u32 {
        let uniform = (rng.u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let weight = uniform * self.zeta;
        if weight < 1.0 {
            return 0;
        }
        if weight < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank =
            self.count * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (rank as u32).min(self.count as u32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_weights_is_exact() {
        for theta in [0.0, 0.5, 0.85, 0.95, 0.99] {
            let count = 50 * ADDED;
            let exact = (1..=count).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>();
            let error = weights(count, theta) / exact - 1.0;
            assert!(error.abs() < 1e-12, "theta {theta}: {error}");
        }
    }

    #[test]
    fn ranks_have_their_weights() {
        for theta in [0.0, 0.5, 0.95] {
            let (zipf, rng, draws) = (Zipf::new(1000, theta), SeededEntropy::new(1), 500_000);
            let mut drawn = vec![0_u32; 1000];
            (0..draws).for_each(|_| drawn[zipf.draw(&rng) as usize] += 1);
            let first = f64::from(drawn[0]) / f64::from(draws);
            assert!((first * zipf.zeta - 1.0).abs() < 0.3, "theta {theta}: {first}");
            let half: u32 = drawn[500..].iter().sum();
            let weight =
                (501..=1000).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>() / zipf.zeta;
            assert!(
                (f64::from(half) / f64::from(draws) / weight - 1.0).abs() < 0.1,
                "theta {theta}: {half}"
            );
        }
    }
}
