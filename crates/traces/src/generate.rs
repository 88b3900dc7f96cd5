//! Traces generated from a seed, for use without the published ones. Each has one property that
//! distinguishes policies.

use crate::Trace;
use clearway_testkit::Rng;

/// Ranks `0 .. n` drawn with probability proportional to `1 / (rank + 1)^skew`.
#[derive(Clone, Debug)]
pub struct Zipf(Vec<f64>);

impl Zipf {
    /// Creates the distribution over `ranks` ranks, at least one.
    pub fn new(ranks: u32, skew: f64) -> Self {
        assert!(ranks > 0);
        let mut sum = 0.0;
        let weigh = |rank: u32| {
            sum += f64::from(rank + 1).powf(-skew);
            sum
        };
        Self((0..ranks).map(weigh).collect())
    }

    /// Draws a rank. O(log n).
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let last = self.0.len() - 1;
        let point = rng.unit() * self.0[last];
        self.0.partition_point(|sum| *sum <= point).min(last) as u32
    }
}

/// Maps ranks to page numbers so that neighbouring ranks are not neighbours: a bijection on 64
/// bits.
const fn scramble(rank: u64) -> u64 {
    (rank ^ (rank >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Generates independent accesses with a Zipf distribution; popular pages are not neighbours.
pub fn zipf(pages: u32, skew: f64, accesses: usize, seed: u64) -> Trace {
    let (ranks, mut rng) = (Zipf::new(pages, skew), Rng::new(seed));
    Trace::new("zipf", (0..accesses).map(|_| scramble(ranks.draw(&mut rng).into())))
}

/// Generates a loop over the same pages, LRU's worst case.
pub fn looping(pages: u32, accesses: usize) -> Trace {
    Trace::new("loop", (0..accesses as u64).map(|at| at % u64::from(pages)))
}

/// Generates accesses to a hot set with a Zipf distribution, interleaved with scans of `cold` pages
/// that are not reused soon. Scans make up one access in four.
pub fn scan_and_hot(hot: u32, cold: u32, accesses: usize, seed: u64) -> Trace {
    let (ranks, mut rng) = (Zipf::new(hot, 0.8), Rng::new(seed));
    let (mut next, mut left) = (0, 0);
    let access = |_| {
        if left == 0 && rng.permille(2) {
            left = 150 + rng.below(200);
        }
        if left == 0 {
            return u64::from(ranks.draw(&mut rng));
        }
        left -= 1;
        next = (next + 1) % u64::from(cold);
        u64::from(hot) + next
    };
    Trace::new("scan and hot", (0..accesses).map(access))
}

/// Generates accesses to a popular set whose pages recur so rarely that many pages used only once
/// come in between: frequency distinguishes them, recency does not. Each of `phases` phases has a
/// different popular set.
pub fn shifting(popular: u32, phases: u32, accesses: usize, seed: u64) -> Trace {
    let (ranks, mut rng) = (Zipf::new(popular, 0.4), Rng::new(seed));
    let (phase_length, mut once) = (accesses / phases.max(1) as usize + 1, 1 << 40);
    let access = |at: usize| {
        once += 1;
        let phase = (at / phase_length) as u64;
        if rng.permille(500) { once } else { phase << 32 | u64::from(ranks.draw(&mut rng)) }
    };
    Trace::new("shifting", (0..accesses).map(access))
}

/// Generates the accesses of an OLTP database: B+trees with hot roots and inner pages and
/// Zipf-distributed leaves; a growing table whose newest pages are reused for a while, two or three
/// times in a row (correlated references); and occasional range scans. `leaves` is the size of the
/// largest tree.
pub fn oltp(leaves: u32, accesses: usize, seed: u64) -> Trace {
    const FANOUT: u32 = 64;
    const GROWING: u64 = 1 << 40;
    let (ranks, mut rng) = (Zipf::new(leaves, 0.9), Rng::new(seed));
    let (mut keys, mut newest) = (Vec::with_capacity(accesses + 512), 0u64);
    let inner =
        |leaf: u32, level: u32| u64::from(level) << 32 | u64::from(leaf / FANOUT.pow(level));
    while keys.len() < accesses {
        match rng.below(100) {
            0..60 => {
                let leaf = (scramble(ranks.draw(&mut rng).into()) % u64::from(leaves)) as u32;
                keys.extend([2, 1, 0].map(|level| inner(leaf, level)));
            }
            60..95 => {
                newest += u64::from(rng.permille(100));
                let page = newest - rng.below(50).min(newest) * u64::from(rng.permille(300));
                let times = 2 + rng.below(2) as usize;
                keys.extend(std::iter::repeat_n(GROWING + page, times));
            }
            95..99 => keys.extend([2, 1].map(|level| inner(0, level))),
            _ => {
                let (from, length) = (rng.below(leaves.into()) as u32, 10 + rng.below(100) as u32);
                keys.extend((from..leaves.min(from + length)).map(|leaf| inner(leaf, 0)));
            }
        }
    }
    keys.truncate(accesses);
    Trace::new("oltp", keys)
}

/// Generates one trace of each kind, `accesses` long, for pools of about `frames` frames.
pub fn all(frames: u32, accesses: usize, seed: u64) -> Vec<Trace> {
    vec![
        zipf(frames * 10, 0.9, accesses, seed),
        looping(frames * 2, accesses),
        scan_and_hot(frames, frames * 10, accesses, seed),
        shifting(frames * 2, 3, accesses, seed),
        oltp(frames * 20, accesses, seed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt_misses;

    #[test]
    fn traces_are_deterministic_per_seed() {
        for (a, b) in all(50, 5000, 7).iter().zip(all(50, 5000, 7)) {
            assert_eq!((a.pages.len(), a), (5000, &b));
            let misses = opt_misses(&a.pages, 50);
            assert!(
                (u64::from(a.distinct)..5000).contains(&misses),
                "{}: {misses} of {}",
                a.name,
                a.distinct
            );
        }
        assert_ne!(zipf(100, 0.9, 1000, 1), zipf(100, 0.9, 1000, 2));
    }

    #[test]
    fn zipf_follows_its_distribution() {
        let (ranks, mut rng, mut drawn) = (Zipf::new(10, 1.0), Rng::new(5), [0u32; 10]);
        (0..100_000).for_each(|_| drawn[ranks.draw(&mut rng) as usize] += 1);
        let harmonic: f64 = (1..=10).map(|rank| 1.0 / f64::from(rank)).sum();
        for (rank, times) in drawn.iter().enumerate() {
            let expected = 100_000.0 / (rank as f64 + 1.0) / harmonic;
            assert!(
                (f64::from(*times) - expected).abs() < expected * 0.1,
                "rank {rank}: {times} of {expected}"
            );
        }
    }
}
