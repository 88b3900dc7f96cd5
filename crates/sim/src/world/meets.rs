//! The worlds that can meet a planted bug: what the bug breaks must occur in them.

use super::World;
use clearway_coordinator::{SchemeKind, Stall};
use clearway_sync::canary::Bug;

impl World {
    /// Returns false if the world cannot meet the bug, or hardly, so that a search for it may skip
    /// the world.
    pub fn can_meet(&self, bug: Bug) -> bool {
        let (mix, engine, partition) = (&self.mix, &self.engine, &self.engine.partition);
        let additions = mix.adds > 0 && partition.increments;
        let snapshots = mix.read_only > 0 || mix.levels > 0;
        let repeatable = mix.levels > 0 && mix.repeatable > 0;
        match bug {
            Bug::StaleCopy => engine.node.second_level.is_some(),
            Bug::StaleHome => engine.node.partitions != Some(1),
            Bug::PackedForgotten => partition.many_locks <= 5,
            Bug::EarlyBlock => self.spills,
            Bug::HalfCommit
            | Bug::LateImage
            | Bug::EarlyFree
            | Bug::PrunedImage
            | Bug::NewTable => snapshots,
            Bug::NewIndex | Bug::EarlyDrop => snapshots && mix.ddl > 0,
            Bug::DirtyRead | Bug::SkippedRecheck => mix.levels > 0,
            Bug::LostUpdate | Bug::HiddenRow => repeatable,
            Bug::UnseenConflict => repeatable && mix.free > 0,
            Bug::UnheldImport => mix.imports > 0,
            Bug::SnapshotCopy => mix.copies > 0,
            Bug::UnheldCursor => mix.cursors > 0,
            Bug::UnlockedKey => mix.keys_added > 0,
            Bug::KeptCancel => mix.signals > 0 || mix.cancels > 0,
            Bug::HalfWhole => mix.whole > 0,
            Bug::UnsubtractedDelta
            | Bug::SharedIncrement
            | Bug::UnconvertedIncrement
            | Bug::PatchForAddition => additions,
            Bug::LosersById
            | Bug::SkippedDependency
            | Bug::KeptSuccessor
            | Bug::UnequalReplay
            | Bug::UnsettledError => partition.retire,
            Bug::EarlySpeculated | Bug::ReleasedUndo => self.speculates(),
            // The predecessor must be undecided for long enough.
            Bug::SkippedSpeculation => self.speculates() && !matches!(engine.stall, Stall::None),
            Bug::EagerFence => mix.schemes > 0,
            _ => true,
        }
    }

    fn speculates(&self) -> bool {
        self.engine.partition.scheme == SchemeKind::Speculative || self.mix.schemes > 0
    }
}
