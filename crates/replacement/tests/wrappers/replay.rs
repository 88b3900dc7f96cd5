//! Replays a trace through a wrapped policy as many threads: a single OS thread acts as each of
//! them in turn.

use clearway_latch::conformance::as_thread;
use clearway_replacement::{Probe, Replacement};
use clearway_traces::Trace;
use clearway_types::{FrameId, PageId, PartitionId};

pub fn page(no: u32) -> PageId {
    PageId::new(PartitionId((no % 3) as u16), no / 3)
}

/// Returns the misses of an initially empty cache with this number of frames. The accesses come
/// from `threads` threads in turn.
pub fn misses(pages: &dyn Replacement, frames: u32, trace: &Trace, threads: u32) -> u64 {
    let mut frame_of: Vec<Option<FrameId>> = vec![None; trace.distinct as usize];
    let mut page_of = Vec::with_capacity(frames as usize);
    let mut misses = 0;
    for (at, no) in trace.pages.iter().enumerate() {
        as_thread(at as u32 % threads, || {
            if let Some(frame) = frame_of[*no as usize] {
                return pages.hit(frame, page(*no));
            }
            misses += 1;
            let frame = if page_of.len() < frames as usize {
                page_of.push(*no);
                FrameId(page_of.len() as u32 - 1)
            } else {
                let frame = pages
                    .evict(Some(page(*no)), &mut |_| Probe::Take)
                    .expect("a full cache has a victim");
                let left = std::mem::replace(&mut page_of[frame.0 as usize], *no);
                frame_of[left as usize] = None;
                frame
            };
            pages.miss(frame, page(*no));
            frame_of[*no as usize] = Some(frame);
        });
    }
    misses
}

/// Returns the hit ratio in percent of a kind of replacement, for example `lru/combining`.
pub fn hit_percent(
    kind: clearway_replacement::ReplacementKind,
    frames: u32,
    trace: &Trace,
    threads: u32,
) -> f64 {
    trace.hit_percent(misses(&*kind.build(frames), frames, trace, threads))
}
