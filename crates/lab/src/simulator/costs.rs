//! What time things take on a machine: measured on this one, or given for one that a source had.

use clearway_latch::CachePadded;
use clearway_replacement::PolicyKind;
use clearway_traces::Rng;
use clearway_types::{FrameId, PageId, PartitionId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Work between two accesses of a thread, in the mean.
    pub work_ns: f64,
    /// What an access costs beside the policy: an entry in a queue, a mark.
    pub note_ns: f64,
    /// One hit in the policy, everything that it touches in the core's cache.
    pub policy_ns: f64,
    /// What a hit takes longer if what it touches was last touched by another core.
    pub cold_ns: f64,
    /// What it costs to ask for that ahead, outside of the latch.
    pub prefetch_ns: f64,
    /// To acquire and let go of the latch, its line in the core's cache.
    pub latch_ns: f64,
    /// A cache line moves from core to core.
    pub transfer_ns: f64,
    /// How long the memory, which is one for all cores, is busy with an access, beside the work. 0:
    /// it is never waited for.
    pub memory_ns: f64,
    /// What each thread that waits for the latch adds to its acquisition by the next.
    pub crowd_ns: f64,
    /// A thread that was asleep or ready runs on a core.
    pub switch_ns: f64,
    /// How long a thread runs before the system gives its core to one that is ready; infinite where
    /// it never does.
    pub slice_ns: f64,
    /// How long a thread spins for the latch before it sleeps.
    pub spin_ns: f64,
}

/// Cache lines of a hit that are another core's, if it was there last: the frame's own place, and
/// two neighbours'.
const COLD_LINES: f64 = 3.0;
/// Linux's time slice since 6.6 on eight cores and more (`base_slice_ns`).
const SLICE_NS: f64 = 2.8e6;
/// Tries of each measurement, of which the fastest counts: interruptions only ever add, and on a
/// machine that others use most tries have some.
const TRIES: usize = 100;
/// After so long no other try begins: on a machine that others keep busy, one may take seconds.
const LONGEST: Duration = Duration::from_millis(200);

/// Picks one cost.
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
        ("waiter", |costs| &mut costs.crowd_ns),
        ("switch", |costs| &mut costs.switch_ns),
        ("slice", |costs| &mut costs.slice_ns),
        ("spin", |costs| &mut costs.spin_ns),
    ];

    /// For tables of what each cost does: every cost that is not 0 or infinite, halved and doubled,
    /// the others as they are; each with a heading.
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

    /// Measured on this machine; `work_ns` is the caller's to know. With one core there is no other
    /// for a line to come from: then a hundred nanoseconds are taken for it.
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
            crowd_ns: 0.0,
            switch_ns: switch(),
            slice_ns: SLICE_NS,
            spin_ns: 0.0,
        }
    }

    /// For the record.
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
            self.crowd_ns,
            self.switch_ns,
            self.slice_ns,
            self.spin_ns
        )
    }
}

fn fastest_of(mut measure: impl FnMut() -> f64) -> f64 {
    let (began, mut tries, mut fastest) = (Instant::now(), 1, measure());
    while tries < TRIES && began.elapsed() < LONGEST {
        (tries, fastest) = (tries + 1, fastest.min(measure()));
    }
    fastest
}

/// Half of how long a value takes to another core and back.
fn transfer() -> f64 {
    const ROUNDS: u64 = 120;
    /// Until when both threads surely are on cores.
    const WARM: u64 = 20;
    /// Looks at the ball until the other gets the core, if it has none.
    const LOOKS: u32 = 1_000;
    fastest_of(|| {
        let ball = CachePadded::new(AtomicU64::new(0));
        // Relaxed, here and below: nothing is handed over but the number itself.
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

/// A hit of the policy, of frames that stay in the nearest caches.
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

/// The engine's latch, taken and let go of by one thread.
fn latch() -> f64 {
    const TIMES: u32 = 20_000;
    let latch = clearway_latch::Latched::<u64, clearway_latch::ParkLatch>::new(0);
    fastest_of(|| {
        let began = Instant::now();
        (0..TIMES).for_each(|_| *std::hint::black_box(&latch).lock() += 1);
        began.elapsed().as_nanos() as f64 / f64::from(TIMES)
    })
}

/// Half of how long it takes to wake a sleeping thread and be woken by it.
fn switch() -> f64 {
    const ROUNDS: u32 = 200;
    fastest_of(|| {
        let (there, back) = (AtomicBool::new(false), AtomicBool::new(false));
        let main = thread::current();
        // Acquire and Release pair with each other: a sign is taken once.
        let take = |sign: &AtomicBool| {
            while !sign.swap(false, Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(100));
            }
        };
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
    fn what_is_measured_is_some_time() {
        let costs = Costs::here(100.0, PolicyKind::Lru);
        for ns in [costs.policy_ns, costs.latch_ns, costs.transfer_ns, costs.switch_ns] {
            assert!(ns > 0.1 && ns.is_finite(), "{costs:?}");
        }
    }
}
