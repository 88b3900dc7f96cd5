//! One part for each thread, found by the thread's index without a latch, for any number of
//! threads.
//!
//! The parts are in segments, each twice as long as the one before. A segment is allocated when a
//! thread first needs it, and lives as long as the container. Indices are assigned smallest first,
//! so there are at most twice as many parts as threads that lived at the same time.

use clearway_latch::CachePadded;
use std::sync::OnceLock;

/// The number of parts in the first segment.
const FIRST: usize = if cfg!(any(loom, shuttle)) { 4 } else { 32 };
/// Enough for 2^32 threads.
const SEGMENTS: usize = 28;

pub(super) struct PerThread<P> {
    segments: [OnceLock<Box<[CachePadded<P>]>>; SEGMENTS],
    make: Box<dyn Fn() -> P + Send + Sync>,
}

impl<P> PerThread<P> {
    pub fn new(make: impl Fn() -> P + Send + Sync + 'static) -> Self {
        let this = Self { segments: [const { OnceLock::new() }; SEGMENTS], make: Box::new(make) };
        this.of(0);
        this
    }

    /// Returns the part of the thread with this index.
    #[inline]
    pub fn of(&self, index: u32) -> &P {
        let at = index as usize + FIRST;
        let segment = (at / FIRST).ilog2() as usize;
        let first = FIRST << segment;
        let parts = match self.segments[segment].get() {
            Some(parts) => parts,
            None => self.allocate(segment),
        };
        &parts[at - first]
    }

    /// Allocates a segment. Under a model checker, `make` creates atomics and accesses none, so
    /// that nothing is scheduled meanwhile.
    #[cold]
    fn allocate(&self, segment: usize) -> &[CachePadded<P>] {
        self.segments[segment].get_or_init(|| {
            (0..FIRST << segment).map(|_| CachePadded::new((self.make)())).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_index_has_its_own_part() {
        let parts = PerThread::new(|| 0_u8);
        let last = FIRST as u32 * 7;
        let places: HashSet<_> =
            (0..last).rev().map(|index| std::ptr::from_ref(parts.of(index)).addr()).collect();
        assert_eq!(places.len(), last as usize);
    }
}
