//! Atomics, cells and threads: the standard library's, or loom's, which try every interleaving.

#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic::AtomicUsize, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic::AtomicUsize, thread::yield_now};

/// [`std::cell::UnsafeCell`] with loom's interface, which brackets each access.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
