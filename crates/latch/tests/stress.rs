//! Every latch under more threads than cores: no change is lost, and no thread waits forever.

use clearway_latch::acquire::{Acquisition, Compare, Swap, Tested};
use clearway_latch::conformance::{excludes_its_holder, excludes_many_threads};
use clearway_latch::{Choice, Latched, ParkLatch, RawLatch, SpinLatch, choose, chosen};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
const FREE_FOR_ALL: u64 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn spinning_latches_exclude() {
    crowd::<SpinLatch<Swap>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Tested<Swap>>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Compare>>(FREE_FOR_ALL);
    crowd::<SpinLatch<Tested<Compare>>>(FREE_FOR_ALL);
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[test]
fn acquisitions_of_this_architecture_exclude() {
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

fn crowd<L: RawLatch>(times: u64) {
    excludes_many_threads::<L>(THREADS, times);
}

#[test]
fn engine_latch_excludes_with_each_instruction() {
    let before = chosen();
    for choice in Choice::all() {
        choose(choice);
        crowd::<ParkLatch>(FREE_FOR_ALL);
    }
    choose(before);
}

#[test]
fn a_holder_cannot_take_its_latch_again() {
    excludes_its_holder::<SpinLatch<Swap>>();
    excludes_its_holder::<SpinLatch<Tested<Swap>>>();
    excludes_its_holder::<SpinLatch<Compare>>();
    excludes_its_holder::<SpinLatch<Tested<Compare>>>();
    excludes_its_holder::<ParkLatch>();
}

#[test]
fn guard_releases_when_its_thread_unwinds() {
    static SHARED: Latched<u32, ParkLatch> = Latched::new(1);
    let failed = thread::spawn(|| {
        let _guard = SHARED.lock();
        panic!("on purpose");
    });
    assert!(failed.join().is_err());
    assert_eq!(*SHARED.lock(), 1);
}

/// Two threads acquire and release without a pause; another must still acquire the latch many
/// times.
#[test]
fn reacquiring_thread_does_not_starve_another() {
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
            // The others acquire it in between.
            thread::yield_now();
            let began = Instant::now();
            *shared.lock() += 1;
            longest = longest.max(began.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Far above a handover between threads that lose their cores for seconds, far below forever.
    assert!(cfg!(miri) || longest < Duration::from_secs(60), "waited {longest:?}");
}

#[test]
fn names_tell_acquisitions_apart() {
    let names = [Swap::NAME, Tested::<Swap>::NAME, Compare::NAME, Tested::<Compare>::NAME];
    assert_eq!(names, ["tas", "ttas", "cas", "test-cas"]);
    assert!(size_of::<SpinLatch<Swap>>() == 4);
    // Under Miri a futex is more than a word.
    assert!(cfg!(miri) || size_of::<ParkLatch>() == 8);
}
