//! A trace run over in order, by a policy alone or in a wrapper: which accesses miss depends on
//! nothing else, so that one run is enough.
//!
//! A page that is resident is a hit. For one that is not, a frame that was never used is taken, or
//! else the policy's first proposal.

use clearway_replacement::{Policy, Probe};
use clearway_traces::Trace;
use clearway_types::{FrameId, PageId, PartitionId};

const NOWHERE: u32 = u32::MAX;

/// What is told of accesses, and asked for victims.
pub trait Told {
    /// `access` is the number of the access in the trace.
    fn hit(&mut self, access: usize, frame: FrameId, page: PageId);
    /// A page was brought into a frame.
    fn miss(&mut self, access: usize, frame: FrameId, page: PageId);
    /// Proposes victims.
    fn evict(
        &mut self,
        access: usize,
        incoming: PageId,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId>;
}

/// A policy alone.
impl Told for Box<dyn Policy> {
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

/// The page of that number in a trace.
pub fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// How often a pool of `frames` frames misses. An error if a full pool has no victim.
pub fn misses(told: &mut impl Told, trace: &Trace, frames: u32) -> Result<u64, String> {
    let mut frame_of = vec![NOWHERE; trace.distinct as usize];
    let mut holds = Vec::with_capacity(frames as usize);
    let mut misses = 0;
    for (access, no) in trace.pages.iter().enumerate() {
        let at = frame_of[*no as usize];
        if at != NOWHERE {
            told.hit(access, FrameId(at), page(*no));
            continue;
        }
        misses += 1;
        let frame = if holds.len() < frames as usize {
            holds.push(*no);
            FrameId(holds.len() as u32 - 1)
        } else {
            let victim = told.evict(access, page(*no), &mut |_| Probe::Take);
            let victim =
                victim.ok_or_else(|| format!("{}: no victim at access {access}", trace.name))?;
            let left = std::mem::replace(&mut holds[victim.0 as usize], *no);
            frame_of[left as usize] = NOWHERE;
            victim
        };
        frame_of[*no as usize] = frame.0;
        told.miss(access, frame, page(*no));
    }
    Ok(misses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_replacement::PolicyKind;
    use clearway_traces::{generate, opt_misses};

    #[test]
    fn lru_misses_what_it_must() {
        let trace = Trace::new("t", [1, 2, 3, 1, 4, 1, 2]);
        // With three frames 2 is the least recently used when 4 comes.
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
