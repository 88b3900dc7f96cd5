//! Every interleaving of a look-up with one change of its set; up to loom's preemption bound.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-buffer --release --lib loom`. Sets of one and two places: place 0 is the small queue.

use super::*;
use loom::thread;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Keys below 2^5 have one tag, as they differ in bits that no tag has.
#[derive(Default)]
struct OneTag(u64);

impl Hasher for OneTag {
    fn finish(&self) -> u64 {
        self.0 << 8 | 7
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Cache = Arc<SetCache<BuildHasherDefault<OneTag>>>;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3));
    builder.check(check);
}

fn cache(capacity: usize) -> Cache {
    Arc::new(SetCache::with_hasher(capacity, BuildHasherDefault::default()))
}

/// Invariant 2: who reads while a key takes another's place sees the one, the other, or none; never the value of one with the key of another.
#[test]
fn loom_a_value_is_its_keys() {
    model(|| {
        let cache = cache(1);
        cache.insert(1, 10);
        let reads = {
            let cache = cache.clone();
            thread::spawn(move || (cache.get(1), cache.get(2)))
        };
        cache.insert(2, 20);
        let (first, second) = reads.join().unwrap();
        assert!(matches!(first, None | Some(10)) && matches!(second, None | Some(20)), "{first:?} {second:?}");
        assert_eq!((cache.get(1), cache.get(2)), (None, Some(20)));
    });
}

/// A key that moves from the small queue to the main one is found all the while.
#[test]
fn loom_a_key_that_moves_is_found() {
    model(|| {
        let cache = cache(2);
        cache.insert(1, 10);
        cache.insert(2, 20);
        assert_eq!((cache.get(1), cache.get(1)), (Some(10), Some(10)), "used twice");
        let reads = {
            let cache = cache.clone();
            thread::spawn(move || cache.get(1))
        };
        cache.insert(3, 30);
        assert_eq!(reads.join().unwrap(), Some(10));
        assert_eq!((cache.get(1), cache.get(2), cache.get(3)), (Some(10), None, Some(30)));
    });
}

/// Invariant 1, and nothing of two changes is lost: two threads bring the same key in, and the later value stays.
#[test]
fn loom_a_key_is_in_one_place() {
    model(|| {
        let cache = cache(2);
        let brings = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.insert(1, 10);
                assert!(matches!(cache.get(1), Some(10 | 11)));
            })
        };
        cache.insert(1, 11);
        assert!(matches!(cache.get(1), Some(10 | 11)));
        brings.join().unwrap();
        let value = cache.remove(1);
        assert!(matches!(value, Some(10 | 11)), "{value:?}");
        assert_eq!(cache.get(1), None, "it was in one place");
    });
}
