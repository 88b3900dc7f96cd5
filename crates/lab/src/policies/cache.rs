//! The buffer pool as a cache of integers: an entry is a page of the pool, with the value behind
//! its header.
//!
//! A lookup is [`Pool::read_optimistic`]: the pool's page table and its replacement. An insertion
//! is [`Pool::create`]. No page is marked as changed, so the pool neither reads nor writes a page,
//! and there is no disk. As always in the pool, one more thread evicts pages ahead of need. It
//! keeps up to an eighth of the frames free, at most 2,048, so the pool holds fewer entries than it
//! has frames.

use clearway_buffer::{
    FileSpace, HEADER, MissingPage, NoLog, PAGE_SIZE, PageError, PageIo, Place, Pool, PoolConfig,
};
use clearway_env::IoPool;
use clearway_harness::Res;
use clearway_replacement::ReplacementKind;
use clearway_types::PageId;
use std::io;
use std::sync::Arc;

/// A cache of fixed capacity.
pub struct Cache(Arc<Pool>);

impl Cache {
    /// Creates a pool of `frames` frames with this replacement.
    pub fn new(frames: u32, replacement: ReplacementKind) -> Res<Self> {
        let config = PoolConfig { frames, replacement, ..PoolConfig::default() };
        let create = || {
            let io_pool = Arc::new(IoPool::new(1, "cache-io")?);
            Pool::new(config, Arc::new(NoDisk), Arc::new(NoLog), io_pool)
        };
        create().map(Self).map_err(|why: io::Error| format!("cannot start the pool: {why}"))
    }

    /// Returns the value of a cached key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let value = self.0.read_optimistic(PageId::from_u64(key), |page| page.array(HEADER));
        value.ok().flatten().map(u64::from_le_bytes)
    }

    /// Inserts a key, or replaces its value.
    ///
    /// # Panics
    /// If the pool has failed.
    pub fn insert(&self, key: u64, value: u64) {
        while let Err(missing) = self.try_insert(key, value) {
            // Holds the promise of a free frame during the next attempt.
            let _held = match self.0.fetch_blocking(missing) {
                Ok(pin) => pin,
                Err(why) => panic!("the pool has no free frame: {why}"),
            };
            if self.try_insert(key, value).is_ok() {
                return;
            }
        }
    }

    fn try_insert(&self, key: u64, value: u64) -> Result<(), MissingPage> {
        let mut page = self.0.create(PageId::from_u64(key), FileSpace::Usual)?;
        page[HEADER..][..size_of::<u64>()].copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
}

/// The disk of a pool that neither reads nor writes.
struct NoDisk;

impl PageIo for NoDisk {
    fn file(&self, _: PageId) -> Arc<str> {
        "no disk".into()
    }
    fn place(&self, id: PageId) -> Result<Place, PageError> {
        Err(PageError::NoFile(id))
    }
    fn accept(
        &self,
        id: PageId,
        _: &mut [u8; PAGE_SIZE],
        _: io::Result<usize>,
    ) -> Result<(), PageError> {
        Err(PageError::NoFile(id))
    }
    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError> {
        pages.first().map_or(Ok(()), |(id, _)| Err(PageError::NoFile(*id)))
    }
    fn sync(&self) -> Result<(), PageError> {
        Ok(())
    }
    fn restore_torn(&self) -> Result<usize, PageError> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replacement_evicts_and_hits() {
        for kind in ReplacementKind::all() {
            let cache = Cache::new(64, kind).unwrap();
            let mut hits = 0;
            for access in 0..20_000_u64 {
                let key = (access * access) % 251;
                match cache.get(key) {
                    Some(value) => {
                        assert_eq!(value, !key, "{kind}");
                        hits += 1;
                    }
                    None => cache.insert(key, !key),
                }
            }
            let cached = (0..251).filter(|key| cache.get(*key).is_some()).count();
            assert!((32..=64).contains(&cached), "{kind}: {cached}");
            assert!(hits > 0, "{kind}");
        }
    }

    #[test]
    fn threads_that_insert_the_same_keys_read_their_values() {
        let cache = Cache::new(16, ReplacementKind::default()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = clearway_testkit::Rng::new(thread);
                    for _ in 0..5_000 {
                        let key = random.below(40);
                        match cache.get(key) {
                            Some(value) => assert_eq!(value, !key),
                            None => cache.insert(key, !key),
                        }
                    }
                });
            }
        });
    }
}
