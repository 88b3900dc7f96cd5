//! A simulated cache of page numbers, which replays a trace under a policy.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId, PartitionId};

/// Returns the page for a number in a trace. The numbers are spread over three partitions, so that
/// policies see pages that differ in more than a small number, and neighbours within each
/// partition.
pub fn page(no: u32) -> PageId {
    PageId::new(PartitionId((no % 3) as u16), no / 3)
}

/// Returns the misses of the accesses in an initially empty cache with this number of frames.
pub fn misses(policy: &mut dyn Policy, frames: u32, pages: &[u32]) -> u64 {
    let distinct = pages.iter().max().map_or(0, |last| *last as usize + 1);
    let mut frame_of: Vec<Option<FrameId>> = vec![None; distinct];
    let mut page_of = Vec::with_capacity(frames as usize);
    let mut misses = 0;
    for no in pages {
        if let Some(frame) = frame_of[*no as usize] {
            policy.hit(frame);
            continue;
        }
        misses += 1;
        let frame = if page_of.len() < frames as usize {
            page_of.push(*no);
            FrameId(page_of.len() as u32 - 1)
        } else {
            let frame = policy
                .evict(Some(page(*no)), &mut |_| Probe::Take)
                .expect("a full cache has a victim");
            let left = std::mem::replace(&mut page_of[frame.0 as usize], *no);
            frame_of[left as usize] = None;
            frame
        };
        policy.miss(frame, page(*no));
        frame_of[*no as usize] = Some(frame);
    }
    misses
}

/// Returns the misses of the accesses in a pool that evicts `ahead` pages at once when no frame is
/// free, without naming the incoming page, as the pool's cooler does.
pub fn misses_when_freed_ahead(
    policy: &mut dyn Policy,
    frames: u32,
    ahead: u32,
    pages: &[u32],
) -> u64 {
    let distinct = pages.iter().max().map_or(0, |last| *last as usize + 1);
    let mut frame_of: Vec<Option<FrameId>> = vec![None; distinct];
    let mut page_of = vec![0; frames as usize];
    let mut free: Vec<_> = (0..frames).map(FrameId).collect();
    let mut misses = 0;
    for no in pages {
        if let Some(frame) = frame_of[*no as usize] {
            policy.hit(frame);
            continue;
        }
        misses += 1;
        if free.is_empty() {
            for _ in 0..ahead {
                let frame =
                    policy.evict(None, &mut |_| Probe::Take).expect("a full pool has a victim");
                frame_of[page_of[frame.0 as usize] as usize] = None;
                free.push(frame);
            }
        }
        let frame = free.pop().expect("frames were freed");
        page_of[frame.0 as usize] = *no;
        policy.miss(frame, page(*no));
        frame_of[*no as usize] = Some(frame);
    }
    misses
}
