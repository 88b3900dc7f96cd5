//! Little memory for old versions of rows, and a file for the rest, on a disk that fails.

use super::{World, bad_cache};
use crate::rng::Rng;
use clearway_env::{FOR_EVER, Fault, When, Zone};

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
        self.engine.node.version_spill = slot as u64 * rng.pick(&[0, 20, 100, 100_000, 100_000, 100_000]);
    }
}
