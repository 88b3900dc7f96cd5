//! Faults of files that the engine can do without, and small memory for versions, which one of them
//! spills.

use super::{SECOND_LEVEL, World};
use crate::rng::Rng;
use clearway_testkit::{FOR_EVER, Fault, FaultZone, Role, When};

/// Draws the faults of the second level's file.
pub fn bad_second_level(rng: &mut Rng) -> FaultZone {
    bad_cache(rng, "second level", SECOND_LEVEL)
}

/// Draws the faults of a file that nothing depends on: damaged and failing reads, lost and misled
/// writes, and sometimes failing writes.
fn bad_cache(rng: &mut Rng, name: &'static str, path: &str) -> FaultZone {
    let when = When::OneIn(rng.pick(&[2, 20, 200]));
    let all = [
        Fault::FailedRead,
        Fault::UnreadableSector,
        Fault::ShortRead,
        Fault::FlippedBit,
        Fault::LostWrite,
        Fault::MisledWrite,
    ];
    // No delays: a write that is left when the engine is dropped would wait for the clock, which
    // the dropping thread must advance.
    let zone = FaultZone::under(Role::Cache, name, path);
    // After the first failed write the file is not written any more.
    let zone = if rng.percent(30) {
        zone.fault(Fault::FailedWrite, When::OneIn(20), FOR_EVER)
    } else {
        zone
    };
    all.into_iter().fold(zone, |zone, fault| zone.fault(fault, when, FOR_EVER))
}

/// Draws the faults of the temporary file for versions. Sometimes opens fail, too.
pub fn bad_versions(rng: &mut Rng) -> FaultZone {
    let zone = bad_cache(rng, "versions", "/db/versions.tmp");
    if rng.percent(30) { zone.fault(Fault::FailedOpen, When::OneIn(3), FOR_EVER) } else { zone }
}

impl World {
    /// Draws what the eleventh generator added: too little memory for versions, and a spill file of
    /// any size. The default configuration draws these sizes, too.
    pub(super) fn draw_versions(&mut self, rng: &mut Rng) {
        if self.mix.read_only == 0 && self.mix.levels == 0 || !rng.percent(40) {
            return;
        }
        self.spills = true;
        self.engine.partition.version_memory = rng.pick(&[0, 0, 500, 3_000]);
        let slot = rng.pick(&[64, 64, 300, 2_048]);
        self.engine.node.version_slot = slot;
        self.engine.node.version_spill =
            slot as u64 * rng.pick(&[0, 20, 100, 100_000, 100_000, 100_000]);
    }
}
