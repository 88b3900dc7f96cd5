//! A queue latch: each waiter spins on its own cache line, and waiters are served in order of
//! arrival.
//!
//! This is the K42 variant of Mellor-Crummey and Scott's latch. A waiter's queue node is on its
//! stack, and only while it waits. So the holder needs no node, and the interface is that of other
//! latches.
//!
//! | `tail`   | `next`      | state |
//! |----------|-------------|-------|
//! | null     | null        | free |
//! | the latch itself | null | held, without waiters |
//! | a waiter | null        | held, the first waiter is entering the queue |
//! | a waiter | a waiter    | held, `next` is the first in line |
//!
//! A waiter's node has `next`, its successor, and `waiting`, true until its predecessor releases
//! the latch. No thread is overtaken. As with tickets, a handover may take a time slice if there
//! are more threads than cores.
//!
//! Source: Mellor-Crummey and Scott, TOCS 1991; Auslander and others, US patent application
//! 2003/0200457 (K42), as given by Scott, "Shared-Memory Synchronization", 2013, section 4.3.1.

use clearway_latch::RawLatch;
use clearway_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use clearway_sync::hint;

/// A waiter's node in the queue, on its own cache line and its own stack.
#[repr(align(128))]
struct Node {
    waiting: AtomicBool,
    /// Address of the successor's node; 0 if there is none yet.
    next: AtomicUsize,
}

/// A queue latch that spins.
#[derive(Debug)]
pub struct McsLatch {
    /// The address of the last waiter's node; the latch's own address if it is held without
    /// waiters; 0 if it is free.
    tail: AtomicUsize,
    /// The address of the first waiter's node, once that waiter has stored it here.
    next: AtomicUsize,
}

impl McsLatch {
    /// Returns the latch's own address, which is the holder's member in the queue.
    fn me(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Returns the link from the queue's member at this address to its successor.
    ///
    /// # Safety
    /// The address must be this latch's, or that of a node whose owner waits in this latch's queue
    /// and does not leave before it has seen what the caller writes to the link.
    unsafe fn link(&self, member: usize) -> &AtomicUsize {
        if member == self.me() {
            return &self.next;
        }
        // SAFETY: by the contract the node exists, and its fields are atomics.
        unsafe { &(*std::ptr::with_exposed_provenance::<Node>(member)).next }
    }

    #[cold]
    fn lock_slowly(&self) {
        let node = Node { waiting: AtomicBool::new(true), next: AtomicUsize::new(0) };
        let mine = (&raw const node).expose_provenance();
        let mut last = self.tail.load(Ordering::Relaxed);
        loop {
            if last == 0 {
                // Acquire: pairs with the Release of the unlock that freed it.
                match self.tail.compare_exchange_weak(
                    0,
                    self.me(),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => last = now,
                }
                continue;
            }
            // AcqRel: pairs with itself. The Release half shows our node to the thread that links
            // behind it; the Acquire half shows us the node before ours.
            match self.tail.compare_exchange_weak(last, mine, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        // SAFETY: `last` was the tail when we took its place. If it is a waiter's node, its owner
        // sees that it is no longer the tail and stays until its link is set, which is what we do.
        //
        // Release: pairs with the Acquire loads of `next`.
        unsafe { self.link(last) }.store(mine, Ordering::Release);
        // Acquire: pairs with the Release store of `waiting` in `unlock`.
        while node.waiting.load(Ordering::Acquire) {
            hint::spin_loop();
        }
        // We hold the latch. Our node leaves the queue: its place is taken by the latch's own.
        // Acquire: pairs with the Release store of the link by the next waiter.
        let mut next = node.next.load(Ordering::Acquire);
        if next == 0 {
            // Relaxed: read after our own unlock's Release, or by the thread that links itself
            // here.
            self.next.store(0, Ordering::Relaxed);
            // AcqRel: pairs with the exchange of the next thread to queue, which sees `next`
            // cleared before it sets it.
            if self
                .tail
                .compare_exchange(mine, self.me(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            // A thread has queued behind our node and is about to link itself; pairs as above.
            loop {
                next = node.next.load(Ordering::Acquire);
                if next != 0 {
                    break;
                }
                hint::spin_loop();
            }
        }
        self.next.store(next, Ordering::Relaxed);
    }
}

// SAFETY: a thread returns from `lock` either because it changed `tail` from free to held, or
// because its predecessor's unlock named it alone; both are Release and Acquire pairs.
unsafe impl RawLatch for McsLatch {
    const NAME: &'static str = "mcs";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { tail: AtomicUsize::new(0), next: AtomicUsize::new(0) };

    fn new() -> Self {
        Self { tail: AtomicUsize::new(0), next: AtomicUsize::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release of the unlock that freed it.
        self.tail.compare_exchange(0, self.me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        // Acquire: pairs with the Release store of the link by the next waiter.
        let mut next = self.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: pairs with the Acquire of the next holder.
            if self
                .tail
                .compare_exchange(self.me(), 0, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            // A thread has queued and is about to link itself; pairs as above.
            loop {
                next = self.next.load(Ordering::Acquire);
                if next != 0 {
                    break;
                }
                hint::spin_loop();
            }
        }
        // Relaxed: we still hold the latch; the next holder is shown it by the Release below.
        self.next.store(0, Ordering::Relaxed);
        // SAFETY: `next` is the first waiter's node, which stays until `waiting` is false; it is
        // not touched after that. Release: pairs with the Acquire load of `waiting` in `lock`.
        unsafe { &(*std::ptr::with_exposed_provenance::<Node>(next)).waiting }
            .store(false, Ordering::Release);
    }
}
