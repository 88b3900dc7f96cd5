//! Single-threaded behaviour, panics, and many threads at full speed; `loom_tests` tries every
//! interleaving of a few.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use super::*;

static CLASS: Class = Class::new("test.combiner");

fn note(log: &mut Vec<u32>, message: u32) {
    log.push(message);
}

/// Returns a combiner in whose first hold `count` more messages, 1 and up, were submitted.
fn overfilled(count: u32) -> (Combiner<Vec<u32>, u32>, Submitted) {
    let log = Combiner::new(&CLASS, Vec::new());
    let submitted = log.submit(0, &mut |state: &mut Vec<u32>, message| {
        note(state, message);
        if message == 0 {
            (1..=count).for_each(|next| assert_eq!(log.submit(next, &mut note), Submitted::Queued));
        }
    });
    (log, submitted)
}

#[test]
fn free_combiner_handles_a_message_at_once() {
    let log = Combiner::new(&CLASS, Vec::new());
    assert_eq!(log.submit(7, &mut note), Submitted::Ran { more: false });
    assert!(!log.poll(&mut note));
    assert_eq!(log.into_inner(), [7]);
}

#[test]
fn a_handler_may_submit_to_its_own_combiner() {
    let (log, submitted) = overfilled(3);
    assert_eq!(submitted, Submitted::Ran { more: false });
    assert_eq!(log.into_inner(), [0, 1, 2, 3]);
}

#[test]
fn a_hold_is_bounded() {
    // Invariant 4; 2 for what is left; 3 for the message that comes after.
    let limit = DRAIN_LIMIT as u32;
    let (log, submitted) = overfilled(2 * limit);
    assert_eq!(submitted, Submitted::Ran { more: true });
    assert_eq!(log.with_exclusive(|state| state.len() as u32), (limit, true));
    assert_eq!(log.submit(2 * limit + 1, &mut note), Submitted::Ran { more: true });
    assert!(!log.poll(&mut note));
    assert_eq!(log.into_inner(), (0..2 * limit + 2).collect::<Vec<_>>());
}

#[test]
fn a_panic_poisons() {
    // Invariant 5.
    let alive = Arc::new(());
    let log: Combiner<(), Arc<()>> = Combiner::new(&CLASS, ());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        log.submit(Arc::clone(&alive), &mut |(), message: Arc<()>| {
            assert_eq!(log.submit(message, &mut |(), _| {}), Submitted::Queued);
            panic!("a handler's panic");
        })
    }));
    assert!(panic.is_err() && log.is_poisoned());
    assert_eq!(Arc::strong_count(&alive), 1, "what waited is dropped");
    let refused = |call: &dyn Fn() -> bool| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    refused(&|| log.submit(Arc::clone(&alive), &mut |(), _| {}) == Submitted::Queued);
    refused(&|| log.poll(&mut |(), _| {}));
    refused(&|| log.with_exclusive(|()| {}).1);
    assert_eq!(Arc::strong_count(&alive), 1, "what was refused is dropped");
    assert!(catch_unwind(AssertUnwindSafe(|| log.into_inner())).is_err());
}

#[test]
fn waiting_messages_are_dropped_with_the_combiner() {
    let alive = Arc::new(());
    let log: Combiner<(), Arc<()>> = Combiner::new(&CLASS, ());
    let ((), more) = log.with_exclusive(|()| {
        assert_eq!(log.submit(Arc::clone(&alive), &mut |(), _| {}), Submitted::Queued);
    });
    assert!(more);
    drop(log);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn busy_combiner_does_not_block_the_submitter() {
    let log = Arc::new(Combiner::new(&CLASS, Vec::new()));
    let (entered, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel();
    let holder = thread::spawn({
        let log = Arc::clone(&log);
        move || {
            log.submit(1, &mut |state: &mut Vec<u32>, message| {
                if message == 1 {
                    entered.send(()).expect("the test listens");
                    may_leave.recv().expect("the test sends");
                }
                note(state, message);
            })
        }
    });
    is_inside.recv().expect("the holder sends");
    assert_eq!(log.submit(2, &mut note), Submitted::Queued);
    assert!(!log.poll(&mut note), "the holder sees to it");
    leave.send(()).expect("the holder listens");
    assert_eq!(holder.join().expect("no panic"), Submitted::Ran { more: false });
    assert_eq!(log.with_exclusive(std::mem::take), (vec![1, 2], false));
}

#[test]
fn many_threads_lose_nothing_and_keep_their_order() {
    // Invariants 1 to 3 at full speed.
    const THREADS: usize = 4;
    let each: usize = if cfg!(miri) { 50 } else { 50_000 };
    let counts = Combiner::new(&CLASS, [0; THREADS]);
    let inside = AtomicUsize::new(0);
    let handle = |counts: &mut [usize; THREADS], message: (usize, usize)| {
        // Relaxed: the baton orders the holders; the counter only detects two at once.
        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
        assert_eq!(counts[message.0], message.1);
        counts[message.0] += 1;
        inside.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (counts, handle) = (&counts, &handle);
            scope.spawn(move || {
                let mut handle = |state: &mut _, message| handle(state, message);
                for number in 0..each {
                    if let Submitted::Ran { more: true } =
                        counts.submit((thread, number), &mut handle)
                    {
                        while counts.poll(&mut handle) {}
                    }
                }
            });
        }
    });
    assert_eq!(counts.into_inner(), [each; THREADS]);
}
