//! Locks that are retired: the next transaction gets the row before the one that changed it has
//! ended.

use super::World;
use crate::generate::Mix;
use crate::rng::Rng;

impl World {
    pub(super) fn draw_retired(&mut self, rng: &mut Rng) {
        if !rng.percent(25) {
            return;
        }
        let (adds, alone, rollbacks) =
            (rng.pick(&[40, 60, 90]), rng.pick(&[0, 10]), rng.pick(&[5, 20]));
        let (levels, repeatable, near) =
            (rng.pick(&[80, 100]), rng.pick(&[0, 10]), rng.percent(20));
        let whole = if rng.percent(20) { self.mix.whole } else { 0 };
        let mix = Mix { adds, near, alone, rollbacks, levels, repeatable, whole, ..self.mix };
        self.mix = Mix { keys: 4, ddl: 2, unique: 0, imports: 0, block: rng.pick(&[2, 4]), ..mix };
        self.sessions = self.sessions.max(3);
        let partition = &mut self.engine.partition;
        (partition.retire, partition.retire_cold) = (true, rng.percent(70));
        // Otherwise increments share the row.
        partition.increments = rng.percent(20);
        self.engine.replays = rng.pick(&[0, 1, 8, 8]);
        if rng.percent(70) {
            // Blocks that can run again and that see changes of others.
            let (reads, rollbacks) = (rng.pick(&[20, 40]), rng.pick(&[5, 20, 40]));
            let mix = Mix {
                plain: true,
                reads,
                rollbacks,
                wide: 5,
                repeatable: 0,
                ddl: 0,
                alone: 10,
                ..self.mix
            };
            let mix =
                Mix { hang_ups: 0, cancels: 0, scans: 0, updates_read: 0, levels: 100, ..mix };
            self.mix = Mix { block: rng.pick(&[3, 5]), ..mix };
            self.engine.partition.retire_cold = true;
        }
    }
}
