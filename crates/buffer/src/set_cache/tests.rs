use super::*;
use crate::policy::{Policy, Probe, S3Fifo};
use clearway_traces::generate;
use clearway_types::{FrameId, PageId};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// One multiplication: the same in every run.
#[derive(Default)]
struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Cache = SetCache<BuildHasherDefault<Multiplied>>;

fn cache(capacity: usize) -> Cache {
    Cache::with_hasher(capacity, BuildHasherDefault::default())
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// A set as the paper has it: queues, and ghosts by key.
struct Model {
    ways: usize,
    small: VecDeque<(u64, u64)>,
    main: VecDeque<(u64, u64)>,
    ghosts: VecDeque<Option<u64>>,
}

impl Model {
    fn small_ways(&self) -> usize {
        (self.ways / 10).max(1)
    }

    fn hit(&mut self, key: u64) -> bool {
        let found = self.small.iter_mut().chain(&mut self.main).find(|(there, _)| *there == key);
        found.map(|(_, uses)| *uses = (*uses + 1).min(3)).is_some()
    }

    fn evict_main(&mut self) {
        while let Some((key, uses)) = self.main.pop_front() {
            if uses == 0 {
                return;
            }
            self.main.push_back((key, uses - 1));
        }
    }

    fn miss(&mut self, key: u64) {
        if self.small.len() < self.small_ways() {
            return self.small.push_back((key, 0));
        }
        if self.small.len() + self.main.len() < self.ways {
            return self.main.push_back((key, 0));
        }
        if let Some(ghost) = self.ghosts.iter_mut().find(|ghost| **ghost == Some(key)) {
            *ghost = None;
            self.evict_main();
            return self.main.push_back((key, 0));
        }
        match self.small.pop_front() {
            Some((old, 2..)) if self.ways > 1 => {
                self.evict_main();
                self.main.push_back((old, 0));
            }
            old => {
                self.ghosts.push_back(old.map(|(key, _)| key));
                if self.ghosts.len() > self.ways {
                    self.ghosts.pop_front();
                }
            }
        }
        self.small.push_back((key, 0));
    }
}

#[test]
fn a_set_does_what_s3_fifo_does() {
    const KEYS: u64 = 120;
    let cache_of = |ways| cache(ways);
    let mut ghosts: Vec<u64> = (0..KEYS).map(|key| cache_of(1).hash(key).ghost()).collect();
    ghosts.sort_unstable();
    ghosts.dedup();
    assert_eq!(ghosts.len() as u64, KEYS, "no two of the keys are mistaken for each other");
    for ways in 2..=WAYS {
        let cache = cache_of(ways);
        let mut model = Model { ways, small: VecDeque::new(), main: VecDeque::new(), ghosts: VecDeque::new() };
        let (mut random, mut hits) = (ways as u64, 0);
        for access in 0..30_000 {
            // Few keys are used often, and which these are drifts.
            let (a, b) = (next(&mut random) % KEYS, next(&mut random) % KEYS);
            let key = (a * b / KEYS + access / 3_000) % KEYS;
            let found = cache.get(key);
            assert_eq!(found.is_some(), model.hit(key), "access {access} of {ways} ways");
            match found {
                Some(value) => {
                    assert_eq!(value, !key);
                    hits += 1;
                }
                None => {
                    cache.insert(key, !key);
                    model.miss(key);
                }
            }
        }
        assert!(hits > 1_000, "{hits} hits of {ways} ways");
    }
}

#[test]
fn a_cache_holds_exactly_its_capacity_and_the_last_values() {
    for capacity in [1, 2, 31, 32, 33, 64, 65, 100, 1_000] {
        let cache = cache(capacity);
        let keys = capacity as u64 * 3;
        let (mut random, mut last) = (1, HashMap::new());
        for access in 0..30_000_u64.max(keys * 10) {
            let key = next(&mut random) % keys;
            match next(&mut random) % 4 {
                0 => {
                    let removed = cache.remove(key);
                    assert!(removed.is_none() || removed == last.remove(&key), "capacity {capacity}");
                    last.remove(&key);
                    assert_eq!(cache.get(key), None);
                }
                1 | 2 => {
                    cache.insert(key, access);
                    last.insert(key, access);
                    assert_eq!(cache.get(key), Some(access), "what was inserted is there");
                }
                _ => {
                    let found = cache.get(key);
                    assert!(found.is_none() || found == last.get(&key).copied(), "capacity {capacity}");
                }
            }
        }
        (0..keys * 4).for_each(|key| cache.insert(key, key));
        let there = (0..keys * 4).filter(|key| cache.get(*key).is_some()).count();
        assert_eq!(there, capacity);
    }
}

#[test]
#[should_panic(expected = "a cache of nothing")]
fn there_is_no_cache_of_nothing() {
    cache(0);
}

/// Every key and value may be any number.
#[test]
fn no_number_is_special() {
    let cache = cache(32);
    for key in [0, 1, u64::MAX, 1 << 63] {
        assert_eq!(cache.get(key), None);
        for value in [u64::MAX, 0] {
            cache.insert(key, value);
            assert_eq!(cache.get(key), Some(value));
        }
    }
    assert_eq!((cache.remove(0), cache.remove(0), cache.get(0)), (Some(0), None, None));
}

#[test]
fn lanes_are_searched_exactly() {
    let mut random = 1;
    for _ in 0..10_000 {
        // Few values, neighbours among them: carries and borrows would show.
        let bytes: [u8; 8] =
            std::array::from_fn(|_| [0, 1, 2, 127, 128, 129, 254, 255][next(&mut random) as usize % 8]);
        let shorts: [u16; 4] =
            std::array::from_fn(|_| [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff][next(&mut random) as usize % 8]);
        for of in [0, 1, 2, 127, 128, 129, 254, 255_u8] {
            let found = bytes_that_are(u64::from_le_bytes(bytes), of);
            assert_eq!(found.to_le_bytes(), bytes.map(|byte| if byte == of { 0x80 } else { 0 }));
        }
        for of in [1, 2, 0x7fff, 0x8000, 0xffff_u16] {
            let word = shorts.iter().rev().fold(0, |word, short| word << 16 | u64::from(*short));
            let found = shorts_that_are(word, of.into());
            let lanes: [u16; 4] = std::array::from_fn(|at| (found >> (16 * at)) as u16);
            assert_eq!(lanes, shorts.map(|short| if short == of { 0x8000 } else { 0 }));
        }
    }
}

fn s3_fifo_hits(pages: &[u32], frames: u32) -> usize {
    let (mut policy, mut frame_of, mut holds) = (S3Fifo::new(frames), HashMap::new(), Vec::new());
    let mut hits = 0;
    for no in pages {
        if let Some(frame) = frame_of.get(no) {
            policy.hit(*frame);
            hits += 1;
            continue;
        }
        let frame = if holds.len() < frames as usize {
            holds.push(*no);
            FrameId(holds.len() as u32 - 1)
        } else {
            let frame = policy.evict(None, &mut |_| Probe::Take).expect("a full pool has a victim");
            frame_of.remove(&std::mem::replace(&mut holds[frame.0 as usize], *no));
            frame
        };
        policy.miss(frame, PageId::from_u64(u64::from(*no)));
        frame_of.insert(*no, frame);
    }
    hits
}

#[test]
fn sets_hit_nearly_as_often_as_one_s3_fifo_over_everything() {
    for trace in [generate::zipf(20_000, 0.9, 200_000, 1), generate::oltp(20_000, 200_000, 1)] {
        let cache = cache(2_000);
        let mut hits = 0;
        for no in &trace.pages {
            match cache.get(u64::from(*no)) {
                Some(_) => hits += 1,
                None => cache.insert(u64::from(*no), 0),
            }
        }
        let percent = |hits: usize| 100.0 * hits as f64 / trace.pages.len() as f64;
        let (sets, whole) = (percent(hits), percent(s3_fifo_hits(&trace.pages, 2_000)));
        assert!(sets > whole - 1.0, "{}: {sets:.2} beside {whole:.2} %", trace.name);
    }
}

/// Invariant 2: with one writer for each key, whose values grow, nobody sees a value of another key, or an old one after a new one.
#[test]
fn threads_see_values_in_their_order() {
    const WRITERS: u64 = 3;
    const KEYS: u64 = 24;
    for capacity in [4, 16, 40] {
        let cache = cache(capacity);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let cache = &cache;
                scope.spawn(move || {
                    let (mut random, mut seen) = (thread + 1, [0_u64; KEYS as usize]);
                    for step in 1..20_000_u64 {
                        let key = next(&mut random) % KEYS;
                        if key % WRITERS == thread {
                            let value = step * KEYS + key;
                            if step.is_multiple_of(7) {
                                let removed = cache.remove(key);
                                assert!(removed.is_none_or(|value| value == seen[key as usize]));
                                assert_eq!(cache.get(key), None);
                            } else {
                                cache.insert(key, value);
                                seen[key as usize] = value;
                            }
                        } else if let Some(value) = cache.get(key) {
                            assert_eq!(value % KEYS, key);
                            assert!(value >= seen[key as usize]);
                            seen[key as usize] = value;
                        }
                    }
                });
            }
        });
        assert!((0..KEYS).filter(|key| cache.get(*key).is_some()).count() <= capacity);
    }
}
