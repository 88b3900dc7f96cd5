//! Replays a trace in order on one thread, against a policy alone or in a wrapper. The misses
//! depend on nothing else, so one run is enough.
//!
//! A resident page is a hit. A missing page gets a frame that was never used, or else the policy's
//! first proposed victim.

use clearway_replacement::{Policy, Probe};
use clearway_traces::Trace;
use clearway_types::{FrameId, PageId, PartitionId};

const NOWHERE: u32 = u32::MAX;

/// Replacement state under test: receives hits and misses, and proposes victims.
pub trait PolicyState {
    /// Records a hit; `access` is the index of the access in the trace.
    fn hit(&mut self, access: usize, frame: FrameId, page: PageId);
    /// Records that a page was loaded into a frame.
    fn miss(&mut self, access: usize, frame: FrameId, page: PageId);
    /// Proposes victims to `probe`.
    fn evict(
        &mut self,
        access: usize,
        incoming: PageId,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId>;
}

/// A policy without a wrapper.
impl PolicyState for Box<dyn Policy> {
    fn hit(&mut self, _: usize, frame: FrameId, _: PageId) {
        (**self).hit(frame);
    }
    fn miss(&mut self, _: usize, frame: FrameId, page: PageId) {
        (**self).miss(frame, page);
    }
    fn evict(
        &mut self,
        _: usize,
        incoming: PageId,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        (**self).evict(Some(incoming), probe)
    }
}

/// Returns the page with this number in a trace.
pub fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Replays the trace on a pool of `frames` frames and returns the misses. Fails if a full pool
/// finds no victim.
pub fn misses(state: &mut impl PolicyState, trace: &Trace, frames: u32) -> Result<u64, String> {
    let mut frame_of = vec![NOWHERE; trace.distinct as usize];
    let mut holds = Vec::with_capacity(frames as usize);
    let mut misses = 0;
    for (access, no) in trace.pages.iter().enumerate() {
        let at = frame_of[*no as usize];
        if at != NOWHERE {
            state.hit(access, FrameId(at), page(*no));
            continue;
        }
        misses += 1;
        let frame = if holds.len() < frames as usize {
            holds.push(*no);
            FrameId(holds.len() as u32 - 1)
        } else {
            let victim = state.evict(access, page(*no), &mut |_| Probe::Take);
            let victim =
                victim.ok_or_else(|| format!("{}: no victim at access {access}", trace.name))?;
            let left = std::mem::replace(&mut holds[victim.0 as usize], *no);
            frame_of[left as usize] = NOWHERE;
            victim
        };
        frame_of[*no as usize] = frame.0;
        state.miss(access, frame, page(*no));
    }
    Ok(misses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_replacement::PolicyKind;
    use clearway_traces::{generate, opt_misses};

    #[test]
    fn lru_misses_match_a_hand_count() {
        let trace = Trace::new("t", [1, 2, 3, 1, 4, 1, 2]);
        // With three frames, page 2 is the least recently used when page 4 arrives.
        assert_eq!(misses(&mut PolicyKind::Lru.build(3), &trace, 3), Ok(5));
        assert_eq!(misses(&mut PolicyKind::Lru.build(4), &trace, 4), Ok(4));
    }

    #[test]
    fn no_policy_beats_the_optimum() {
        for trace in generate::all(50, 5_000, 3) {
            let optimum = opt_misses(&trace.pages, 50);
            for kind in PolicyKind::ALL {
                let misses = misses(&mut kind.build(50), &trace, 50);
                assert!(
                    misses.as_ref().is_ok_and(|m| (optimum..=5_000).contains(m)),
                    "{kind}: {misses:?}"
                );
            }
        }
    }
}
