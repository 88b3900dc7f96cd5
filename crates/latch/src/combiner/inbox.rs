//! The combiner's word: one atomic for the holder and the waiting messages.
//!
//! | word       | baton | waiting                                                            |
//! |------------|-------|--------------------------------------------------------------------|
//! | `FREE`     | free  | nothing                                                            |
//! | `LEFT`     | free  | the backlog, which belongs to the next holder                      |
//! | `HELD`     | held  | nothing that the holder has not collected                          |
//! | `POISONED` | dead  | nothing: a holder has panicked                                     |
//! | an address | held  | the nodes from that address on, newest first, linked through `next` |
//!
//! Only the holder leaves the states in which the baton is held, except that any thread may push
//! one more node in front. So a pusher either finds the baton free and takes it, or changes the
//! word that the holder must change to release the baton: the holder then sees the node. No message
//! is lost, and no fence between two words is needed.
//!
//! A pusher may find in the word the address that it saw before, which now belongs to another node
//! (ABA). That is harmless: whatever its age, an address in the word is that of the newest node,
//! and the pushed node must point to that. But whether it happens depends on the allocator, and a
//! simulation must be deterministic, so there it must not happen.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::lockstat::Wait;
use clearway_sync::atomic::AtomicUsize;

const FREE: usize = 0;
const LEFT: usize = 1;
const HELD: usize = 2;
const POISONED: usize = 3;

/// A waiting message.
pub(super) struct Node<M> {
    pub(super) message: M,
    pub(super) wait: Wait,
    /// `HELD`, or the address of the previous node.
    next: usize,
}

/// The effect of [`Inbox::push_or_take`].
pub(super) enum Pushed<M> {
    /// The node was pushed for the holder.
    Queued,
    /// The baton was free with nothing waiting, and now belongs to the caller.
    TookFree(Box<Node<M>>),
    /// The baton was free with a backlog waiting, and now belongs to the caller.
    TookLeft(Box<Node<M>>),
}

pub(super) struct Inbox<M> {
    word: AtomicUsize,
    graves: Graves<M>,
}

/// In a simulation, the memory of former nodes: while the inbox exists, no new node gets the
/// address of an old one. Otherwise empty.
struct Graves<M> {
    #[cfg(shuttle)]
    taken: std::sync::Mutex<Vec<Box<std::mem::MaybeUninit<Node<M>>>>>,
    nodes: PhantomData<M>,
}

impl<M> Graves<M> {
    fn new() -> Self {
        Self {
            #[cfg(shuttle)]
            taken: std::sync::Mutex::default(),
            nodes: PhantomData,
        }
    }

    /// Takes the node, which was in the word, and keeps its address from being allocated again.
    #[cfg(shuttle)]
    fn keep(&self, node: Box<Node<M>>) -> Box<Node<M>> {
        let place = Box::into_raw(node);
        // SAFETY: from `Box::into_raw` above. The value that is read is not used there again: the
        // allocation stays without a value.
        let (node, place) = unsafe { (ptr::read(place), Box::from_raw(place.cast())) };
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(place);
        Box::new(node)
    }

    /// Returns the node itself.
    #[cfg(not(shuttle))]
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "as in a simulation")]
    fn keep(&self, node: Box<Node<M>>) -> Box<Node<M>> {
        node
    }
}

impl<M> Inbox<M> {
    pub(super) fn new() -> Self {
        // An address differs from the states because it is a multiple of the alignment and not
        // zero.
        const { assert!(align_of::<Node<M>>() > POISONED) };
        Self { word: AtomicUsize::new(FREE), graves: Graves::new() }
    }

    /// Takes the baton if it is free and nothing waits.
    #[inline(always)]
    pub(super) fn try_take_free(&self) -> bool {
        // Acquire: pairs with the Release in `release`. Without it this thread could read the state
        // before the last holder's changes. Relaxed: a failure reads nothing.
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Takes the baton if it is free and a backlog waits.
    pub(super) fn try_take_left(&self) -> bool {
        // Acquire: as in `try_take_free`, pairs with the Release in `release`. Relaxed: a failure
        // reads nothing.
        self.word.compare_exchange(LEFT, HELD, Acquire, Relaxed).is_ok()
    }

    /// Gives the message to the holder, or takes the baton if there is no holder.
    ///
    /// # Panics
    /// If the combiner is poisoned.
    pub(super) fn push_or_take(&self, message: M, wait: Wait) -> Pushed<M> {
        let node = Box::into_raw(Box::new(Node { message, wait, next: HELD }));
        // Exposed: the thread that collects the node makes the pointer from the address.
        let address = node.expose_provenance();
        // Relaxed: only a hint for the exchange.
        let mut word = self.word.load(Relaxed);
        loop {
            let new = match word {
                POISONED => {
                    // SAFETY: the node is from `Box::into_raw` above and not pushed, so only this
                    // thread has it.
                    drop(unsafe { Box::from_raw(node) });
                    refuse();
                }
                FREE | LEFT => HELD,
                held => {
                    // SAFETY: as above, only this thread has it.
                    unsafe { (*node).next = held };
                    address
                }
            };
            // Acquire: pairs with the Release in `release`, for a caller that becomes the holder.
            // Release: pairs with the Acquire in `take_nodes`; without it the holder could read a
            // node that is not yet written. Relaxed on failure: as for the load above.
            match self.word.compare_exchange_weak(word, new, AcqRel, Relaxed) {
                // SAFETY: as above, only this thread has it: only the baton was taken.
                Ok(FREE) => return Pushed::TookFree(unsafe { Box::from_raw(node) }),
                // SAFETY: as above.
                Ok(LEFT) => return Pushed::TookLeft(unsafe { Box::from_raw(node) }),
                Ok(_) => return Pushed::Queued,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the waiting nodes out and appends them, oldest first, to `backlog`. Only the holder
    /// calls this.
    pub(super) fn collect(&self, backlog: &mut VecDeque<Box<Node<M>>>) {
        let old = backlog.len();
        backlog.extend(self.take_nodes(HELD));
        backlog.make_contiguous()[old..].reverse();
    }

    /// Releases the baton, if no uncollected message waits; returns whether it did. Only the holder
    /// calls this. `backlog` says whether messages are left to the next holder.
    #[inline(always)]
    pub(super) fn release(&self, backlog: bool) -> bool {
        let free = if backlog { LEFT } else { FREE };
        // Release: pairs with the Acquire of the next thread that takes the baton. Without it that
        // thread could miss our changes of the state. Relaxed: after a failure we `collect`, which
        // acquires.
        self.word.compare_exchange(HELD, free, Release, Relaxed).is_ok()
    }

    /// Drops the waiting messages and refuses later ones. The panicking holder calls this.
    pub(super) fn poison(&self) {
        drop(self.take_nodes(POISONED));
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.word.load(Relaxed) == POISONED // Relaxed: the answer orders nothing.
    }

    /// Changes the word and returns the waiting nodes, newest first. Only the holder calls this.
    fn take_nodes(&self, new: usize) -> Nodes<'_, M> {
        debug_assert!(new == HELD || new == POISONED);
        // Acquire: pairs with the Release in `push_or_take` of every node in the list: each push
        // continues the release sequence of those before it.
        Nodes { address: self.word.swap(new, Acquire), graves: &self.graves }
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        // A holder's `&Combiner` cannot outlive the combiner: the baton is free, or a holder's
        // guard was leaked.
        drop(self.take_nodes(POISONED));
    }
}

/// Owns a list of nodes; dropping it drops them.
struct Nodes<'a, M> {
    address: usize,
    graves: &'a Graves<M>,
}

impl<M> Iterator for Nodes<'_, M> {
    type Item = Box<Node<M>>;

    fn next(&mut self) -> Option<Box<Node<M>>> {
        if self.address <= POISONED {
            return None;
        }
        let node = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: an address above the states comes from `Box::into_raw` in `push_or_take`, which
        // exposed it and pushed the node once. `take_nodes` took the list out of the word with one
        // swap, so no other thread has it. We advance past each node before it can be freed.
        let node: Box<Node<M>> = unsafe { Box::from_raw(node) };
        self.address = node.next;
        Some(self.graves.keep(node))
    }
}

impl<M> Drop for Nodes<'_, M> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Panics in a caller of a poisoned combiner.
#[cold]
pub(super) fn refuse() -> ! {
    panic!("the combiner is poisoned: a handler panicked in it")
}
