//! A cell whose accesses loom checks.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// [`std::cell::UnsafeCell`] with loom's interface, which passes the address to a closure.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell with this value.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Passes the value's address to `f`; the caller must prove that its access is sound.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
