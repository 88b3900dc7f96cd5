//! The engine's latch: spins for a bounded, adaptive time, then sleeps. It is handed over only to a
//! thread that has waited too long.
//!
//! | HELD | PARKED | STARVING | GRANTED | state |
//! |------|--------|----------|---------|-------|
//! | 0    | 0      | 0        | 0       | free |
//! | 1    | 0      | 0        | 0       | held; no thread sleeps, or a woken sleeper is on its way |
//! | 1    | 1      | 0        | 0       | held; threads may sleep |
//! | 1    | any    | 1        | 0       | held, and a waiter, *the starving one*, has requested a handover |
//! | 1    | any    | 1        | 1       | released, but only for the starving one |
//!
//! A release in the third state frees the word and wakes one sleeper, which spins and competes with
//! new arrivals. A running thread can take a free latch at once: that preserves throughput when
//! there are more threads than cores. A sleeper that has waited [`STARVATION`] when it is woken
//! requests the latch, and is the starving one until it has it. It requests the latch while it
//! runs, so the latch usually passes between two running threads. A latch handed to a thread that
//! still has to wake up would be idle in the meantime.
//!
//! Invariants
//! 1. If a thread sleeps, PARKED is set, or a thread that was woken and has not slept again since
//!    will set it or wake another.
//! 2. There is at most one starving one. While STARVING is set it has not acquired the latch. It
//!    sleeps separately from the others, and only it takes a grant.
//! 3. The starving one gets the latch at the next release, whichever other threads arrive.
//!
//! Each read of a held latch takes the word's line from the holder, which needs it to release the
//! latch. So a waiter spaces its reads:
//! - Its failed attempt to acquire the latch is the first read. It reads again after [`SHORT_NS`],
//!   when a short section is over.
//! - It then does not disturb a holder that reacquires repeatedly, for [`PEACE_NS`].
//! - From then on it reads every [`INSIST_NS`], since longer pauses would only make the longest
//!   waits longer.
//!
//! A new waiter that finds the latch held a third time, with others asleep, does not read on, but
//! joins them: where as many threads want a latch as there are cores, they would all read the line.
//! So a few threads pass the latch around, and the others sleep.
//!
//! [`spin_limit`] pauses take as long as giving the core to another thread and getting it back,
//! within bounds ([`crate::calibrate`]): at least one pause of each of the three kinds, and less
//! than a section that should count as long.
//!
//! If most waits end within these, sections are short, and a waiter spins for as long once more. If
//! it still does not have the latch, the holder has lost its core, and the waiter sleeps: yielding
//! would queue it behind every runnable thread. If hardly any wait ends within these, sections are
//! long, and threads that spin for them keep the cores from woken threads. There a waiter yields up
//! to [`YIELDS`] times, with a read after each, before it sleeps. `late` distinguishes the two
//! cases; it is a heuristic that no invariant depends on.
//!
//! Source: Drepper, "Futexes Are Tricky", 2011 (mutex 2); Go's `sync.Mutex` (starvation);
//! parking_lot (yields before sleeping); Dice, "Malthusian Locks", EuroSys 2017 (few threads pass a
//! lock around); Karlin and others, "Competitive Randomized Algorithms for
//! Nonuniform Problems", SODA 1990 (how long to spin); Anderson, "The Performance of Spin Lock
//! Alternatives", TPDS 1990 (what a read costs the holder).

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

/// Nanoseconds from the first read of a held latch to the second, from there to the third, and
/// between all later ones.
const SHORT_NS: f64 = 100.0;
const PEACE_NS: f64 = 800.0;
const INSIST_NS: f64 = 25.0;
/// The duration of one pause unless [`set_pause`] is called.
const DEFAULT_PAUSE_NS: f64 = 25.0;

/// Spins before a thread yields or sleeps, unless [`set_spin_limit`] is called. None in a model,
/// where they would hide the sleeping.
pub const DEFAULT_SPIN_LIMIT: u32 = if cfg!(loom) { 0 } else { 44 };

/// Reads after which a new waiter joins others that sleep.
const ALONE: usize = 2;

/// How many times a thread yields before it sleeps, where sections are long.
pub(crate) const YIELDS: u32 = 20;

// Plain std, like the next: a setting, not communication that a model has to see.
static SPIN_LIMIT: std::sync::atomic::AtomicU32 =
    std::sync::atomic::AtomicU32::new(DEFAULT_SPIN_LIMIT);

/// Pauses before the second read, the third, and each later one.
static PAUSES: [std::sync::atomic::AtomicU32; 3] = [
    std::sync::atomic::AtomicU32::new(pauses(SHORT_NS, DEFAULT_PAUSE_NS)),
    std::sync::atomic::AtomicU32::new(pauses(PEACE_NS, DEFAULT_PAUSE_NS)),
    std::sync::atomic::AtomicU32::new(pauses(INSIST_NS, DEFAULT_PAUSE_NS)),
];

/// Returns how many pauses take `ns` nanoseconds, at least one. No pause is shorter than a cycle,
/// so they are at most some thousands.
const fn pauses(ns: f64, pause_ns: f64) -> u32 {
    let rounded = (ns / pause_ns.max(0.2) + 0.5) as u32;
    if rounded == 0 { 1 } else { rounded }
}

/// Returns how many pauses of `pause_ns` nanoseconds there are from the first read of a held latch
/// to the fourth, the first that follows an [`INSIST_NS`].
#[cfg(not(any(loom, shuttle)))]
pub(crate) const fn pauses_of_three_reads(pause_ns: f64) -> u32 {
    pauses(SHORT_NS, pause_ns) + pauses(PEACE_NS, pause_ns) + pauses(INSIST_NS, pause_ns)
}

/// Sets, for the whole process, how many nanoseconds one pause of this processor takes. That
/// differs tenfold between chips of one architecture.
pub fn set_pause(pause_ns: f64) {
    for (step, ns) in PAUSES.iter().zip([SHORT_NS, PEACE_NS, INSIST_NS]) {
        // Relaxed, as the load: a setting.
        step.store(pauses(ns, pause_ns), std::sync::atomic::Ordering::Relaxed);
    }
}

/// Sets, for the whole process, how many times a thread pauses at a held [`ParkLatch`] before it
/// yields or sleeps. The number is doubled where sections are short. With 0 a thread sleeps at
/// once.
pub fn set_spin_limit(spins: u32) {
    // Relaxed, as the load: a setting.
    SPIN_LIMIT.store(spins, std::sync::atomic::Ordering::Relaxed);
}

/// Returns how many times a thread pauses at a held [`ParkLatch`] before it yields or sleeps.
pub fn spin_limit() -> u32 {
    SPIN_LIMIT.load(std::sync::atomic::Ordering::Relaxed)
}

/// The number of waits from which the length of sections is estimated.
const WAITS: u32 = 32;
/// The weight of a wait that did not end within the limit.
const LATE: u32 = 1 << 10;
/// The sum of late waits from which sections count as long. Of sections that take no time, a few
/// per cent are late, because their holder reacquires repeatedly. Of those that take twice the
/// limit, every other one is.
const MANY: u32 = 10 * LATE;

/// Returns the value of `late` after one more wait.
fn after_wait(late: u32, is_late: bool) -> u32 {
    late - late / WAITS + if is_late { LATE } else { 0 }
}

/// The engine's latch: 8 bytes.
#[derive(Debug)]
pub struct ParkLatch {
    state: Futex,
    /// How many of the last waits did not end within the spin limit: [`LATE`] for each, a moving
    /// sum over [`WAITS`].
    late: AtomicU32,
}

/// The kind of waiter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiter {
    /// A thread that has not slept.
    New,
    /// A thread that has slept.
    Woken,
    /// The starving one.
    Starving,
}

impl Waiter {
    /// Returns true if this waiter may take the latch in this state.
    fn may_take(self, state: u32) -> bool {
        state & HELD == 0 || (self == Self::Starving && state & GRANTED != 0)
    }

    /// Returns the state after it takes the latch. PARKED: there may be other sleepers, and the
    /// wake-up that they count on may have been this one's (invariant 1).
    fn taken(self) -> u32 {
        if self == Self::New { HELD } else { HELD | PARKED }
    }
}

/// What a waiter does before each read of the word.
trait Look {
    /// The number of pauses that it takes the place of.
    const PAUSES: u32;

    fn look(&mut self);
}

/// Only reads.
struct Read;

impl Look for Read {
    const PAUSES: u32 = 0;

    fn look(&mut self) {}
}

/// Notes the time before it reads. That takes about as long as a pause.
#[cfg(not(any(loom, shuttle)))]
struct Timed(Instant);

#[cfg(not(any(loom, shuttle)))]
impl Look for Timed {
    const PAUSES: u32 = 1;

    fn look(&mut self) {
        self.0 = Instant::now();
    }
}

impl ParkLatch {
    /// Acquires the latch like `lock`, which has just failed, and returns when the wait ended: the
    /// time of the last read of the word. A clock that is read after the acquisition would lengthen
    /// the section, for which others wait.
    #[cfg(not(any(loom, shuttle)))]
    #[cold]
    pub(crate) fn lock_timed(&self) -> Instant {
        let mut timed = Timed(Instant::now());
        self.lock_slowly(&mut timed);
        timed.0
    }

    #[cold]
    fn lock_slowly<L: Look>(&self, look: &mut L) {
        if !self.spin(Waiter::New, look) {
            self.sleep(look);
        }
    }

    /// Returns true if the latch was acquired without sleeping.
    fn spin<L: Look>(&self, waiter: Waiter, look: &mut L) -> bool {
        let cheap = spin_limit();
        let late = self.late.load(Ordering::Relaxed);
        let (limit, mut yields) =
            if late >= MANY { (cheap, YIELDS) } else { (cheap.saturating_mul(2), 0) };
        let (mut spins, mut looks) = (0, 0);
        let mut state = HELD;
        let had = loop {
            // A new waiter has just found the latch held: one more read would only take the line
            // from the holder.
            if looks > 0 || waiter != Waiter::New || limit == 0 {
                look.look();
                state = self.state.word.load(Ordering::Relaxed);
                if waiter.may_take(state) {
                    if self.exchange(state, waiter.taken()) {
                        break true;
                    }
                    continue;
                }
            }
            let joins = waiter == Waiter::New && looks >= ALONE && state & PARKED != 0;
            if spins < limit && !joins {
                let step =
                    PAUSES[looks.min(PAUSES.len() - 1)].load(std::sync::atomic::Ordering::Relaxed);
                let step = step.min(limit - spins);
                (L::PAUSES..step).for_each(|_| hint::spin_loop());
                spins += step;
                looks += 1;
            } else if yields > 0 {
                yields -= 1;
                thread::yield_now();
            } else {
                break false;
            }
        };
        // Relaxed: a heuristic; a lost update does no harm. A thread that must sleep at once does
        // not yield either.
        self.late.store(after_wait(late, spins >= cheap && cheap > 0), Ordering::Relaxed);
        had
    }

    fn sleep<L: Look>(&self, look: &mut L) {
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
            // Relaxed: it tells the holder to wake a thread; it hands nothing over.
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
                if patience.is_over() && self.request_handover() {
                    waiter = Waiter::Starving;
                }
            }
            if self.spin(waiter, look) {
                return;
            }
        }
    }

    /// Requests a handover. Returns false if there is no holder, or another thread has already
    /// requested it.
    fn request_handover(&self) -> bool {
        let mut state = self.state.word.load(Ordering::Relaxed);
        while state & (HELD | STARVING) == HELD {
            // Relaxed: it tells the holder what to do; it hands nothing over.
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
            // Release: pairs with the Acquire in `exchange`; the next holder sees this one's
            // changes.
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

/// How long a waiter waits before it requests a handover.
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

/// In a model no time passes: a waiter requests a handover at once.
#[cfg(loom)]
impl Patience {
    fn begin() -> Self {
        Self {}
    }

    fn is_over(&self) -> bool {
        true
    }
}

// SAFETY: only one thread's exchange changes HELD from 0 to 1. In state GRANTED it stays set, and
// only the starving one, of which there is one, clears GRANTED. Both exchanges acquire what the
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
            self.lock_slowly(&mut Read);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        choice::try_acquire(&self.state.word)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the Acquire of the next holder.
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
    fn pauses_between_reads_take_as_long_on_every_chip() {
        let steps = |pause_ns| [SHORT_NS, PEACE_NS, INSIST_NS].map(|ns| pauses(ns, pause_ns));
        assert_eq!(steps(DEFAULT_PAUSE_NS), [4, 32, 1]);
        assert_eq!(steps(2.5), [40, 320, 10]);
        assert_eq!(steps(200.0), [1, 4, 1], "at least one pause");
        assert_eq!(steps(0.0), steps(0.2), "the number is bounded");
    }

    /// Counts the reads of the word.
    struct Counted(usize);

    impl Look for Counted {
        const PAUSES: u32 = 0;

        fn look(&mut self) {
            self.0 += 1;
        }
    }

    /// Returns the reads of a waiter that does not get the latch, after its failed attempt.
    fn reads(state: u32, waiter: Waiter) -> usize {
        let latch = ParkLatch::new();
        latch.state.word.store(state, Ordering::Relaxed);
        let mut counted = Counted(0);
        assert!(!latch.spin(waiter, &mut counted), "the latch is held");
        counted.0
    }

    #[test]
    fn new_waiter_joins_those_that_sleep_after_two_more_reads() {
        // Other tests may set the limits meanwhile, but not below three reads' worth.
        assert!(reads(HELD, Waiter::New) > ALONE);
        assert_eq!(reads(HELD | PARKED, Waiter::New), ALONE);
        assert!(reads(HELD | PARKED, Waiter::Woken) > ALONE, "it has slept already");
    }

    #[test]
    fn sections_are_long_where_a_third_of_the_waits_is_late() {
        let after =
            |one_in: u32| (0..1_000).fold(0, |late, wait| after_wait(late, wait % one_in == 0));
        assert!(after(1) >= MANY && after(2) >= MANY);
        assert!(after(5) < MANY && after(20) < MANY);
        assert!(
            (0..1_000).fold(after(1), |late, _| after_wait(late, false)) < MANY,
            "late waits are forgotten"
        );
    }
}
