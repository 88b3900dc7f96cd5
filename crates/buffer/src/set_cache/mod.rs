//! A cache of numbers by numbers that threads share: many small sets, each with an S3-FIFO of its own.
//!
//! A key belongs to one set by its hash, and a set has [`WAYS`] places at most. What threads on different cores pay for is the cache lines that travel
//! between them. So a set lies together, and most calls touch two or three of its lines: one with its latch and version and, of all places, the tags and the
//! counts of uses; one with the ghosts, which is for misses only; and behind them the places, four in a line, those of the small queue first.
//!
//! A hit takes no latch: it reads between two looks at the version, and writes nothing but the use, and not that where the count is at its bound. What
//! changes a set takes its latch, once. What was inserted is found at once, by everybody, until it is evicted, removed or replaced.
//!
//! # The policy
//! S3-FIFO over fixed places. A tenth of them are the small queue, a ring, and the others the main one, a clock: its hand takes a use from each place that
//! it passes, and stops where there is none. A new key takes the place of the oldest of the small queue. That leaves, and becomes a ghost; but if it was
//! used more than once, it takes the place of the main queue's victim. A key whose ghost is remembered goes to the main queue at once. There are as many
//! ghosts as places, and a ghost is 16 bits of a hash: one new key in some two thousand is mistaken for one. Against one S3-FIFO over everything some hits
//! are lost, since sets do not lend each other places.
//!
//! # Invariants
//! 1. A key is in its own set only, and in one place at most; a place whose tag is [`FREE`] or [`NO_PLACE`] has none.
//! 2. The version is odd while the set is changed, and another after each change: what was read between two equal, even versions belongs together (up to
//!    2^31 changes).
//! 3. Uses are lowered under the latch only, and raised up to [`MOST_USES`]; one that comes as its key leaves may count for the next key.
//!
//! # Locking
//! A set's latch, with nothing under it. Who finds the version odd or changed tries again, and after [`ATTEMPTS`] times takes the latch.
//!
//! # Source
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023, algorithm 1; sequence locks: Boehm, MSPC 2012; tags searched
//! a word at a time: Lamport, Multiple byte processing with full-word instructions, CACM 1975.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use clearway_latch::{Guard, Latched, ParkLatch};
use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use clearway_sync::hint;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Range;

/// Places of a set.
const WAYS: usize = 32;
/// One place in so many is the small queue's, but one at least.
const PLACES_A_SMALL: usize = 10;
/// Looks without the latch before a reader takes it.
const ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 8 };

/// The tag of a place that has no key.
const FREE: u8 = 0;
/// The tag of a place that this set has not.
const NO_PLACE: u8 = u8::MAX;

/// A place's uses.
const USES: u64 = 0b11;
const USES_BITS: usize = 2;
/// Uses are counted up to this.
const MOST_USES: u64 = 3;

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
const EACH_SHORT: u64 = 0x0001_0001_0001_0001;

/// A cache of some number of keys, hashed by `S`. A set holds up to 32 of them, so that keys with equal hashes drive each other out: `S` should mix
/// well, and be seeded where keys come from outside.
///
/// ```
/// use clearway_buffer::SetCache;
/// use std::hash::RandomState;
///
/// let squares = SetCache::with_hasher(1000, RandomState::new());
/// assert_eq!(squares.get(12), None);
/// squares.insert(12, 144);
/// assert_eq!(squares.get(12), Some(144));
/// assert_eq!(squares.remove(12), Some(144));
/// ```
pub struct SetCache<S> {
    sets: Box<[Set]>,
    hasher: S,
    /// The places of a set, and how many sets have one more.
    ways: usize,
    wider: usize,
}

/// 640 bytes: a line that every call touches, a line for misses, and the places.
#[repr(C, align(64))]
struct Set {
    latch: Latched<(), ParkLatch>,
    version: AtomicU32,
    /// A byte each, see [`Hand`].
    hands: AtomicU32,
    /// Two bits a place.
    uses: AtomicU64,
    /// A byte a place: [`FREE`], [`NO_PLACE`], or part of the hash of the key there.
    tags: [AtomicU64; WAYS / 8],
    ghosts: Ghosts,
    places: [Place; WAYS],
}

/// Sixteen bits each, 0 for none.
#[repr(align(64))]
struct Ghosts([AtomicU64; WAYS / 4]);

/// The next place to be looked at of a queue: how far its byte is up in [`Set::hands`].
#[derive(Clone, Copy)]
enum Hand {
    Small = 0,
    Main = 8,
    Ghosts = 16,
}

struct Place {
    key: AtomicU64,
    value: AtomicU64,
}

/// What a set is to know of a key's hash.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn tag(self) -> u8 {
        (self.0 as u8).clamp(FREE + 1, NO_PLACE - 1)
    }

    fn ghost(self) -> u64 {
        u64::from(((self.0 >> 8) as u16).max(1))
    }
}

/// The highest bit of each byte that is `byte`.
#[inline(always)]
fn bytes_that_are(word: u64, byte: u8) -> u64 {
    zeroes(word ^ (EACH_BYTE * u64::from(byte)), EACH_BYTE * 0x7f)
}

/// The highest bit of each of the four numbers that is `short`.
#[inline(always)]
fn shorts_that_are(word: u64, short: u64) -> u64 {
    zeroes(word ^ (EACH_SHORT * short), EACH_SHORT * 0x7fff)
}

/// The highest bit of each lane that is zero; `rest` has all other bits of the lanes. Exact: no lane carries into the next.
#[inline(always)]
fn zeroes(word: u64, rest: u64) -> u64 {
    !(((word & rest) + rest) | word | rest)
}

impl Set {
    fn new(ways: usize) -> Self {
        let tag = |place| if place < ways { FREE } else { NO_PLACE };
        let tags = |word| u64::from_le_bytes(std::array::from_fn(|byte| tag(word * 8 + byte)));
        Self {
            latch: Latched::new(()),
            version: AtomicU32::new(0),
            hands: AtomicU32::new(0),
            uses: AtomicU64::new(0),
            tags: std::array::from_fn(|word| AtomicU64::new(tags(word))),
            ghosts: Ghosts(std::array::from_fn(|_| AtomicU64::new(0))),
            places: std::array::from_fn(|_| Place { key: AtomicU64::new(0), value: AtomicU64::new(0) }),
        }
    }

    /// The place of a key. Relaxed loads, here and in all below: under the latch, or between two looks at the version.
    #[inline(always)]
    fn find(&self, tag: u8, key: u64) -> Option<usize> {
        for (word, tags) in self.tags.iter().enumerate() {
            let mut found = bytes_that_are(tags.load(Ordering::Relaxed), tag);
            while found != 0 {
                let place = word * 8 + found.trailing_zeros() as usize / 8;
                if self.places[place].key.load(Ordering::Relaxed) == key {
                    return Some(place);
                }
                found &= found - 1;
            }
        }
        None
    }

    #[inline(always)]
    fn get(&self, tag: u8, key: u64) -> Option<u64> {
        for _ in 0..ATTEMPTS {
            // Acquire: pairs with the Release in `Change::drop`: what is read is at least as new as the version.
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let found = self.find(tag, key).map(|place| (place, self.places[place].value.load(Ordering::Relaxed)));
                // Pairs with the fence in `change`: had anything been of a later change, the version would have moved on.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    let (place, value) = found?;
                    self.count_use(place);
                    return Some(value);
                }
            }
            hint::spin_loop();
        }
        self.get_latched(tag, key)
    }

    #[cold]
    #[inline(never)]
    fn get_latched(&self, tag: u8, key: u64) -> Option<u64> {
        let _latch = self.latch.lock();
        let place = self.find(tag, key)?;
        self.count_use(place);
        Some(self.places[place].value.load(Ordering::Relaxed))
    }

    /// Relaxed: advice for the policy.
    #[inline(always)]
    fn count_use(&self, place: usize) {
        let at = USES_BITS * place;
        let mut uses = self.uses.load(Ordering::Relaxed);
        while (uses >> at) & USES < MOST_USES {
            match self.uses.compare_exchange_weak(uses, uses + (1 << at), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => uses = now,
            }
        }
    }

    /// Begins a change, for as long as what is returned lives.
    #[inline]
    fn change(&self) -> Change<'_> {
        let latch = self.latch.lock();
        // Relaxed: changed under the latch only.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `get`: whoever reads what is written from here on sees the odd version.
        fence(Ordering::Release);
        Change { set: self, _latch: latch }
    }
}

/// A set whose latch is held.
struct Change<'a> {
    set: &'a Set,
    _latch: Guard<'a, (), ParkLatch>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let version = self.set.version.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.set.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

impl Change<'_> {
    fn set_tag(&self, place: usize, tag: u8) {
        let (word, at) = (&self.set.tags[place / 8], place % 8 * 8);
        let others = word.load(Ordering::Relaxed) & !(0xff << at);
        word.store(others | u64::from(tag) << at, Ordering::Relaxed);
    }

    fn fill(&self, place: usize, tag: u8, key: u64, value: u64) {
        self.set_tag(place, tag);
        self.set.places[place].key.store(key, Ordering::Relaxed);
        self.set.places[place].value.store(value, Ordering::Relaxed);
    }

    fn free(&self) -> Option<usize> {
        let free = |(word, tags): (usize, &AtomicU64)| {
            let found = bytes_that_are(tags.load(Ordering::Relaxed), FREE);
            (found != 0).then(|| word * 8 + found.trailing_zeros() as usize / 8)
        };
        self.set.tags.iter().enumerate().find_map(free)
    }

    /// A place for a new key, in a set of so many places that are all taken.
    fn make_room(&self, ways: usize, incoming: Hash, hash: impl Fn(u64) -> Hash) -> usize {
        let small = (ways / PLACES_A_SMALL).max(1);
        let (small, main) = (0..small, small..ways);
        if !main.is_empty() && self.take_ghost(incoming.ghost()) {
            return self.main_victim(main);
        }
        let (set, at) = (self.set, self.hand(Hand::Small, &small));
        self.set_hand(Hand::Small, at + 1);
        let (key, uses_at) = (set.places[at].key.load(Ordering::Relaxed), USES_BITS * at);
        let (old, uses) = (hash(key), (set.uses.load(Ordering::Relaxed) >> uses_at) & USES);
        if uses > 1 && !main.is_empty() {
            self.fill(self.main_victim(main), old.tag(), key, set.places[at].value.load(Ordering::Relaxed));
        } else {
            self.add_ghost(ways, old.ghost());
        }
        if uses > 0 {
            set.uses.fetch_and(!(USES << uses_at), Ordering::Relaxed);
        }
        at
    }

    /// The place in the main queue that the hand comes to whose key was not used. Ends: an exchange that fails has had a use counted, and as long as
    /// none succeeds there are [`MOST_USES`] of these a place.
    fn main_victim(&self, main: Range<usize>) -> usize {
        let first = self.hand(Hand::Main, &main);
        let mut uses = self.set.uses.load(Ordering::Relaxed);
        loop {
            let (mut left, mut place) = (uses, first);
            while (left >> (USES_BITS * place)) & USES > 0 {
                left -= 1 << (USES_BITS * place);
                place = if place + 1 < main.end { place + 1 } else { main.start };
            }
            match self.set.uses.compare_exchange(uses, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.set_hand(Hand::Main, place + 1);
                    return place;
                }
                Err(now) => uses = now,
            }
        }
    }

    /// Where the hand is among these places; the first, if it is beyond.
    fn hand(&self, hand: Hand, of: &Range<usize>) -> usize {
        let at = (self.set.hands.load(Ordering::Relaxed) >> hand as u32) as u8 as usize;
        if of.contains(&at) { at } else { of.start }
    }

    fn set_hand(&self, hand: Hand, to: usize) {
        let others = self.set.hands.load(Ordering::Relaxed) & !(0xff << hand as u32);
        self.set.hands.store(others | (to as u32) << hand as u32, Ordering::Relaxed);
    }

    /// Forgets the ghost, if it is remembered.
    fn take_ghost(&self, ghost: u64) -> bool {
        let take = |word: &AtomicU64| {
            let ghosts = word.load(Ordering::Relaxed);
            let found = shorts_that_are(ghosts, ghost);
            if found != 0 {
                let at = found.trailing_zeros() - 15;
                word.store(ghosts & !(0xffff << at), Ordering::Relaxed);
            }
            found != 0
        };
        self.set.ghosts.0.iter().any(take)
    }

    /// In the place of the oldest of so many.
    fn add_ghost(&self, most: usize, ghost: u64) {
        let hand = self.hand(Hand::Ghosts, &(0..most));
        self.set_hand(Hand::Ghosts, hand + 1);
        let (word, at) = (&self.set.ghosts.0[hand / 4], hand % 4 * 16);
        let others = word.load(Ordering::Relaxed) & !(0xffff << at);
        word.store(others | ghost << at, Ordering::Relaxed);
    }
}

impl<S: BuildHasher> SetCache<S> {
    /// An empty cache of exactly `capacity` keys. It takes 20 bytes a key.
    ///
    /// # Panics
    /// If the capacity is 0.
    pub fn with_hasher(capacity: usize, hasher: S) -> Self {
        assert!(capacity > 0, "a cache of nothing");
        let sets = capacity.div_ceil(WAYS);
        let (ways, wider) = (capacity / sets, capacity % sets);
        let sets = (0..sets).map(|set| Set::new(ways + usize::from(set < wider))).collect();
        Self { sets, hasher, ways, wider }
    }

    /// The value of a key that is in the cache.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let hash = self.hash(key);
        self.sets[self.set_of(hash)].get(hash.tag(), key)
    }

    /// Puts a key with its value into the cache, in the place of the value that it has there, if any.
    #[inline]
    pub fn insert(&self, key: u64, value: u64) {
        let hash = self.hash(key);
        let at = self.set_of(hash);
        let change = self.sets[at].change();
        if let Some(place) = change.set.find(hash.tag(), key) {
            return change.set.places[place].value.store(value, Ordering::Relaxed);
        }
        let ways = self.ways + usize::from(at < self.wider);
        let place = change.free().unwrap_or_else(|| change.make_room(ways, hash, |key| self.hash(key)));
        change.fill(place, hash.tag(), key, value);
    }

    /// Takes a key out of the cache: its value, if it was there.
    pub fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hash(key);
        let change = self.sets[self.set_of(hash)].change();
        let place = change.set.find(hash.tag(), key)?;
        change.set_tag(place, FREE);
        change.set.uses.fetch_and(!(USES << (USES_BITS * place)), Ordering::Relaxed);
        Some(change.set.places[place].value.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn hash(&self, key: u64) -> Hash {
        Hash(self.hasher.hash_one(key))
    }

    /// By the high bits, as tag and ghost are the low ones.
    #[inline(always)]
    fn set_of(&self, hash: Hash) -> usize {
        ((u128::from(hash.0) * self.sets.len() as u128) >> 64) as usize
    }
}

impl<S> fmt::Debug for SetCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetCache of {} sets", self.sets.len())
    }
}
