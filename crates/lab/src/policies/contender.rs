//! What takes part as a cache: policies in wrappers in a [`Cache`], and the caches of three crates.
//!
//! All have the same capacity in entries of weight one, keys and values of eight bytes, and hash by
//! the same function but for the [`Cache`], which hashes as the pool does. Else the crates are as
//! they come: their numbers of shards and their policies are their defaults.

use super::cache::Cache;
use clearway_replacement::ReplacementKind;
use hashbrown::DefaultHashBuilder;
use std::fmt;

/// A cache that threads share.
pub trait Caching: Send + Sync {
    /// The value of a key that is cached.
    fn get(&self, key: u64) -> Option<u64>;
    /// Brings a key in.
    fn insert(&self, key: u64, value: u64);
}

impl Caching for Cache {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type QuickCache = quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, DefaultHashBuilder>;

impl Caching for QuickCache {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type Moka = moka::sync::Cache<u64, u64, DefaultHashBuilder>;

impl Caching for Moka {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key)
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

type Foyer = foyer_memory::Cache<u64, u64, DefaultHashBuilder, foyer_memory::CacheProperties>;

impl Caching for Foyer {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Self::get(self, &key).map(|entry| *entry.value())
    }
    fn insert(&self, key: u64, value: u64) {
        Self::insert(self, key, value);
    }
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A policy in a wrapper.
    Ours(ReplacementKind),
    /// quick_cache.
    QuickCache,
    /// moka. Its housekeeping is done by the threads that use it, now and then: until then it holds
    /// more than its capacity.
    Moka,
    /// The memory cache of foyer.
    Foyer,
}

/// The crates.
pub const PEERS: [Contender; 3] = [Contender::QuickCache, Contender::Moka, Contender::Foyer];

/// What is done with a cache, whichever it is.
pub trait Use {
    /// What comes of it.
    type Outcome;
    /// Does it.
    fn with<C: Caching>(self, cache: &C) -> Self::Outcome;
}

impl Contender {
    /// Makes an empty cache of so many entries, and uses it.
    pub fn with_new<U: Use>(self, capacity: u32, used: U) -> U::Outcome {
        let entries = capacity as usize;
        match self {
            Self::Ours(kind) => used.with(&Cache::new(capacity, kind)),
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
        }
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
