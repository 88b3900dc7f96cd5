//! What generators from the fifteenth on added.

use super::{FaultProfile, World};
use crate::rng::Rng;
use clearway_coordinator::{NodeConfig, SchemeKind, Stall};

/// The purpose of the draws of changes of schemes. Its number is chosen so that no seed of
/// `seeds.txt` and `canaries.txt` from before draws any.
pub(super) const CHANGES: &str = "changes of schemes, 25";
/// The purpose of the draws of long log records, with a number chosen in the same way.
pub(super) const LONG_RECORDS: &str = "long log records, 120";

impl World {
    /// Draws what the fifteenth generator added: INSERT ... SELECT outside of a block.
    pub(super) fn draw_copies(&mut self, rng: &mut Rng) {
        if rng.percent(20) {
            self.mix.copies = rng.pick(&[30, 80]);
        }
    }

    /// Draws what the sixteenth generator added: cursors, over results in parts of a few rows. The
    /// default configuration draws these sizes, too.
    pub(super) fn draw_cursors(&mut self, rng: &mut Rng) {
        if !rng.percent(30) {
            return;
        }
        self.mix.cursors = rng.pick(&[15, 40]);
        self.engine.stream_bytes = rng.pick(&[1, 1, 40, 200]);
        (self.mix.block, self.mix.alone) = (12, rng.pick(&[20, 50]));
        self.sessions = self.sessions.max(2);
        if rng.percent(60) {
            self.mix.levels = self.mix.levels.max(60);
        }
        if rng.percent(30) {
            self.mix.read_only = self.mix.read_only.max(30);
        }
    }

    /// Draws what the seventeenth generator added: tables that get a primary key later.
    pub(super) fn draw_keys(&mut self, rng: &mut Rng) {
        if rng.percent(15) {
            self.mix.keys_added = rng.pick(&[40, 70]);
            // Few rows among many keys: otherwise most tables would have duplicates.
            (self.mix.keys, self.mix.ddl) = (120, self.mix.ddl.max(10));
            self.sessions = self.sessions.max(2);
        }
    }

    /// Draws what the eighteenth generator added: sessions that cancel each other's statements and
    /// terminate each other's connections.
    pub(super) fn draw_signals(&mut self, rng: &mut Rng) {
        if rng.percent(20) {
            self.mix.signals = rng.pick(&[3, 12]);
            self.sessions = self.sessions.max(2);
        }
    }

    /// Draws the concurrency-control scheme, except in worlds with the default configuration.
    pub(super) fn draw_scheme(&mut self, rng: &mut Rng) {
        if !self.ships {
            // The order of these is fixed, so that kept seeds keep their meaning.
            let kinds = [SchemeKind::Hybrid, SchemeKind::Blocking, SchemeKind::Locking];
            self.engine.partition.scheme = rng.pick(&kinds);
        }
    }

    /// Draws what the nineteenth generator added: whether additions share their rows' locks from
    /// the first on.
    pub(super) fn draw_additions(&mut self, rng: &mut Rng) {
        self.engine.adds_at_once = !rng.percent(30);
    }

    /// Draws what the twentieth generator added: tables with a CHECK constraint on the column that
    /// statements add to.
    pub(super) fn draw_checks(&mut self, rng: &mut Rng) {
        if self.mix.adds > 0 && !self.mix.plain && rng.percent(40) {
            self.mix.checks = rng.pick(&[60, 100]);
        }
    }

    /// Draws what the twenty-first generator added: the speculative scheme.
    pub(super) fn draw_speculation(&mut self, rng: &mut Rng) {
        // Not with CHECK constraints: bugs at their bounds are rare, and these draws make them
        // rarer.
        if self.ships || self.mix.checks > 0 || !rng.percent(40) {
            return;
        }
        self.engine.partition.scheme = SchemeKind::Speculative;
        self.draw_several(rng);
    }

    /// Draws what the twenty-second generator added: sessions that change the schemes of
    /// partitions.
    pub(super) fn draw_changes(&mut self, rng: &mut Rng) {
        if self.ships || self.mix.checks > 0 || !rng.percent(12) {
            return;
        }
        self.mix.schemes = rng.pick(&[5, 20]);
        self.draw_several(rng);
        self.mix.partitions = self.engine.node.partitions.unwrap_or(1);
    }

    /// Draws stalls before decisions, and statements on several partitions, many of which fail or
    /// are cancelled at one of them.
    fn draw_several(&mut self, rng: &mut Rng) {
        self.engine.stall = rng.pick(&[Stall::None, Stall::Turns(1), Stall::Turns(2)]);
        self.engine.node.partitions = self.engine.node.partitions.map(|n| n.max(2));
        (self.mix.alone, self.mix.wide) = (rng.pick(&[80, 95, 100]), rng.pick(&[30, 60]));
        (self.mix.rows, self.mix.keys) = (rng.pick(&[3, 5]), rng.pick(&[6, 10, 40]));
        self.mix.cancels = rng.pick(&[0, 3, 10]);
        self.mix.ddl = self.mix.ddl.min(2);
        self.sessions = self.sessions.max(3);
    }

    /// Draws what the twenty-second generator added: the optimistic scheme, in worlds that would
    /// have the speculative one.
    pub(super) fn draw_validation(&mut self, rng: &mut Rng) {
        if self.engine.partition.scheme == SchemeKind::Speculative && rng.percent(33) {
            self.engine.partition.scheme = SchemeKind::Optimistic;
        }
    }

    /// Draws rows whose log records are longer than the unit in which the log is read. Only the
    /// default log buffer has room for them.
    pub(super) fn draw_long_records(&mut self, rng: &mut Rng) {
        // Rows as long as a full disk's reserve would all be refused.
        if !rng.percent(4) || self.faults == FaultProfile::Full {
            return;
        }
        let node = &mut self.engine.node;
        node.wal_buffer_size = NodeConfig::default().wal_buffer_size;
        node.wal_segment_size = rng.pick(&[1 << 20, 4 << 20]);
        node.frames = node.frames.max(1024);
        self.mix.long = (rng.pick(&[10, 30]), rng.pick(&[700_000, 1_500_000]));
        self.mix.rows = 3;
        self.statements = self.statements.min(20);
    }
}
