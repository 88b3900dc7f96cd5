//! OPT: the fewest misses that any policy can have, with knowledge of the future.
//!
//! Source: Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems
//! Journal 5(2), 1966 (MIN).

use std::collections::BinaryHeap;

const NEVER: u32 = u32::MAX;

/// Returns the misses of a pool of `frames` frames that always evicts the page whose next use is
/// furthest away. O(log n) per access.
///
/// # Panics
/// Panics if `frames` is 0, or there are 2^32 - 1 accesses or more.
pub fn opt_misses(pages: &[u32], frames: u32) -> u64 {
    assert!(frames > 0 && pages.len() < NEVER as usize);
    let distinct = pages.iter().max().map_or(0, |last| *last as usize + 1);
    let mut upcoming = vec![NEVER; distinct];
    let mut next_use = vec![NEVER; pages.len()];
    for (at, page) in pages.iter().enumerate().rev() {
        next_use[at] = std::mem::replace(&mut upcoming[*page as usize], at as u32);
    }
    // Contains the next use of each resident page, and also uses that have passed. The passed ones
    // are smaller, so the maximum always belongs to a resident page.
    let mut resident = vec![false; distinct];
    let (mut free, mut misses, mut heap) = (frames, 0, BinaryHeap::new());
    for (at, page) in pages.iter().enumerate() {
        if !std::mem::replace(&mut resident[*page as usize], true) {
            misses += 1;
            if free > 0 {
                free -= 1;
            } else {
                let (_, victim): (u32, u32) = heap.pop().expect("a full pool has a page to evict");
                resident[victim as usize] = false;
            }
        }
        heap.push((next_use[at], *page));
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_testkit::Rng;

    /// Returns the misses of a model that searches for the furthest next use.
    fn model(pages: &[u32], frames: usize) -> u64 {
        let (mut pool, mut misses) = (Vec::new(), 0);
        for (at, page) in pages.iter().enumerate() {
            if pool.contains(page) {
                continue;
            }
            misses += 1;
            if pool.len() == frames {
                let next = |held: &u32| {
                    pages[at..].iter().position(|later| later == held).unwrap_or(usize::MAX)
                };
                let victim = (0..frames).max_by_key(|frame| next(&pool[*frame])).unwrap();
                pool.swap_remove(victim);
            }
            pool.push(*page);
        }
        misses
    }

    #[test]
    fn misses_match_the_model() {
        let mut rng = Rng::new(3);
        for frames in [1, 2, 3, 7, 20] {
            let pages: Vec<_> =
                (0..2000).map(|_| rng.below(1 + rng.clone().below(40)) as u32).collect();
            assert_eq!(
                opt_misses(&pages, frames),
                model(&pages, frames as usize),
                "{frames} frames"
            );
        }
        assert_eq!(opt_misses(&[], 1), 0);
    }
}
