//! The engine's latch: spins for a bounded time that adapts, then sleeps; handed over only to who
//! has waited too long.
//!
//! | HELD | PARKED | STARVING | GRANTED | state |
//! |------|--------|----------|---------|-------|
//! | 0    | 0      | 0        | 0       | free |
//! | 1    | 0      | 0        | 0       | held, nobody sleeps, or a woken sleeper is on its way |
//! | 1    | 1      | 0        | 0       | held, somebody may sleep |
//! | 1    | any    | 1        | 0       | held, and a waiter, *the starving one*, has asked that it be handed over |
//! | 1    | any    | 1        | 1       | let go, but only for the starving one |
//!
//! Who lets go in the third state frees the word and wakes one sleeper, which spins and competes
//! with whoever comes along: that a running thread takes a free latch at once is what keeps
//! throughput when there are more threads than cores. A sleeper that has waited [`STARVATION`] when
//! it is woken asks for the latch, and is the starving one until it has it. It asks while it runs,
//! so that most often the latch passes between two running threads; a latch handed to a thread that
//! still has to wake up would stand idle meanwhile.
//!
//! Invariants
//! 1. If somebody sleeps, PARKED is set, or a thread that was woken and has not slept again since
//!    will set it or wake another.
//! 2. There is at most one starving one. While STARVING is set it has not acquired; it sleeps apart
//!    from the others, and only it takes a grant.
//! 3. The starving one gets the latch at the next release, whoever else comes.
//!
//! Each look at a held latch takes the word's line from the holder, who needs it to let go. So a
//! waiter looks again after [`SHORT_NS`], when a short section is over; then leaves a holder that
//! comes again and again in peace for [`PEACE_NS`]; and then insists, with a look every
//! [`INSIST_NS`], as from then on pauses only make the longest waits longer. [`spin_limit`] pauses
//! take as long as to give the core to another thread and have it back ([`crate::calibrate`]).
//!
//! Where most waits are over within these, sections are short, and a waiter spins for as long once
//! more; whoever is not served by then has a holder that lost its core, and sleeps: to yield to a
//! crowd of ready threads, of which none waits, is to be behind all of them. Where hardly a wait is
//! over, sections are long, and threads that spin for them keep the cores from those who were
//! woken; there a waiter yields up to [`YIELDS`] times, with a look after each, before it sleeps.
//! `late` tells the two apart; it is a guess that nothing depends on.
//!
//! Source: Drepper, "Futexes Are Tricky", 2011 (mutex 2); Go's `sync.Mutex` (starvation);
//! parking_lot (yields before sleeping); Karlin and others, "Competitive Randomized Algorithms for
//! Nonuniform Problems", SODA 1990 (how long to spin); Anderson, "The Performance of Spin Lock
//! Alternatives", TPDS 1990 (what a look costs the holder).

use crate::choice;
use crate::futex::Futex;
use crate::raw::RawLatch;
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;
use clearway_sync::thread;
use clearway_sync::time::Duration;
#[cfg(not(loom))]
use clearway_sync::time::Instant;

const HELD: u32 = 1;
const PARKED: u32 = 2;
const STARVING: u32 = 4;
const GRANTED: u32 = 8;

/// A thread that has slept and has waited longer than this when it is woken is handed the latch.
pub const STARVATION: Duration = Duration::from_micros(500);

/// Nanoseconds from the first look at a held latch to the second, from there to the third, and
/// between all later ones.
const SHORT_NS: f64 = 100.0;
const PEACE_NS: f64 = 800.0;
const INSIST_NS: f64 = 25.0;
/// What one pause takes unless [`set_pause`] says otherwise.
const DEFAULT_PAUSE_NS: f64 = 25.0;

/// Spins before a thread yields or sleeps, unless [`set_spin_limit`] says otherwise. In a model
/// none: they would hide the sleeping.
pub const DEFAULT_SPIN_LIMIT: u32 = if cfg!(loom) { 0 } else { 44 };

/// How often a thread yields, where sections are long, before it sleeps.
pub(crate) const YIELDS: u32 = 20;

// Plain std, as the next: a setting, no communication that a model has to see.
static SPIN_LIMIT: std::sync::atomic::AtomicU32 =
    std::sync::atomic::AtomicU32::new(DEFAULT_SPIN_LIMIT);

/// Pauses before the second look, the third, and each later one.
static PAUSES: [std::sync::atomic::AtomicU32; 3] = [
    std::sync::atomic::AtomicU32::new(pauses(SHORT_NS, DEFAULT_PAUSE_NS)),
    std::sync::atomic::AtomicU32::new(pauses(PEACE_NS, DEFAULT_PAUSE_NS)),
    std::sync::atomic::AtomicU32::new(pauses(INSIST_NS, DEFAULT_PAUSE_NS)),
];

/// How many pauses take `ns` nanoseconds, at least one. None is shorter than a cycle, so they are
/// some thousands at most.
const fn pauses(ns: f64, pause_ns: f64) -> u32 {
    let rounded = (ns / pause_ns.max(0.2) + 0.5) as u32;
    if rounded == 0 { 1 } else { rounded }
}

/// Tells, for the whole process, how many nanoseconds one pause of this processor takes: that
/// differs tenfold between chips of one architecture.
pub fn set_pause(pause_ns: f64) {
    for (step, ns) in PAUSES.iter().zip([SHORT_NS, PEACE_NS, INSIST_NS]) {
        // Relaxed, as the load: a setting.
        step.store(pauses(ns, pause_ns), std::sync::atomic::Ordering::Relaxed);
    }
}

/// Sets, for the whole process, how often a thread pauses at a held [`ParkLatch`] before it yields
/// or sleeps; where sections are short twice as often. With 0 it sleeps at once.
pub fn set_spin_limit(spins: u32) {
    // Relaxed, as the load: a setting.
    SPIN_LIMIT.store(spins, std::sync::atomic::Ordering::Relaxed);
}

/// How often a thread pauses at a held [`ParkLatch`] before it yields or sleeps.
pub fn spin_limit() -> u32 {
    SPIN_LIMIT.load(std::sync::atomic::Ordering::Relaxed)
}

/// Over so many waits is what the length of sections is told by.
const WAITS: u32 = 32;
/// What a wait counts that was not over within the limit.
const LATE: u32 = 1 << 10;
/// From so many late ones on sections are long. Of sections that take no time some in a hundred are
/// late, as their holder comes again and again; of those that take twice the limit every other one.
const MANY: u32 = 10 * LATE;

/// What `late` becomes by one wait.
fn after_wait(late: u32, is_late: bool) -> u32 {
    late - late / WAITS + if is_late { LATE } else { 0 }
}

/// The engine's latch: 8 bytes.
#[derive(Debug)]
pub struct ParkLatch {
    state: Futex,
    /// How many of the last waits were not over within the limit of spins: [`LATE`] for each, a
    /// moving sum over [`WAITS`].
    late: AtomicU32,
}

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiter {
    /// Somebody who has not slept.
    New,
    /// Somebody who has.
    Woken,
    /// The starving one.
    Starving,
}

impl Waiter {
    /// Whether this waiter may take the latch in this state.
    fn may_take(self, state: u32) -> bool {
        state & HELD == 0 || (self == Self::Starving && state & GRANTED != 0)
    }

    /// The state that it leaves then. PARKED: there may be other sleepers, and the wake-up that
    /// they count on may have been this one's (invariant 1).
    fn taken(self) -> u32 {
        if self == Self::New { HELD } else { HELD | PARKED }
    }
}

impl ParkLatch {
    #[cold]
    fn lock_slowly(&self) {
        if !self.spin(Waiter::New) {
            self.sleep();
        }
    }

    /// Whether the latch was had without sleeping.
    fn spin(&self, waiter: Waiter) -> bool {
        let cheap = spin_limit();
        let late = self.late.load(Ordering::Relaxed);
        let (limit, mut yields) =
            if late >= MANY { (cheap, YIELDS) } else { (cheap.saturating_mul(2), 0) };
        let (mut spins, mut looks) = (0, 0);
        let had = loop {
            let state = self.state.word.load(Ordering::Relaxed);
            if waiter.may_take(state) {
                if self.exchange(state, waiter.taken()) {
                    break true;
                }
            } else if spins < limit {
                let step =
                    PAUSES[looks.min(PAUSES.len() - 1)].load(std::sync::atomic::Ordering::Relaxed);
                let step = step.min(limit - spins);
                (0..step).for_each(|_| hint::spin_loop());
                spins += step;
                looks += 1;
            } else if yields > 0 {
                yields -= 1;
                thread::yield_now();
            } else {
                break false;
            }
        };
        // Relaxed: a guess; a lost update does no harm. Who is to sleep at once does not yield
        // either.
        self.late.store(after_wait(late, spins >= cheap && cheap > 0), Ordering::Relaxed);
        had
    }

    fn sleep(&self) {
        let patience = Patience::begin();
        let mut waiter = Waiter::Woken;
        loop {
            let state = self.state.word.load(Ordering::Relaxed);
            if waiter.may_take(state) {
                if self.exchange(state, waiter.taken()) {
                    return;
                }
                continue;
            }
            let asleep = state | PARKED;
            // Relaxed: it tells the holder to wake somebody; nothing is handed over by it.
            if state != asleep
                && self
                    .state
                    .word
                    .compare_exchange_weak(state, asleep, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            if waiter == Waiter::Starving {
                self.state.wait_apart(asleep);
            } else {
                self.state.wait(asleep);
                if patience.is_over() && self.ask() {
                    waiter = Waiter::Starving;
                }
            }
            if self.spin(waiter) {
                return;
            }
        }
    }

    /// Asks that the latch be handed over; false if there is nobody to ask, or another has asked.
    fn ask(&self) -> bool {
        let mut state = self.state.word.load(Ordering::Relaxed);
        while state & (HELD | STARVING) == HELD {
            // Relaxed: it tells the holder what to do; nothing is handed over by it.
            match self.state.word.compare_exchange_weak(
                state,
                state | STARVING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Acquires by changing the word.
    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the Release of the unlock that left `from`. Relaxed on failure:
        // nothing was acquired.
        self.state
            .word
            .compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn unlock_slowly(&self) {
        let mut state = self.state.word.load(Ordering::Relaxed);
        loop {
            let grants = state & STARVING != 0;
            let to = if grants { state | GRANTED } else { 0 };
            // Release: the next holder sees what this one did.
            match self.state.word.compare_exchange_weak(
                state,
                to,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) if grants => return self.state.wake_apart(),
                Ok(_) => return self.state.wake_one(),
                Err(now) => state = now,
            }
        }
    }
}

/// How long a waiter bears it.
struct Patience {
    #[cfg(not(loom))]
    began: Instant,
}

#[cfg(not(loom))]
impl Patience {
    fn begin() -> Self {
        Self { began: Instant::now() }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= STARVATION
    }
}

/// In a model no time passes: a waiter has none.
#[cfg(loom)]
impl Patience {
    fn begin() -> Self {
        Self {}
    }

    fn is_over(&self) -> bool {
        true
    }
}

// SAFETY: HELD goes from 0 to 1 by an exchange of one thread only; in state GRANTED it stays set,
// and only the starving one, of which there is one, clears GRANTED. Both exchanges acquire what the
// holder's released.
unsafe impl RawLatch for ParkLatch {
    const NAME: &'static str = "park";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { state: Futex::new(0), late: AtomicU32::new(0) };

    fn new() -> Self {
        Self { state: Futex::new(0), late: AtomicU32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if !choice::try_acquire(&self.state.word) {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        choice::try_acquire(&self.state.word)
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.state.word.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed).is_err()
        {
            self.unlock_slowly();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_long_on_every_chip() {
        let steps = |pause_ns| [SHORT_NS, PEACE_NS, INSIST_NS].map(|ns| pauses(ns, pause_ns));
        assert_eq!(steps(DEFAULT_PAUSE_NS), [4, 32, 1]);
        assert_eq!(steps(2.5), [40, 320, 10]);
        assert_eq!(steps(200.0), [1, 4, 1], "never none");
        assert_eq!(steps(0.0), steps(0.2), "never without end");
    }

    #[test]
    fn sections_are_long_where_a_third_of_the_waits_is_late() {
        let after =
            |one_in: u32| (0..1_000).fold(0, |late, wait| after_wait(late, wait % one_in == 0));
        assert!(after(1) >= MANY && after(2) >= MANY);
        assert!(after(5) < MANY && after(20) < MANY);
        assert!(
            (0..1_000).fold(after(1), |late, _| after_wait(late, false)) < MANY,
            "it is forgotten"
        );
    }
}
