//! The baton of a partition.
//!
//! Whoever submits a message while the state is free handles it there and then; whoever submits one
//! while it is busy leaves it to the thread that is inside, and goes on. Nobody waits.
//!
//! # Invariants
//! 1. One thread at a time is inside: holds the baton, and with it the only reference to the state.
//! 2. A message that `submit` accepted is handled once, by the time the baton is next free, unless
//!    the holder was told that messages are left ([`Submitted::Ran`] with `more`, or `true` from
//!    [`Combiner::poll`]): then by a later `poll` or `submit`, of whatever thread. Who was told
//!    must see to it that one comes.
//! 3. Messages of one thread are handled in the order in which it submitted them; a message whose
//!    `submit` returned before another's began is handled before that one.
//! 4. A hold handles at most so many messages ([`DRAIN_LIMIT`], unless said otherwise), so that a
//!    thread that came with one message of its own gets back to its other work.
//! 5. If a handler panics, the combiner is poisoned before the panic leaves `submit` or `poll`:
//!    every later call panics, and the messages that wait are never handled (they are dropped, at
//!    the latest with the combiner). The state may be half changed, and nobody sees it again.
//!
//! # Locking
//! One word (the table of its states is in `inbox`). With nobody else there, `submit` is one
//! exchange to take the baton and one to let it go. A message that must wait costs an allocation
//! and one exchange. A handler may submit to its own combiner: the message waits and is handled in
//! the same hold, or is among those left.
//!
//! Nothing here bounds how many messages wait: `submit` cannot refuse one, as a decision to commit
//! may not be refused. The bound is the number of submitters' messages in flight, which the
//! submitters bound (a session has few).
//!
//! A crash leaves nothing: the state here is in memory only.
//!
//! # Source
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010), with one list for all threads in
//! place of a record for each; BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009) for the TryLock that lets
//! a thread go on.

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

/// The most messages that one hold of the baton handles, unless said otherwise.
pub const DRAIN_LIMIT: usize = if cfg!(loom) { 2 } else { 64 };

/// What became of a submitted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`more` makes the caller responsible for the messages left"]
pub enum Submitted {
    /// The caller was inside. It has handled its message, those that waited before it, and those
    /// that came meanwhile; with `more`, only as many of them as a hold may in order of arrival,
    /// and the caller must call [`Combiner::poll`] soon.
    Ran {
        /// Messages are left.
        more: bool,
    },
    /// Another thread is inside and handles the message.
    Queued,
}

/// A state that one thread at a time may enter, and the messages for it.
///
/// `S` is the state, `M` a message; the handler comes with each call, and all calls' handlers must
/// mean the same, as each handles other callers' messages.
pub struct Combiner<S, M> {
    class: &'static Class,
    inbox: CachePadded<Inbox<M>>,
    inside: UnsafeCell<Inside<S, M>>,
    /// The most messages of one hold, at least 1.
    limit: usize,
}

struct Inside<S, M> {
    state: S,
    /// Messages out of the inbox, oldest first; empty while the baton is free with nothing waiting.
    backlog: VecDeque<Box<Node<M>>>,
}

// SAFETY: a shared combiner hands its state and its messages from thread to thread, one at a time
// (invariant 1), which `Send` allows; no two threads have a reference to the state or to a message
// at once, so that `Sync` is not needed.
unsafe impl<S: Send, M: Send> Sync for Combiner<S, M> {}

/// Poisons when it is dropped: a holder lets go of the baton, or, unwinding, of this.
struct PoisonOnUnwind<'a, M>(&'a Inbox<M>);

impl<M> Drop for PoisonOnUnwind<'_, M> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

impl<S: Send, M: Send> Combiner<S, M> {
    /// A free combiner with no messages. Each submission is a request in lockstat, contended if the
    /// message was left to others; its wait ends when it is handled.
    pub fn new(class: &'static Class, state: S) -> Self {
        Self::with_limit(class, state, DRAIN_LIMIT)
    }

    /// As [`Combiner::new`]; one hold handles at most `limit` messages (at least 1).
    pub fn with_limit(class: &'static Class, state: S, limit: usize) -> Self {
        let inside = Inside { state, backlog: VecDeque::new() };
        let inbox = CachePadded::new(Inbox::new());
        Self { class, inbox, inside: UnsafeCell::new(inside), limit: limit.max(1) }
    }

    /// Handles the message and what waits, or leaves the message to the thread that is inside.
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

    /// Handles what waits if the baton is free, and returns whether messages are left: then the
    /// caller must poll again. `false` if nothing waits, or if another thread is inside and sees to
    /// it.
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
    /// wait ends when the holder lets go, after at most as many messages as a hold may handle,
    /// unless others take the baton each time.
    ///
    /// # Panics
    /// If the combiner is poisoned. A panic in `f` poisons it. In a handler of this combiner it
    /// would wait for ever.
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

    /// Whether a handler panicked.
    pub fn is_poisoned(&self) -> bool {
        self.inbox.is_poisoned()
    }

    /// The state. Messages that still wait are dropped.
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
            if self.inbox.let_go(false) { false } else { self.drain(self.limit - 1, handle) };
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
                // Behind those that came before it (invariant 3).
                self.enter(|inside| inside.backlog.push_back(node));
                let more = self.drain(self.limit, handle);
                mem::forget(poison);
                Submitted::Ran { more }
            }
        }
    }

    /// The holder handles at most `limit` waiting messages, and lets go of the baton. Returns
    /// whether messages are left.
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
            // Each failure means one more message (invariant 2): the loop ends, at the latest when
            // every thread that can submit waits for an answer.
            if self.inbox.let_go(more) {
                return more;
            }
        }
    }

    /// The holder looks at what the baton protects.
    #[inline(always)]
    fn enter<R>(&self, f: impl FnOnce(&mut Inside<S, M>) -> R) -> R {
        // SAFETY: the callers above hold the baton (invariant 1), and each ends its `enter` before
        // it lets go and does not call it in another's `f`; a handler that calls this combiner
        // again finds the baton held, and does not get here. So that this is the only reference to
        // `inside`.
        self.inside.with_mut(|inside| f(unsafe { &mut *inside }))
    }
}
