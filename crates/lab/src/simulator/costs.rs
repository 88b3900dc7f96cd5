//! The costs of a machine's operations: measured on this machine, or given for a source's machine.

use clearway_latch::CachePadded;
use clearway_replacement::PolicyKind;
use clearway_testkit::Rng;
use clearway_types::{FrameId, PageId, PartitionId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Mean work between two accesses of a thread.
    pub work_ns: f64,
    /// Cost of an access outside the policy: a queue entry or a mark.
    pub note_ns: f64,
    /// A hit in the policy with all its data in the core's cache.
    pub policy_ns: f64,
    /// Additional time of a hit if another core touched its data last.
    pub cold_ns: f64,
    /// Cost of prefetching that data, outside the latch.
    pub prefetch_ns: f64,
    /// To acquire and release the latch, with its line in the core's cache.
    pub latch_ns: f64,
    /// To move a cache line between cores.
    pub transfer_ns: f64,
    /// Time that the memory, shared by all cores, is busy with an access, in parallel to the work.
    /// 0: the memory is never a bottleneck.
    pub memory_ns: f64,
    /// Time that each waiting thread adds to the next acquisition of the latch.
    pub waiter_ns: f64,
    /// To switch a core to a sleeping or runnable thread.
    pub switch_ns: f64,
    /// Time slice of a thread while others are runnable; infinite without preemption.
    pub slice_ns: f64,
    /// Time that a thread spins for the latch before it sleeps.
    pub spin_ns: f64,
}

/// Cache lines of a hit that another core may own: the frame's own entry and two neighbours'.
const COLD_LINES: f64 = 3.0;
/// Linux's time slice since 6.6 with eight or more cores (`base_slice_ns`).
const SLICE_NS: f64 = 2.8e6;
/// Repetitions of each measurement. The fastest counts, since interruptions only add time, and most
/// repetitions on a shared machine are interrupted.
const REPETITIONS: usize = 100;
/// After this time no further repetition begins: on a busy machine one may take seconds.
const MAX_TIME: Duration = Duration::from_millis(200);

/// Selects one cost.
type CostField = fn(&mut Costs) -> &mut f64;

impl Costs {
    /// Every cost, by its name in [`Costs::described`].
    const FIELDS: [(&'static str, CostField); 12] = [
        ("work", |costs| &mut costs.work_ns),
        ("note", |costs| &mut costs.note_ns),
        ("hit", |costs| &mut costs.policy_ns),
        ("cold", |costs| &mut costs.cold_ns),
        ("prefetch", |costs| &mut costs.prefetch_ns),
        ("latch", |costs| &mut costs.latch_ns),
        ("line", |costs| &mut costs.transfer_ns),
        ("memory", |costs| &mut costs.memory_ns),
        ("waiter", |costs| &mut costs.waiter_ns),
        ("switch", |costs| &mut costs.switch_ns),
        ("slice", |costs| &mut costs.slice_ns),
        ("spin", |costs| &mut costs.spin_ns),
    ];

    /// Returns variants for sensitivity tables, each with a heading: every cost that is not 0 or
    /// infinite, halved and doubled, with the others unchanged.
    pub fn varied(self) -> impl Iterator<Item = (String, Self)> {
        Self::FIELDS.into_iter().flat_map(move |(name, field)| {
            let given = *field(&mut { self });
            let factors: &[f64] =
                if given == 0.0 || !given.is_finite() { &[] } else { &[0.5, 2.0] };
            factors.iter().map(move |factor| {
                let mut costs = self;
                *field(&mut costs) *= factor;
                (format!("{name} x {factor}"), costs)
            })
        })
    }

    /// Measures the costs of this machine; `work_ns` comes from the caller. With one core, a line
    /// transfer is taken as 100 ns.
    pub fn here(work_ns: f64, policy: PolicyKind) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let transfer_ns = if cores > 1 { transfer() } else { 100.0 };
        Self {
            work_ns,
            note_ns: 2.0,
            policy_ns: hit(policy),
            cold_ns: COLD_LINES * transfer_ns,
            prefetch_ns: 5.0,
            latch_ns: latch(),
            transfer_ns,
            memory_ns: 0.0,
            waiter_ns: 0.0,
            switch_ns: switch(),
            slice_ns: SLICE_NS,
            spin_ns: 0.0,
        }
    }

    /// Describes the costs for the record.
    pub fn described(&self) -> String {
        format!(
            "work {:.0}, note {:.1}, hit {:.1}, cold {:.0}, prefetch {:.1}, latch {:.1}, line {:.0}, memory {:.0}, waiter {:.1}, switch {:.0}, slice {:.0}, spin {:.0} ns",
            self.work_ns,
            self.note_ns,
            self.policy_ns,
            self.cold_ns,
            self.prefetch_ns,
            self.latch_ns,
            self.transfer_ns,
            self.memory_ns,
            self.waiter_ns,
            self.switch_ns,
            self.slice_ns,
            self.spin_ns
        )
    }
}

fn fastest_of(mut measure: impl FnMut() -> f64) -> f64 {
    let (began, mut tries, mut fastest) = (Instant::now(), 1, measure());
    while tries < REPETITIONS && began.elapsed() < MAX_TIME {
        (tries, fastest) = (tries + 1, fastest.min(measure()));
    }
    fastest
}

/// Measures half of the round trip of a value to another core.
fn transfer() -> f64 {
    const ROUNDS: u64 = 120;
    /// Rounds until both threads are certainly on cores.
    const WARM: u64 = 20;
    /// Polls before yielding, in case the other thread has no core.
    const LOOKS: u32 = 1_000;
    fastest_of(|| {
        let ball = CachePadded::new(AtomicU64::new(0));
        // Relaxed, here and below: only the number itself is shared.
        let play = |own: u64| {
            let mut began = Instant::now();
            for round in 0..ROUNDS {
                if round == WARM {
                    began = Instant::now();
                }
                let mut looks = 0_u32;
                while ball.load(Ordering::Relaxed) != 2 * round + own {
                    looks += 1;
                    if looks.is_multiple_of(LOOKS) {
                        thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
                ball.store(2 * round + own + 1, Ordering::Relaxed);
            }
            began.elapsed().as_nanos() as f64 / (2 * (ROUNDS - WARM)) as f64
        };
        thread::scope(|scope| {
            scope.spawn(|| play(1));
            play(0)
        })
    })
}

/// Measures a hit in the policy, with frames that stay in the nearest caches.
fn hit(kind: PolicyKind) -> f64 {
    const FRAMES: u32 = 512;
    const HITS: u32 = 20_000;
    let mut policy = kind.build(FRAMES);
    (0..FRAMES).for_each(|f| policy.miss(FrameId(f), PageId::new(PartitionId(0), f)));
    let mut rng = Rng::new(1);
    let hits: Vec<FrameId> = (0..HITS).map(|_| FrameId(rng.below(FRAMES.into()) as u32)).collect();
    fastest_of(|| {
        let began = Instant::now();
        hits.iter().for_each(|frame| policy.hit(*frame));
        began.elapsed().as_nanos() as f64 / f64::from(HITS)
    })
}

/// Measures an uncontended acquire and release of the engine's latch.
fn latch() -> f64 {
    const TIMES: u32 = 20_000;
    let latch = clearway_latch::Latched::<u64, clearway_latch::ParkLatch>::new(0);
    fastest_of(|| {
        let began = Instant::now();
        (0..TIMES).for_each(|_| *std::hint::black_box(&latch).lock() += 1);
        began.elapsed().as_nanos() as f64 / f64::from(TIMES)
    })
}

/// Measures half of the round trip of waking a sleeping thread and being woken by it.
fn switch() -> f64 {
    const ROUNDS: u32 = 200;
    fastest_of(|| {
        let (there, back) = (AtomicBool::new(false), AtomicBool::new(false));
        let main = thread::current();
        // Acquire and Release pair with each other: a flag is taken once.
        let take = |sign: &AtomicBool| {
            while !sign.swap(false, Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(100));
            }
        };
        // Release, here and below: pairs with the Acquire in `take`.
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                for _ in 0..ROUNDS {
                    take(&there);
                    back.store(true, Ordering::Release);
                    main.unpark();
                }
            });
            let began = Instant::now();
            for _ in 0..ROUNDS {
                // Release: pairs with the Acquire in `take`.
                there.store(true, Ordering::Release);
                other.thread().unpark();
                take(&back);
            }
            began.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_costs_are_positive_and_finite() {
        let costs = Costs::here(100.0, PolicyKind::Lru);
        for ns in [costs.policy_ns, costs.latch_ns, costs.transfer_ns, costs.switch_ns] {
            assert!(ns > 0.1 && ns.is_finite(), "{costs:?}");
        }
    }
}
