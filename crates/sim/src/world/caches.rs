//! Files that the engine can do without, and what a disk does to them; little memory for what one
//! of them takes.

use super::{SECOND_LEVEL, World};
use crate::rng::Rng;
use clearway_env::{FOR_EVER, Fault, Role, When, Zone};

/// Everything that a disk can do to the second level.
pub fn bad_second_level(rng: &mut Rng) -> Zone {
    bad_cache(rng, "second level", SECOND_LEVEL)
}

/// Everything that a disk can do, in a file that nobody needs.
fn bad_cache(rng: &mut Rng, name: &'static str, path: &str) -> Zone {
    let when = When::OneIn(rng.pick(&[2, 20, 200]));
    let all = [
        Fault::FailedRead,
        Fault::UnreadableSector,
        Fault::ShortRead,
        Fault::FlippedBit,
        Fault::LostWrite,
        Fault::MisledWrite,
    ];
    // No delays: a write that is left over when the engine is dropped would sleep in a time that
    // the one who drops it is to move.
    let zone = Zone::under(Role::Cache, name, path);
    // After the first failed write there is none any more.
    let zone = if rng.percent(30) {
        zone.fault(Fault::FailedWrite, When::OneIn(20), FOR_EVER)
    } else {
        zone
    };
    all.into_iter().fold(zone, |zone, fault| zone.fault(fault, when, FOR_EVER))
}

/// Everything that a disk can do to the temporary file for versions.
pub fn bad_versions(rng: &mut Rng) -> Zone {
    let zone = bad_cache(rng, "versions", "/db/versions.tmp");
    if rng.percent(30) { zone.fault(Fault::FailedOpen, When::OneIn(3), FOR_EVER) } else { zone }
}

impl World {
    /// What came with the eleventh generator: memory for versions that is too small, and a file for
    /// the rest, of any size. These sizes are drawn of what ships, too.
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
