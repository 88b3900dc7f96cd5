//! Counters, for the checker of histories.

use super::World;
use crate::generate::Mix;
use crate::rng::Rng;

/// The purpose of the draws. Its number is chosen so that the seeds of `canaries.txt` from before
/// draw no counters.
pub(super) const PURPOSE: &str = "counters, 59";

impl World {
    /// Draws short blocks that mostly add to a few counters, in half of the worlds.
    pub(super) fn draw_counters(&mut self, rng: &mut Rng) {
        if !rng.percent(50) {
            return;
        }
        let (counters, alone) = (rng.pick(&[50, 80, 95]), rng.pick(&[0, 10, 30]));
        let (block, rollbacks) = (rng.pick(&[2, 3, 5]), rng.pick(&[5, 20, 40]));
        self.mix = Mix { counters, alone, block, rollbacks, ..self.mix };
        self.sessions = self.sessions.max(3);
        self.engine.partition.learn_after = rng.pick(&[2, 16, 16]);
        if !self.engine.partition.retire {
            self.engine.partition.increments = rng.percent(90);
        } else if !self.engine.partition.increments {
            // Where increments share the row, its plan would learn not to.
            self.mix.sums = rng.pick(&[20, 50]);
        }
    }
}
