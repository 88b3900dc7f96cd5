//! The death of an owner's node.

use super::{COMMITS, Life, Run, SEEDS, modes, with_cluster};
use crate::recovery::rebuild;
use clearway_fabric::sim::SimNode;
use clearway_fabric::{Fabric, Region};

impl Run<'_> {
    /// Kills the second owner's node. Checks the rows of the first after all workers have stopped.
    fn lose_owner(&mut self, nodes: &[SimNode]) {
        self.begin_all();
        self.advance(|run| run.committed >= COMMITS / 2);
        let mut events = self.rng.below(200);
        self.advance(|_| {
            events = events.saturating_sub(1);
            events == 0
        });
        self.network.crash_node(nodes[1].node());
        self.owner_lost = true;
        self.advance(|run| run.stopped.iter().all(|stopped| *stopped));
        self.regions[0].fence().unwrap();
        let outcomes = rebuild(&self.table, &[Some(&self.regions[0]), None], &[]);
        (self.completed, self.freed) = (outcomes.rows_completed, outcomes.exclusive_freed);
        self.lives.fill(Life::Silent);
        self.regions.truncate(1);
        self.check();
    }
}

/// When an owner's node dies, its rows are lost, and nothing else.
#[test]
fn an_owners_death_leaves_other_rows_intact() {
    let mut completed = 0;
    for mode in modes() {
        let mut freed = 0;
        for seed in 0..SEEDS {
            let (found, rows, locks) = with_cluster(seed, mode, None, |run, nodes| {
                run.lose_owner(nodes);
                (std::mem::take(&mut run.found), run.completed, run.freed)
            });
            assert!(
                found.is_clean(),
                "SEED={seed} {mode:?}: {:?}\n{}",
                found.broken,
                found.checked
            );
            (completed, freed) = (completed + rows, freed + locks);
        }
        println!("{mode:?}: {freed} exclusive locks freed");
        assert!(freed > 10, "{mode:?}: {freed}");
    }
    println!("{completed} rows completed");
    assert!(completed > 1, "{completed} rows completed in all modes");
}
