//! Every latch under more threads than cores: nothing is lost, nobody waits for ever.

use clearway_latch::acquire::{Acquisition, Compare, Swap, Tested};
use clearway_latch::{
    Choice, ElidedLatch, Latched, McsLatch, ParkLatch, RawLatch, SLockCas, SLockTas, SpinLatch, TicketLatch, choose,
    chosen,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };

/// Each thread adds one, `times`, in two steps that another thread in between would spoil.
fn crowd<L: RawLatch>(times: u64) {
    let shared = Latched::<_, L>::new((0_u64, 0_u64));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for i in 0..times {
                    let mut pair = match i % 3 {
                        0 => shared.try_lock().unwrap_or_else(|| shared.lock()),
                        _ => shared.lock(),
                    };
                    assert_eq!(pair.0, pair.1, "{}: somebody else is inside", L::NAME);
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(shared.into_inner(), (THREADS * times, THREADS * times), "{}", L::NAME);
}

/// Where every hand-over may take a time slice, fewer of them.
const IN_LINE: u64 = if cfg!(miri) { 5 } else { 40 };
const FREE_FOR_ALL: u64 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn spinning_latches() {
    crowd::<SpinLatch<Swap>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Tested<Swap>>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Compare>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Tested<Compare>>>(FREE_FOR_ALL);
    crowd::<ElidedLatch>(FREE_FOR_ALL);
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[test]
fn acquisitions_of_this_architecture() {
    use clearway_latch::acquire::{CompareWfe, LseCompare, LseSwap};
    crowd::<SpinLatch<CompareWfe>>(FREE_FOR_ALL);
    if LseSwap::available() {
        crowd::<SpinLatch<LseSwap>>(FREE_FOR_ALL);
        crowd::<SpinLatch<Tested<LseSwap>>>(FREE_FOR_ALL);
        crowd::<SpinLatch<LseCompare>>(FREE_FOR_ALL);
        crowd::<SpinLatch<Tested<LseCompare>>>(FREE_FOR_ALL);
    } else {
        println!("SKIPPED: this processor has no LSE");
    }
}

#[test]
fn s_locks() {
    crowd::<SLockTas>(FREE_FOR_ALL);
    crowd::<SLockCas>(FREE_FOR_ALL);
}

#[test]
fn latches_with_a_line() {
    crowd::<TicketLatch>(IN_LINE);
    crowd::<McsLatch>(IN_LINE);
}

#[test]
fn the_engines_latch_by_each_of_its_instructions() {
    let before = chosen();
    for choice in Choice::all() {
        choose(choice);
        crowd::<ParkLatch>(FREE_FOR_ALL);
    }
    choose(before);
}

/// By a transaction, too, on a processor that has them.
fn is_held_once<L: RawLatch>() {
    let latch = Latched::<_, L>::new(0);
    let mut held = latch.lock();
    *held += 1;
    assert!(latch.try_lock().is_none(), "{}: two exclusive references", L::NAME);
    drop(held);
    assert_eq!(latch.into_inner(), 1, "{}", L::NAME);
}

#[test]
fn a_holder_cannot_take_its_latch_again() {
    is_held_once::<SpinLatch<Swap>>();
    is_held_once::<SpinLatch<Tested<Swap>>>();
    is_held_once::<SpinLatch<Compare>>();
    is_held_once::<SpinLatch<Tested<Compare>>>();
    is_held_once::<ElidedLatch>();
    is_held_once::<SLockTas>();
    is_held_once::<SLockCas>();
    is_held_once::<TicketLatch>();
    is_held_once::<McsLatch>();
    is_held_once::<ParkLatch>();
}

#[test]
fn a_guard_lets_go_when_its_thread_unwinds() {
    static SHARED: Latched<u32, ParkLatch> = Latched::new(1);
    let failed = thread::spawn(|| {
        let _guard = SHARED.lock();
        panic!("on purpose");
    });
    assert!(failed.join().is_err());
    assert_eq!(*SHARED.lock(), 1);
}

/// Two threads take and let go without a pause; another must get in all the same, many times.
#[test]
fn a_greedy_thread_does_not_starve_another() {
    let shared = Latched::<u64, ParkLatch>::new(0);
    let (greedy, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                *shared.lock() += 1;
                greedy.fetch_add(1, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    *shared.lock() += 1;
                }
            });
        }
        while greedy.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        for _ in 0..rounds {
            // They have had it in between.
            thread::yield_now();
            let began = Instant::now();
            *shared.lock() += 1;
            longest = longest.max(began.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Far above a hand-over between threads that lose their cores for seconds, far below for ever.
    assert!(cfg!(miri) || longest < Duration::from_secs(60), "waited {longest:?}");
}

#[test]
fn names_tell_acquisitions_apart() {
    let names = [Swap::NAME, Tested::<Swap>::NAME, Compare::NAME, Tested::<Compare>::NAME];
    assert_eq!(names, ["tas", "ttas", "cas", "test-cas"]);
    assert!(size_of::<SpinLatch<Swap>>() == 4 && size_of::<TicketLatch>() == 8);
    // Under Miri a futex is more than a word.
    assert!(cfg!(miri) || size_of::<ParkLatch>() == 8);
}
