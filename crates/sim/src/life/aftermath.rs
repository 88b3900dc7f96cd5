//! Checks what a life leaves.
//!
//! A life ends with a crash of the machine, which loses whatever was not synced, or with the death
//! of the process, which loses nothing that was written. The result is opened twice. First on a
//! copy, where the judge reads how far the log goes and compares everything with the model. Then
//! for real, with crashes and kills at any operation of the recovery, repeatedly; afterwards the
//! contents must be the same.
//!
//! After a kill the log may contain more than any client knows, because it is in the system's
//! cache. Until a start completes, a crash may still lose that part; after that it must not,
//! because new clients may have seen it. The model goes as far as the shortest log.

use super::Story;
use crate::model::Model;
use crate::rng::Rng;
use crate::session::Shared;
use crate::world;
use clearway_testkit::MemDisk;
use clearway_types::Lsn;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Directory for restored backups.
const RESTORED: &str = "/restored";
/// More operations than any start needs.
const ALL: u64 = 1 << 40;

impl Story<'_> {
    /// Judges what a life has left, and returns the disk for the next one. `kills`: the process was
    /// killed; this generator draws what follows.
    pub(super) fn afterwards(
        &mut self,
        shared: &Shared,
        disk: &MemDisk,
        mut kills: Option<Rng>,
    ) -> Result<MemDisk, String> {
        let seed = self.rng.u64();
        let killed = kills.is_some();
        let disk = self.end(disk, killed, seed);
        if !shared.rotten().is_empty() {
            self.undecided = true;
            return match shared.commits_unanswered() {
                true => Ok(disk),
                false => self
                    .look_after(&disk, shared)
                    .map_err(|why| format!("after bits have flipped: {why}"))
                    .map(|()| disk),
            };
        }
        let what = if killed { "kill" } else { "crash" };
        // The judge works on a copy with the same contents.
        let copy = disk.copy();
        self.check(&copy).map_err(|why| format!("after the {what}: {why}"))?;
        self.note("the judge opens a copy");
        let (engine, bells) = self
            .open(&copy)
            .map_err(|e| format!("the directory cannot be opened after a {what}: {e}"))?;
        self.undecided = shared.commits_unanswered();
        if self.undecided {
            self.note("a commit was never answered: this life is judged by its history alone");
            self.chronicle_state(&engine, &bells)?;
            engine.shutdown().map_err(|e| format!("an orderly shutdown failed: {e}"))?;
            return Ok(disk);
        }
        let before = self.model.clone();
        let end = engine.report().log_end;
        shared.history.settle(&mut self.model, end)?;
        self.judge(&engine, &bells).map_err(|why| format!("after the first recovery: {why}"))?;
        engine.shutdown().map_err(|e| format!("an orderly shutdown failed: {e}"))?;
        drop(engine);
        self.judge_backups(&before, shared, &disk)?;
        if self.world.log_rots {
            self.flip_log(&disk.copy(), end.0)
                .map_err(|why| format!("after a bit of the log has flipped: {why}"))?;
        }
        let (disk, shortest) = self.recover(disk, end, &mut kills)?;
        if shortest < end {
            self.model = before;
            shared.history.settle(&mut self.model, shortest)?;
        }
        let copy = disk.copy();
        self.check(&copy).map_err(|why| format!("after crashes of recovery: {why}"))?;
        let (engine, bells) = self.open(&copy).map_err(|e| {
            format!("the directory cannot be opened after crashes of recovery: {e}")
        })?;
        self.judge(&engine, &bells).map_err(|why| format!("after crashes of recovery: {why}"))?;
        self.chronicle_state(&engine, &bells)?;
        engine.shutdown().map_err(|e| format!("an orderly shutdown failed: {e}"))?;
        drop(engine);
        if self.world.rots {
            let rotten = if self.rng.percent(70) { copy } else { disk.copy() };
            self.rot(&rotten).map_err(|why| format!("after bits have flipped: {why}"))?;
        }
        Ok(disk)
    }

    /// Continues like [`Story::afterwards`] when only the checker of histories judges.
    pub(super) fn only_look(
        &mut self,
        disk: &MemDisk,
        mut kills: Option<Rng>,
    ) -> Result<MemDisk, String> {
        let seed = self.rng.u64();
        let disk = self.end(disk, kills.is_some(), seed);
        let (engine, _) = self.open(&disk.copy()).map_err(|e| e.to_string())?;
        let end = engine.report().log_end;
        engine.shutdown().map_err(|e| e.to_string())?;
        let (disk, _) = self.recover(disk, end, &mut kills)?;
        let (engine, bells) = self.open(&disk.copy()).map_err(|e| e.to_string())?;
        self.chronicle_state(&engine, &bells)?;
        engine.shutdown().map_err(|e| e.to_string())?;
        Ok(disk)
    }

    /// Returns the disk for the next process.
    fn end(&mut self, disk: &MemDisk, killed: bool, seed: u64) -> MemDisk {
        self.report.count(if killed { "kills" } else { "crashes" }, 1);
        self.note(if killed {
            "the process is killed, the machine goes on"
        } else {
            "the machine crashes"
        });
        if killed { disk.kill() } else { disk.crash(seed) }
    }

    /// Recovers on a disk that stops, in some seeds with failing opens and lists, until a recovery
    /// succeeds. Returns the disk and the end of the shortest log. `end` is the end of the log
    /// before.
    fn recover(
        &mut self,
        mut disk: MemDisk,
        end: Lsn,
        kills: &mut Option<Rng>,
    ) -> Result<(MemDisk, Lsn), String> {
        let (mut shortest, mut promised, mut again) = (end, Lsn(0), kills.is_some());
        let mut denials = Rng::new(self.world.seed ^ end.0, "denials");
        while std::mem::take(&mut again) || self.rng.percent(40) {
            let mut after = self.rng.below(120);
            if let Some(kills) = kills
                && kills.percent(50)
            {
                after = ALL;
            }
            self.note(&format!("recovery with a disk that stops after {after} operations"));
            disk.fail_after(after);
            if self.world.denials && denials.percent(50) {
                disk.set_faults(Some(Arc::new(world::denials(&mut denials))));
            }
            let opened = self.open(&disk);
            disk.set_faults(None);
            if let Ok((engine, _)) = opened {
                promised = promised.max(engine.report().log_end);
                if after == ALL {
                    disk.fail_after(0);
                }
                // Fails if the disk has failed.
                let _as_it_may = engine.shutdown();
            }
            let killed = kills.as_mut().is_some_and(|kills| kills.percent(50));
            let seed = self.rng.u64();
            disk = self.end(&disk, killed, seed);
            if kills.is_some() && !killed {
                let (engine, _) = self
                    .open(&disk.copy())
                    .map_err(|e| format!("after crashes of recovery: {e}"))?;
                let found = engine.report().log_end;
                engine.shutdown().map_err(|e| format!("an orderly shutdown failed: {e}"))?;
                shortest = shortest.min(found);
                if found < promised {
                    return Err(format!(
                        "a start found log up to {promised}, but after a crash it ends at {found}"
                    ));
                }
            }
        }
        Ok((disk, shortest))
    }

    /// Fails unless each completed backup holds exactly what was committed up to its end.
    fn judge_backups(
        &mut self,
        before: &Model,
        shared: &Shared,
        disk: &MemDisk,
    ) -> Result<(), String> {
        for backup in shared.backups() {
            self.note(&format!("the judge restores {}", backup.target));
            let what = |why: String| {
                format!("backup {}, which ends at {}: {why}", backup.target, backup.end)
            };
            if backup.end < backup.acknowledged {
                return Err(what(format!(
                    "a commit at {} was acknowledged before it began",
                    backup.acknowledged
                )));
            }
            let copy = disk.copy();
            let (from, to) = (Path::new(&backup.target), Path::new(RESTORED));
            let continue_always = &mut |_| ControlFlow::Continue(());
            clearway_storage::backup::restore(Arc::new(copy.clone()), from, to, continue_always)
                .map_err(|e| what(e.to_string()))?;
            let mut model = before.clone();
            shared.history.replay(&mut model, backup.end).map_err(&what)?;
            let (engine, bells) = self.open_at(&copy, RESTORED).map_err(|e| what(e.to_string()))?;
            self.judge_by(&model, &engine, &bells).map_err(&what)?;
            engine.shutdown().map_err(|e| what(format!("an orderly shutdown failed: {e}")))?;
            self.report.count("backups", 1);
        }
        Ok(())
    }
}
