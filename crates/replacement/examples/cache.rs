//! A cache of squares around a replacement: shows how a caller handles hits, misses and victims.
//!
//! `cargo run -p clearway-replacement --example cache -- [POLICY] [FRAMES]` prints how many of
//! 100,000 skewed look-ups hit. The cache is single-threaded, although the replacement could be
//! shared between threads.

use clearway_replacement::{Probe, Replacement, ReplacementKind};
use clearway_types::{FrameId, PageId, PartitionId};
use std::collections::HashMap;

/// Numbers and their squares, one entry per frame.
struct Squares {
    /// The content of each frame.
    frames: Vec<Option<(u32, u64)>>,
    frame_of: HashMap<u32, FrameId>,
    replacement: Box<dyn Replacement>,
    hits: u64,
}

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(0), number)
}

impl Squares {
    fn new(kind: ReplacementKind, frames: u32) -> Self {
        Self {
            frames: vec![None; frames as usize],
            frame_of: HashMap::new(),
            replacement: kind.build(frames),
            hits: 0,
        }
    }

    fn square(&mut self, number: u32) -> u64 {
        if let Some(&frame) = self.frame_of.get(&number)
            && let Some((_, square)) = self.frames[frame.0 as usize]
        {
            self.hits += 1;
            self.replacement.hit(frame, page(number));
            return square;
        }
        let square = u64::from(number).pow(2);
        let frame = self.free_frame(number);
        self.frames[frame.0 as usize] = Some((number, square));
        self.frame_of.insert(number, frame);
        self.replacement.miss(frame, page(number));
        square
    }

    /// Returns an empty frame, evicting if necessary. `incoming` is the page that the frame is for;
    /// some policies use it.
    fn free_frame(&mut self, incoming: u32) -> FrameId {
        if let Some(free) = self.frames.iter().position(Option::is_none) {
            return FrameId(free as u32);
        }
        // Every frame can be taken here. A pool answers `Skip` for a frame that is pinned or dirty.
        let victim = self.replacement.evict(Some(page(incoming)), &mut |_frame| Probe::Take);
        let victim = victim.expect("a full cache has a victim");
        if let Some((number, _)) = self.frames[victim.0 as usize].take() {
            self.frame_of.remove(&number);
        }
        victim
    }
}

/// Sends half of the look-ups to a tenth of the numbers.
fn look_up(squares: &mut Squares, times: u32) {
    let mut random = 1_u32;
    for _ in 0..times {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let number = if random & 1 == 0 { (random >> 1) % 100 } else { (random >> 1) % 1000 };
        assert_eq!(squares.square(number), u64::from(number).pow(2));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let kind: ReplacementKind =
        args.next().map_or(Ok(ReplacementKind::default()), |name| name.parse())?;
    let frames: u32 = args.next().map_or(Ok(200), |frames| frames.parse())?;
    let mut squares = Squares::new(kind, frames.max(1));
    look_up(&mut squares, 100_000);
    println!("{kind}, {frames} frames: {} of 100000 look-ups hit", squares.hits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replacement_keeps_the_popular_numbers() {
        for kind in ReplacementKind::all() {
            let mut squares = Squares::new(kind, 200);
            look_up(&mut squares, 20_000);
            let (most, least) = (16_000, 7_000);
            assert!((least..most).contains(&squares.hits), "{kind}: {} hits", squares.hits);
            assert_eq!(squares.frame_of.len(), 200, "{kind}");
        }
    }
}
