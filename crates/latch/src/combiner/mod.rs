//! The baton of a partition.
//!
//! A thread that submits a message while the state is free handles it immediately. A thread that
//! submits one while the state is busy leaves it to the thread inside, and continues. No thread
//! waits.
//!
//! # Invariants
//! 1. One thread at a time is inside: it holds the baton, and with it the only reference to the
//!    state.
//! 2. A message that `submit` accepted is handled once, by the time the baton is next free.
//!    Exception: if the holder is notified that messages are left ([`Submitted::Ran`] with `more`,
//!    or `true` from [`Combiner::poll`]), a later `poll` or `submit` of any thread handles them.
//!    The thread that was told must ensure that one follows.
//! 3. Messages of one thread are handled in the order in which it submitted them. A message whose
//!    `submit` returned before another's began is handled before that one.
//! 4. A hold handles at most a fixed number of messages ([`DRAIN_LIMIT`], unless configured
//!    otherwise), so that a thread that came with one message returns to its other work.
//! 5. If a handler panics, the combiner is poisoned before the panic leaves `submit` or `poll`:
//!    every later call panics, and the waiting messages are never handled (they are dropped, at the
//!    latest with the combiner). The state may be partly changed, and no thread sees it again.
//!
//! # Locking
//! One word (the table of its states is in `inbox`). Without contention, `submit` is one exchange
//! to take the baton and one to release it. A message that must wait costs an allocation and one
//! exchange. A handler may submit to its own combiner: the message waits and is handled in the same
//! hold, or is among those left.
//!
//! The number of waiting messages has no bound here: `submit` cannot refuse one, since a decision
//! to commit may not be refused. The bound is the number of messages that the submitters have in
//! flight, which the submitters limit (a session has few).
//!
//! A crash leaves nothing: the state here is in memory only.
//!
//! # Source
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010), with one list for all threads
//! instead of a record for each. BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009), for the TryLock that
//! lets a thread continue.

mod inbox;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::panic::Location;

use crate::lockstat::Class;
use crate::padded::CachePadded;
use clearway_sync::cell::UnsafeCell;
use clearway_sync::thread::yield_now;
use inbox::{Inbox, Node, Pushed};

/// The maximum number of messages that one hold of the baton handles, unless configured otherwise.
pub const DRAIN_LIMIT: usize = if cfg!(loom) { 2 } else { 64 };

/// The outcome of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`more` makes the caller responsible for the messages left"]
pub enum Submitted {
    /// The caller was inside. It has handled its message, those that waited before it, and those
    /// that arrived in the meantime. With `more`, the hold reached its limit of messages, in order
    /// of arrival, and the caller must call [`Combiner::poll`] soon.
    Ran {
        /// Messages are left.
        more: bool,
    },
    /// Another thread is inside and handles the message.
    Queued,
}

/// A state that one thread at a time may enter, and the messages for it.
///
/// `S` is the state, `M` a message. The handler comes with each call. All handlers must be
/// equivalent, since each handles other callers' messages.
pub struct Combiner<S, M> {
    class: &'static Class,
    inbox: CachePadded<Inbox<M>>,
    inside: UnsafeCell<Inside<S, M>>,
    /// The maximum number of messages in one hold, at least 1.
    limit: usize,
}

struct Inside<S, M> {
    state: S,
    /// Messages out of the inbox, oldest first; empty while the baton is free with nothing waiting.
    backlog: VecDeque<Box<Node<M>>>,
}

// SAFETY: a shared combiner passes its state and its messages from thread to thread, one at a time
// (invariant 1), which `Send` allows. No two threads have a reference to the state or to a message
// at once, so `Sync` is not needed.
unsafe impl<S: Send, M: Send> Sync for Combiner<S, M> {}

/// Poisons the inbox when it is dropped. A holder either releases the baton or, on unwinding, drops
/// this.
struct PoisonOnUnwind<'a, M>(&'a Inbox<M>);

impl<M> Drop for PoisonOnUnwind<'_, M> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

impl<S: Send, M: Send> Combiner<S, M> {
    /// Creates a free combiner with no messages. Each submission is a request in lockstat. It is
    /// contended if the message was left to others; its wait ends when it is handled.
    pub fn new(class: &'static Class, state: S) -> Self {
        Self::with_limit(class, state, DRAIN_LIMIT)
    }

    /// Like [`Combiner::new`]; one hold handles at most `limit` messages (at least 1).
    pub fn with_limit(class: &'static Class, state: S, limit: usize) -> Self {
        let inside = Inside { state, backlog: VecDeque::new() };
        let inbox = CachePadded::new(Inbox::new());
        Self { class, inbox, inside: UnsafeCell::new(inside), limit: limit.max(1) }
    }

    /// Handles the message and the waiting ones, or leaves the message to the thread that is
    /// inside.
    ///
    /// # Panics
    /// If a handler panicked, in this call or in an earlier one (invariant 5).
    #[inline]
    #[track_caller]
    pub fn submit<H: FnMut(&mut S, M) + ?Sized>(&self, message: M, handle: &mut H) -> Submitted {
        self.class.request();
        if self.inbox.try_take_free() {
            self.run(message, handle)
        } else {
            self.submit_busy(message, handle, Location::caller())
        }
    }

    /// Handles the waiting messages if the baton is free, and returns whether messages are left:
    /// then the caller must poll again. Returns `false` if nothing waits, or if another thread is
    /// inside and handles it.
    ///
    /// # Panics
    /// If a handler panicked, in this call or in an earlier one (invariant 5).
    pub fn poll<H: FnMut(&mut S, M) + ?Sized>(&self, handle: &mut H) -> bool {
        if !self.inbox.try_take_left() {
            if self.inbox.is_poisoned() {
                inbox::refuse();
            }
            return false;
        }
        let poison = PoisonOnUnwind(&self.inbox);
        let more = self.drain(self.limit, handle);
        mem::forget(poison);
        more
    }

    /// Waits until the baton is free and runs `f` inside: for start-up and shutdown. Returns `f`'s
    /// result, and whether messages are left: then the caller must call [`Combiner::poll`]. The
    /// wait ends when the holder releases the baton, after at most the limit of messages in a hold,
    /// unless other threads take the baton each time.
    ///
    /// # Panics
    /// If the combiner is poisoned. A panic in `f` poisons it. Called in a handler of this
    /// combiner, it would wait forever.
    pub fn with_exclusive<R>(&self, f: impl FnOnce(&mut S) -> R) -> (R, bool) {
        while !self.inbox.try_take_free() && !self.inbox.try_take_left() {
            if self.inbox.is_poisoned() {
                inbox::refuse();
            }
            yield_now();
        }
        let poison = PoisonOnUnwind(&self.inbox);
        let result = self.enter(|inside| f(&mut inside.state));
        let more =
            self.drain(0, &mut |_: &mut S, _| unreachable!("a drain of no messages handles none"));
        mem::forget(poison);
        (result, more)
    }

    /// Returns true if a handler panicked.
    pub fn is_poisoned(&self) -> bool {
        self.inbox.is_poisoned()
    }

    /// Returns the state. Waiting messages are dropped.
    ///
    /// # Panics
    /// If the combiner is poisoned.
    pub fn into_inner(self) -> S {
        if self.inbox.is_poisoned() {
            inbox::refuse();
        }
        self.inside.into_inner().state
    }

    /// The caller has taken the baton with nothing waiting.
    #[inline]
    fn run<H: FnMut(&mut S, M) + ?Sized>(&self, message: M, handle: &mut H) -> Submitted {
        let poison = PoisonOnUnwind(&self.inbox);
        self.enter(|inside| handle(&mut inside.state, message));
        let more =
            if self.inbox.release(false) { false } else { self.drain(self.limit - 1, handle) };
        mem::forget(poison);
        Submitted::Ran { more }
    }

    /// The caller has found the baton held, or messages waiting.
    #[cold]
    fn submit_busy<H: FnMut(&mut S, M) + ?Sized>(
        &self,
        message: M,
        handle: &mut H,
        caller: &'static Location<'static>,
    ) -> Submitted {
        match self.inbox.push_or_take(message, self.class.wait(caller)) {
            Pushed::Queued => Submitted::Queued,
            Pushed::TookFree(node) => self.run(node.message, handle),
            Pushed::TookLeft(node) => {
                let poison = PoisonOnUnwind(&self.inbox);
                // Behind the messages that arrived before it (invariant 3).
                self.enter(|inside| inside.backlog.push_back(node));
                let more = self.drain(self.limit, handle);
                mem::forget(poison);
                Submitted::Ran { more }
            }
        }
    }

    /// Handles at most `limit` waiting messages, and releases the baton. Returns whether messages
    /// are left. Only the holder calls this.
    fn drain<H: FnMut(&mut S, M) + ?Sized>(&self, limit: usize, handle: &mut H) -> bool {
        let mut handled = 0;
        loop {
            let more = self.enter(|inside| {
                self.inbox.collect(&mut inside.backlog);
                while handled < limit
                    && let Some(node) = inside.backlog.pop_front()
                {
                    let Node { message, wait, .. } = *node;
                    wait.end();
                    handle(&mut inside.state, message);
                    handled += 1;
                }
                !inside.backlog.is_empty()
            });
            // Each failure means one more message (invariant 2). The loop ends at the latest when
            // every thread that can submit waits for an answer.
            if self.inbox.release(more) {
                return more;
            }
        }
    }

    /// Runs `f` on the state that the baton protects. Only the holder calls this.
    #[inline(always)]
    fn enter<R>(&self, f: impl FnOnce(&mut Inside<S, M>) -> R) -> R {
        // SAFETY: the callers above hold the baton (invariant 1). Each ends its `enter` before it
        // releases the baton, and does not call it in another's `f`. A handler that calls this
        // combiner again finds the baton held, and does not get here. So this is the only reference
        // to `inside`.
        self.inside.with_mut(|inside| f(unsafe { &mut *inside }))
    }
}
