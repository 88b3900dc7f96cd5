//! The caches under test: the buffer pool with each replacement ([`Cache`]), and the caches of
//! three crates.
//!
//! All have the same capacity in entries of weight 1, with keys and values of 8 bytes; the pool has
//! that many frames. The crates use the same hash function. Otherwise they use their defaults for
//! shards and policies.

use super::cache::Cache;
use clearway_harness::Res;
use clearway_replacement::ReplacementKind;
use hashbrown::DefaultHashBuilder;
use std::fmt;

/// A cache shared by threads.
pub trait SharedCache: Send + Sync {
    /// Returns the value of a cached key.
    fn get(&self, key: u64) -> Option<u64>;
    /// Inserts a key.
    fn insert(&self, key: u64, value: u64);
}

impl SharedCache for Cache {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type QuickCache = quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, DefaultHashBuilder>;

impl SharedCache for QuickCache {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type Moka = moka::sync::Cache<u64, u64, DefaultHashBuilder>;

impl SharedCache for Moka {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type Foyer = foyer_memory::Cache<u64, u64, DefaultHashBuilder, foyer_memory::CacheProperties>;

impl SharedCache for Foyer {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key).map(|entry| *entry.value())
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

/// A cache under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The pool with this replacement.
    Ours(ReplacementKind),
    /// quick_cache.
    QuickCache,
    /// moka. Its callers run its housekeeping occasionally; in between it can exceed its capacity.
    Moka,
    /// foyer's in-memory cache.
    Foyer,
}

/// The cache crates.
pub const PEERS: [Contender; 3] = [Contender::QuickCache, Contender::Moka, Contender::Foyer];

/// An operation that is generic over the cache type.
pub trait CacheTask {
    /// Result of the operation.
    type Outcome;
    /// Runs the operation on a cache.
    fn with<C: SharedCache>(self, cache: &C) -> Self::Outcome;
}

impl Contender {
    /// Creates an empty cache of this capacity and runs the operation on it.
    pub fn with_new<U: CacheTask>(self, capacity: u32, used: U) -> Res<U::Outcome> {
        let entries = capacity as usize;
        Ok(match self {
            Self::Ours(kind) => used.with(&Cache::new(capacity, kind)?),
            Self::QuickCache => {
                let hash = DefaultHashBuilder::default();
                let (weighter, lifecycle) = (quick_cache::UnitWeighter, Default::default());
                used.with(&QuickCache::with(entries, entries as u64, weighter, hash, lifecycle))
            }
            Self::Moka => {
                let builder = moka::sync::Cache::builder().max_capacity(capacity.into());
                used.with(&builder.build_with_hasher(DefaultHashBuilder::default()))
            }
            Self::Foyer => {
                let builder = foyer_memory::CacheBuilder::new(entries);
                let cache: Foyer = builder.with_hash_builder(DefaultHashBuilder::default()).build();
                used.with(&cache)
            }
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(kind) => kind.fmt(f),
            Self::QuickCache => f.write_str("quick_cache"),
            Self::Moka => f.write_str("moka"),
            Self::Foyer => f.write_str("foyer"),
        }
    }
}
