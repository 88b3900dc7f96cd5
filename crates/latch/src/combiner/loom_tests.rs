//! Every interleaving of two or three threads.
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-latch --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Combiner, Submitted};
use crate::lockstat::Class;

static CLASS: Class = Class::new("test.combiner");

type Log = Combiner<Vec<u8>, Letter>;

/// A message whose content loom watches: a read of a node before it is written fails the model.
struct Letter(UnsafeCell<u8>);

impl Letter {
    fn new(content: u8) -> Self {
        let letter = Self(UnsafeCell::new(0));
        // SAFETY: no other thread has the letter.
        letter.0.with_mut(|place| unsafe { *place = content });
        letter
    }

    fn content(self) -> u8 {
        // SAFETY: no other thread has the letter, if the combiner is correct; loom checks it.
        self.0.with_mut(|place| unsafe { *place })
    }
}

fn note(log: &mut Vec<u8>, message: Letter) {
    log.push(message.content());
}

/// Submits a message, and handles what is left.
fn send(log: &Log, message: u8) {
    if let Submitted::Ran { more: true } = log.submit(Letter::new(message), &mut note) {
        while log.poll(&mut note) {}
    }
}

/// Returns the handled messages, in order. All threads have ended, so every message is accounted
/// for (invariant 2).
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
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
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
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
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
fn messages_of_a_thread_keep_their_order() {
    // Invariant 3; and 4, since under loom two messages fill a hold.
    loom::model(|| {
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
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

/// Handles 1, whose handler submits 2 and 3, which overfills a hold under loom. Then handles what
/// is left.
fn send_three(log: &Log) {
    let mut handle = |state: &mut Vec<u8>, message: Letter| {
        let message = message.content();
        state.push(message);
        if message == 1 {
            let submit = |message| log.submit(Letter::new(message), &mut note);
            assert_eq!([2, 3].map(submit), [Submitted::Queued; 2]);
        }
    };
    if let Submitted::Ran { more: true } = log.submit(Letter::new(1), &mut handle) {
        while log.poll(&mut handle) {}
    }
}

#[test]
fn message_queues_behind_the_backlog() {
    // Invariants 2 to 4. The other thread may also find 1 waiting, and then handles it without its
    // effects. Bounded: all interleavings would take minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || {
                send(&log, 4);
                send(&log, 5);
            }
        });
        send_three(&log);
        other.join().expect("no panic");
        let handled = handled(log);
        assert!(place(&handled, 4) < place(&handled, 5));
        if handled.len() > 3 {
            assert_eq!(sorted(handled.clone()), [1, 2, 3, 4, 5]);
            assert!(
                place(&handled, 1) < place(&handled, 2) && place(&handled, 2) < place(&handled, 3)
            );
        } else {
            assert_eq!(sorted(handled), [1, 4, 5]);
        }
    });
}

#[test]
fn another_thread_may_handle_what_is_left() {
    // Invariants 1 and 2: the poll that finds the backlog may be of another thread than the one
    // that left it.
    loom::model(|| {
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
        let other = thread::spawn({
            let log = Arc::clone(&log);
            move || while log.poll(&mut note) {}
        });
        send_three(&log);
        other.join().expect("no panic");
        assert_eq!(handled(log), [1, 2, 3]);
    });
}

#[test]
fn exclusive_access_loses_no_message() {
    // Invariants 1 and 2: messages that arrive during the visit are handled by the submitter or by
    // the visitor's poll.
    loom::model(|| {
        let log = Arc::new(Log::new(&CLASS, Vec::new()));
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
