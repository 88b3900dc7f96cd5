//! Every interleaving of two or three threads. `RUSTFLAGS="--cfg loom" cargo test -p clearway-latch --release --lib loom`

use loom::sync::Arc;
use loom::thread;

use super::{Combiner, Submitted};

type Log = Combiner<Vec<u8>, u8>;

fn note(log: &mut Vec<u8>, message: u8) {
    log.push(message);
}

/// Submits, and sees to what is left.
fn send(log: &Log, message: u8) {
    if let Submitted::Ran { more: true } = log.submit(message, &mut note) {
        while log.poll(&mut note) {}
    }
}

/// What was handled, in order. All threads have ended: each message is accounted for (invariant 2).
fn handled(log: Arc<Log>) -> Vec<u8> {
    let (handled, more) = log.with_exclusive(std::mem::take);
    assert!(!more, "a message was lost on the way");
    handled
}

fn sorted(mut messages: Vec<u8>) -> Vec<u8> {
    messages.sort_unstable();
    messages
}

fn place(messages: &[u8], of: u8) -> usize {
    messages.iter().position(|message| *message == of).expect("was handled")
}

#[test]
fn two_threads_lose_nothing() {
    // Invariants 1 (loom checks each access of the state) and 2.
    loom::model(|| {
        let log = Arc::new(Log::new(Vec::new()));
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || send(&log, 2)
        });
        send(&log, 1);
        other.join().expect("no panic");
        assert_eq!(sorted(handled(log)), [1, 2]);
    });
}

#[test]
fn three_threads_lose_nothing() {
    // Invariants 1 and 2, with a list of more than one node.
    loom::model(|| {
        let log = Arc::new(Log::new(Vec::new()));
        let others = [2, 3].map(|message| {
            let log = Arc::clone(&log);
            thread::spawn(move || send(&log, message))
        });
        send(&log, 1);
        for other in others {
            other.join().expect("no panic");
        }
        assert_eq!(sorted(handled(log)), [1, 2, 3]);
    });
}

#[test]
fn a_thread_keeps_its_order() {
    // Invariant 3; and 4, as under loom two messages fill a hold.
    loom::model(|| {
        let log = Arc::new(Log::new(Vec::new()));
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || [3, 4].into_iter().for_each(|message| send(&log, message))
        });
        [1, 2].into_iter().for_each(|message| send(&log, message));
        other.join().expect("no panic");
        let handled = handled(log);
        assert_eq!(sorted(handled.clone()), [1, 2, 3, 4]);
        assert!(place(&handled, 1) < place(&handled, 2) && place(&handled, 3) < place(&handled, 4));
    });
}

#[test]
fn what_is_left_is_handled_by_one_of_those_who_were_told() {
    // Invariants 2 and 4: a handler's own messages overfill the hold, and another thread comes meanwhile.
    loom::model(|| {
        let log = Arc::new(Log::new(Vec::new()));
        let fan_out = |log: &Arc<Log>, message: u8| {
            let mut handle = |state: &mut Vec<u8>, message: u8| {
                state.push(message);
                if message == 1 {
                    assert_eq!([2, 3].map(|message| log.submit(message, &mut note)), [Submitted::Queued; 2]);
                }
            };
            if let Submitted::Ran { more: true } = log.submit(message, &mut handle) {
                while log.poll(&mut handle) {}
            }
        };
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || fan_out(&log, 4)
        });
        fan_out(&log, 1);
        other.join().expect("no panic");
        let handled = handled(log);
        assert_eq!(sorted(handled.clone()), [1, 2, 3, 4]);
        assert!(place(&handled, 1) < place(&handled, 2) && place(&handled, 2) < place(&handled, 3));
    });
}

#[test]
fn an_exclusive_visit_loses_nothing() {
    // Invariants 1 and 2: messages that come during the visit are handled by the submitter or by the visitor's poll.
    loom::model(|| {
        let log = Arc::new(Log::new(Vec::new()));
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || [1, 2].into_iter().for_each(|message| send(&log, message))
        });
        let ((), mut more) = log.with_exclusive(|state| state.push(0));
        while more {
            more = log.poll(&mut note);
        }
        other.join().expect("no panic");
        assert_eq!(sorted(handled(log)), [0, 1, 2]);
    });
}
