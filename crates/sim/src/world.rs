//! The settings of one seed, each with ordinary and hostile values; and the faults of the disk.
//!
//! A life has one fault profile for all zones, with at most this many faults of each kind in each
//! zone:
//!
//! | zone | files | slow | failing reads | breaking | flipped bits |
//! |---|---|---|---|---|---|
//! | log | `wal/` | short reads and delays, no limit | delays, no limit | 1 write, 1 sync, 1 name; delays, no limit; in some seeds 1 open and 1 list | 1 of a copy, between lives |
//! | copies | double-write file | as above | as above | as above | none |
//! | pages | `data/` | as above | as above, and 20 reads | as above | 10 in the last life, when read; 4 of a copy, between lives |
//! | root | `control` | as above | as above | as above | none |
//!
//! Two files that the engine can do without have damaged and failing reads, lost writes and misled
//! writes without limit, in one of 2, 20 or 200 operations and under any profile. Sometimes writes
//! fail, too, and opens of `versions.tmp`. The second level's file has these faults in half of the
//! lives that have one; `versions.tmp` has them in a third of the lives with little memory for
//! versions.
//!
//! [`FaultPlan`]'s module says what the engine must do at each fault. Three other events are drawn:
//! - A life, and each recovery any number of times, may end with a crash at any operation or with
//!   the death of the process alone.
//! - The disk may be full for a while.
//! - Opens and lists may fail during a start.
//!
//! Half of the seeds run the default configuration: policy, wrapper, threads, batches, waits and
//! limits. They draw sizes (frames, segments, buffers, partitions, second level, cells of a node)
//! and the time between checkpoints: with the defaults, no page would leave the pool and no segment
//! the log. Some also draw the settings of retired locks, of memory for versions, and of results in
//! parts; most let additions share their rows' locks at once. The other half draws every setting.

mod caches;
mod counters;
mod later;
mod meets;
mod retired;
mod whole;

pub use caches::{bad_second_level, bad_versions};

use crate::generate::Mix;
use crate::rng::Rng;
use clearway_buffer::{FrameWaits, PAGE_SIZE, SecondLevelConfig};
use clearway_coordinator::{EngineConfig, Limits, NodeConfig};
use clearway_replacement::ReplacementKind;
use clearway_storage::SpaceWaits;
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, Role, When};
use std::time::Duration;

/// The faults of the disk besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultProfile {
    /// No faults.
    None,
    /// Short reads, and everything may take long.
    Slow,
    /// Reads of pages fail now and then.
    FailingReads,
    /// One write or sync of the log, of pages or their copies, or of the control file, or one
    /// directory operation fails.
    Breaking,
    /// The disk is full for a while.
    Full,
}

impl FaultProfile {
    const ALL: [Self; 8] = [
        Self::None,
        Self::None,
        Self::Slow,
        Self::FailingReads,
        Self::FailingReads,
        Self::Breaking,
        Self::Breaking,
        Self::Full,
    ];

    /// Returns true if the faults lose nothing and stop nothing.
    fn is_mild(self) -> bool {
        matches!(self, Self::None | Self::Slow | Self::FailingReads)
    }

    /// Draws the plan for a database in `/db`. `flips` is the number of bits to flip in pages that
    /// are read, `caches` lists other zones with faults.
    pub fn plan(
        self,
        rng: &mut Rng,
        denials: bool,
        flips: u64,
        caches: Vec<FaultZone>,
    ) -> Option<FaultPlan> {
        let (rare, often) = (When::OneIn(rng.pick(&[20, 100, 400])), When::OneIn(5));
        let bad = |zone: FaultZone| match self {
            Self::None | Self::Full => zone,
            Self::Slow => {
                zone.fault(Fault::ShortRead, rare, FOR_EVER).fault(Fault::Delay, rare, FOR_EVER)
            }
            Self::FailingReads => zone.fault(Fault::Delay, rare, FOR_EVER),
            Self::Breaking => {
                let zone =
                    zone.fault(Fault::FailedWrite, rare, 1).fault(Fault::FailedSync, rare, 1);
                let zone =
                    zone.fault(Fault::FailedName, rare, 1).fault(Fault::Delay, rare, FOR_EVER);
                if !denials {
                    return zone;
                }
                zone.fault(Fault::FailedOpen, often, 1).fault(Fault::FailedList, often, 1)
            }
        };
        let mut pages = bad(FaultZone::under(Role::Pages, "pages", "/db/data"));
        if self == Self::FailingReads {
            pages = pages.fault(Fault::FailedRead, rare, 20);
        }
        if flips > 0 {
            pages = pages.fault(Fault::FlippedBit, rare, flips);
        }
        let worse = !caches.is_empty();
        let mut zones = vec![
            bad(FaultZone::under(Role::Log, "log", "/db/wal")),
            bad(FaultZone::under(Role::Copies, "copies", "/db/data/double-write.data")),
            pages,
            bad(FaultZone::under(Role::Root, "root", "/db/control")),
        ];
        zones.extend(caches);
        let delay_limit = Duration::from_millis(rng.pick(&[1, 50, 2_000]));
        (worse || flips > 0 || !matches!(self, Self::None | Self::Full))
            .then(|| FaultPlan::new(rng.u64(), delay_limit, zones))
    }
}

/// Draws opens and lists that fail occasionally while a database in `/db` starts, as when the
/// process has too many open files.
pub fn denials(rng: &mut Rng) -> FaultPlan {
    let when = When::OneIn(rng.pick(&[3, 10, 40]));
    let zone = FaultZone::under(Role::Any, "everything", "/");
    let zone =
        zone.fault(Fault::FailedOpen, when, FOR_EVER).fault(Fault::FailedList, when, FOR_EVER);
    FaultPlan::new(rng.u64(), Duration::ZERO, vec![zone])
}

/// Where the second level is.
pub const SECOND_LEVEL: &str = "/ssd";

/// Draws a second level for three of ten seeds, from the smallest to one that holds everything.
fn second_level(knobs: &mut Rng) -> Option<SecondLevelConfig> {
    let size = knobs.pick(&[16, 17, 40, 200, 2_000]) * PAGE_SIZE as u64;
    knobs.percent(30).then(|| SecondLevelConfig { dir: SECOND_LEVEL.into(), size })
}

/// Draws batch sizes: the defaults in half of the seeds, otherwise values that give the most
/// batches, or none.
fn batches(knobs: &mut Rng) -> NodeConfig {
    let usual = NodeConfig::default();
    if knobs.percent(50) {
        return usual;
    }
    NodeConfig {
        undo_memory: knobs.pick(&[1, 100, 4_000, usual.undo_memory]),
        wal_write_limit: knobs.pick(&[1, 600, 5_000, usual.wal_write_limit]),
        wal_sync_every: knobs.pick(&[1, 10_000, usual.wal_sync_every]),
        write_batch: knobs.pick(&[1, 2, 7, usual.write_batch]),
        io_queue: knobs.pick(&[1, 2, usual.io_queue]),
        read_ahead: knobs.pick(&[0, 1, usual.read_ahead, 1_000]),
        redo_batch: knobs.pick(&[1, 3_000, usual.redo_batch]),
        ..usual
    }
}

/// Draws how long to wait for frames and for disk space: the defaults in half of the seeds.
fn waits(node: NodeConfig, knobs: &mut Rng) -> NodeConfig {
    if knobs.percent(50) {
        return node;
    }
    let ms = Duration::from_millis;
    // Rounds and the time between them: two short waits, the default, and a minute and a half.
    let frames = FrameWaits::default();
    let (starved_rounds, retry) = knobs.pick(&[
        (0, ms(1)),
        (40, Duration::ZERO),
        (frames.starved_rounds, frames.retry),
        (90, ms(1_000)),
    ]);
    let frame_waits = FrameWaits {
        starved_rounds,
        promise_rounds: knobs.pick(&[0, 1, frames.promise_rounds, 1_000]),
        retry,
        idle_retry: knobs.pick(&[ms(1), frames.idle_retry, ms(5_000)]),
    };
    let space = SpaceWaits {
        retry: knobs.pick(&[Duration::ZERO, ms(250), ms(10_000)]),
        patience: knobs.pick(&[Duration::ZERO, ms(3_000), ms(60_000)]),
        stall: knobs.pick(&[Duration::ZERO, ms(1), ms(60_000)]),
    };
    NodeConfig { frame_waits, space, ..node }
}

/// Draws other limits of storage and partitions: the defaults in half of the seeds.
fn limits(engine: EngineConfig, knobs: &mut Rng) -> EngineConfig {
    if knobs.percent(50) {
        return engine;
    }
    let usual = EngineConfig::default();
    let node = NodeConfig {
        wal_recycle_ahead: knobs.pick(&[0, 1, usual.node.wal_recycle_ahead, 1_000]),
        undo_window: knobs.pick(&[1, 5_000, usual.node.undo_window]),
        undo_reserve_step: knobs.pick(&[1, 1_000, usual.node.undo_reserve_step, 1 << 40]),
        drop_leaves: knobs.pick(&[1, 2, usual.node.drop_leaves, 1_000]),
        ..engine.node
    };
    let partition = Limits {
        slice_rows: knobs.pick(&[1, 2, 7, usual.partition.slice_rows]),
        collect: knobs.pick(&[1, 3, usual.partition.collect]),
        index_ahead: knobs.pick(&[1, 2, usual.partition.index_ahead, 10_000]),
        many_locks: knobs.pick(&[0, 1, 5, usual.partition.many_locks]),
        misses: knobs.pick(&[0, 1, usual.partition.misses, 1_000]),
        retries: knobs.pick(&[0, 1, usual.partition.retries, 1_000]),
        turns: usual.partition.turns,                   // drawn later
        learn_after: usual.partition.learn_after,       // drawn later
        one_shot_bytes: usual.partition.one_shot_bytes, // drawn later
        drop_slices: knobs.pick(&[1, 2, usual.partition.drop_slices, 1_000]),
        ..Limits::default() // drawn later
    };
    EngineConfig {
        node,
        partition,
        chunk_rows: knobs.pick(&[1, 2, 5, usual.chunk_rows]),
        deadlocks: knobs.pick(&[0, 1, usual.deadlocks, 1_000]),
        txn_ids: knobs.pick(&[1, 3, usual.txn_ids, 1 << 32]),
        ..engine
    }
}

/// How threads take turns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// In this many of 1000 steps the scheduler switches to another thread.
    pub switches: u64,
    /// Whether some threads get fewer steps than others.
    pub uneven: bool,
    /// Whether the virtual clock may advance although threads can run.
    pub impatient: bool,
    /// Whether a thread sometimes stalls for long, wherever it is.
    pub stalls: bool,
}

/// What a seed stands for, except for the choices made during the run.
#[derive(Clone, Debug)]
pub struct World {
    /// The seed.
    pub seed: u64,
    /// The engine's configuration.
    pub engine: EngineConfig,
    /// Threads with an event loop.
    pub workers: u16,
    /// Sessions of each worker.
    pub sessions: u32,
    /// Statements of each session in each life.
    pub statements: u64,
    /// What they do.
    pub mix: Mix,
    /// How many times the database is opened and used.
    pub lives: u32,
    /// How threads take turns.
    pub pace: Pace,
    /// The faults of the disk.
    pub faults: FaultProfile,
    /// Whether bits of a copy flip after each life.
    pub rots: bool,
    /// Number of bits that flip in the last life, in pages that are read.
    pub flips: u64,
    /// Whether a bit of the log flips in a copy after each life.
    pub log_rots: bool,
    /// Whether it runs the default configuration, except for the settings that the module lists.
    pub ships: bool,
    /// Whether some lives end with the death of the process alone.
    pub kills: bool,
    /// Crashes tear files between blocks of 4 KiB.
    pub tears_blocks: bool,
    /// Whether opens and lists fail occasionally while the database starts.
    pub denials: bool,
    /// Whether the memory for versions is small, possibly with a spill file.
    pub spills: bool,
    /// Whether only the checker of histories judges.
    pub histories: bool,
}

/// Returns the default configuration with this world's sizes and checkpoints.
fn shipped(drawn: EngineConfig) -> EngineConfig {
    let NodeConfig {
        partitions,
        frames,
        wal_segment_size,
        wal_buffer_size,
        second_level,
        node_cells,
        ..
    } = drawn.node;
    let usual = NodeConfig::default();
    EngineConfig {
        node: NodeConfig {
            partitions,
            frames,
            wal_segment_size,
            wal_buffer_size,
            second_level,
            node_cells,
            ..usual
        },
        checkpoint_interval: drawn.checkpoint_interval,
        checkpoint_log: drawn.checkpoint_log,
        ..EngineConfig::default()
    }
}

impl World {
    /// Draws the world of a seed.
    pub fn new(seed: u64) -> Self {
        let (mut rng, mut knobs) = (Rng::new(seed, "world"), Rng::new(seed, "knobs"));
        let mut more = Rng::new(seed, "more knobs");
        let frames = rng.pick(&[16, 16, 17, 24, 40, 64, 256]);
        let interval_ms = rng.pick(&[1, 20, 300, 5_000, 3_600_000]);
        let node = NodeConfig {
            partitions: Some(rng.pick(&[1, 1, 2, 3, 4, 7])),
            frames,
            replacement: rng.pick(&ReplacementKind::all().collect::<Vec<_>>()),
            io_threads: rng.pick(&[1, 1, 2, 4]),
            second_level: second_level(&mut Rng::new(seed, "second level")),
            wal_segment_size: rng.pick(&[8 << 10, 16 << 10, 64 << 10, 1 << 20]),
            wal_buffer_size: rng.pick(&[64 << 10, 64 << 10, 256 << 10]),
            ..waits(batches(&mut knobs), &mut more)
        };
        // An earlier version drew a setting here that is gone. The draw stays, so that recorded
        // seeds still draw what follows.
        let _gone = rng.below(3);
        let engine = EngineConfig {
            lazy_flush: Duration::from_millis(knobs.pick(&[1, 200, 1_000])),
            drain_limit: knobs.pick(&[1, 2, 64]),
            node,
            checkpoint_interval: Duration::from_millis(interval_ms),
            checkpoint_log: rng.pick(&[1, 8 << 10, 64 << 10, 1 << 30]),
            ..EngineConfig::default()
        };
        let engine = limits(engine, &mut more);
        // Values and batches as large as the pool: some transactions write more than the pool
        // holds.
        let longest = rng.pick(&[100, 3_000, 9_000, 20_000]);
        let mix = Mix {
            keys: rng.pick(&[10, 40, 120]),
            alone: rng.pick(&[20, 50, 80]),
            ddl: rng.pick(&[0, 2, 2, 10]),
            reads: rng.pick(&[20, 40]),
            wide: rng.pick(&[5, 25]),
            long: (rng.pick(&[0, 10, 30]), longest),
            rows: if longest > 3_000 { 12 } else { rng.pick(&[5, 40]) },
            block: rng.pick(&[3, 6, 12]),
            rollbacks: rng.pick(&[10, 40]),
            cancels: rng.pick(&[0, 0, 1, 5]),
            ..Mix::default()
        };
        let mut world = Self {
            seed,
            engine,
            workers: rng.pick(&[1, 2, 2, 3]),
            sessions: rng.pick(&[1, 2, 3]),
            statements: rng.pick(&[8, 20, 40]),
            mix,
            lives: rng.pick(&[1, 2, 3]),
            pace: Pace {
                switches: rng.pick(&[2, 10, 50, 200]),
                uneven: false,
                impatient: false,
                stalls: false,
            },
            faults: rng.pick(&FaultProfile::ALL),
            rots: knobs.percent(30),
            flips: 0,
            log_rots: more.percent(30),
            ships: false,
            kills: false,
            tears_blocks: false,
            denials: false,
            spills: false,
            histories: false,
        };
        // The order of these draws is fixed, so that kept seeds keep their meaning.
        world.pace = Pace { uneven: rng.percent(50), impatient: rng.percent(50), ..world.pace };
        // A fault that stops the engine would hide the effect of a flipped bit.
        if world.faults.is_mild() && more.percent(30) {
            world.flips = more.pick(&[1, 3, 10]);
        }
        world.draw_later(&mut Rng::new(seed, "second generator"));
        world
    }

    /// Draws what the second generator added.
    fn draw_later(&mut self, rng: &mut Rng) {
        (self.ships, self.kills) = (rng.percent(50), rng.percent(50));
        (self.tears_blocks, self.denials) = (rng.percent(50), rng.percent(30));
        if rng.percent(15) {
            self.mix.backups = rng.pick(&[1, 5]);
        }
        if rng.percent(50) {
            self.mix.newest = rng.pick(&[20, 80]);
        }
        // On a full disk, rollback needs more pages than are reserved for it, because such nodes
        // split more often than default ones.
        if rng.percent(30) && self.faults != FaultProfile::Full {
            // A path from leaf to root that splits completely must fit the pool.
            self.engine.node.node_cells = rng.pick(&[4, 5, 8]);
            self.engine.node.frames = self.engine.node.frames.max(64);
        }
        self.draw_last(&mut Rng::new(self.seed, "third generator"));
        if self.ships {
            self.engine = shipped(self.engine.clone());
        }
        self.draw_retired(&mut Rng::new(self.seed, "generator of retired locks"));
        self.draw_versions(&mut Rng::new(self.seed, "eleventh generator"));
        self.draw_cursors(&mut Rng::new(self.seed, "sixteenth generator"));
        self.draw_keys(&mut Rng::new(self.seed, "seventeenth generator"));
        self.draw_signals(&mut Rng::new(self.seed, "eighteenth generator"));
        self.draw_scheme(&mut Rng::new(self.seed, "scheme"));
        self.draw_additions(&mut Rng::new(self.seed, "nineteenth generator"));
        self.draw_checks(&mut Rng::new(self.seed, "twentieth generator"));
        self.draw_speculation(&mut Rng::new(self.seed, "twenty-first generator"));
        self.draw_validation(&mut Rng::new(self.seed, "generator of validated runs"));
        self.draw_changes(&mut Rng::new(self.seed, later::CHANGES));
        self.draw_long_records(&mut Rng::new(self.seed, later::LONG_RECORDS));
    }

    /// Draws what the third generator added.
    fn draw_last(&mut self, rng: &mut Rng) {
        if rng.percent(40) {
            self.mix.unique = rng.pick(&[30, 90]);
        }
        if rng.percent(50) {
            let turns = self.engine.partition.turns;
            self.engine.partition.turns = rng.pick(&[1, 2, 7, turns]);
        }
        self.draw_learning(&mut Rng::new(self.seed, "fourth generator"));
    }

    /// Draws what the fourth generator added: reads followed by updates, often enough for the
    /// engine to learn their locks, and to unlearn them.
    fn draw_learning(&mut self, rng: &mut Rng) {
        if rng.percent(30) {
            self.mix.updates_read = rng.pick(&[20, 50, 90]);
            self.engine.partition.learn_after = rng.pick(&[1, 1, 2, 4]);
        }
        self.draw_parts(&mut Rng::new(self.seed, "fifth generator"));
    }

    /// Draws what the fifth generator added: results in parts.
    fn draw_parts(&mut self, rng: &mut Rng) {
        if rng.percent(80) {
            self.engine.stream_bytes = rng.pick(&[1, 1, 40, 200]);
            self.engine.partition.one_shot_bytes = rng.pick(&[1, 40, 200, 2_000]);
            self.mix.scans = rng.pick(&[0, 10, 30]);
        }
        self.draw_snapshots(&mut Rng::new(self.seed, "sixth generator"));
    }

    /// Draws what the sixth generator added: READ ONLY transactions, which read snapshots, usually
    /// with enough memory.
    fn draw_snapshots(&mut self, rng: &mut Rng) {
        if rng.percent(50) {
            self.mix.read_only = rng.pick(&[10, 30, 60]);
            let memory = self.engine.partition.version_memory;
            self.engine.partition.version_memory =
                rng.pick(&[1000, 20_000, memory, memory, memory]);
        }
        self.draw_levels(&mut Rng::new(self.seed, "seventh generator"));
    }

    /// Draws what the seventh generator added: transactions below SERIALIZABLE.
    fn draw_levels(&mut self, rng: &mut Rng) {
        if rng.percent(75) {
            self.mix.levels = rng.pick(&[20, 60, 100]);
            self.mix.repeatable = rng.pick(&[0, 30, 60, 100]);
            if rng.percent(40) {
                // Blocks over the same few rows, found by values that others change.
                self.mix =
                    Mix { keys: 10, wide: 60, alone: 20, reads: 20, by_value: 70, ..self.mix };
            }
        }
        if rng.percent(15) {
            // Rows locked FOR KEY SHARE that others try to delete.
            self.mix = Mix { keys: 10, wide: 60, alone: 20, key_shares: 40, ..self.mix };
        }
        if rng.percent(50) {
            self.engine.partition.version_linger = rng.pick(&[0, 2, 20]);
        }
        self.draw_hang_ups(&mut Rng::new(self.seed, "eighth generator"));
    }

    /// Draws what the eighth generator added: connections that end in a block.
    fn draw_hang_ups(&mut self, rng: &mut Rng) {
        if rng.percent(30) {
            self.mix.hang_ups = rng.pick(&[1, 5, 20]);
        }
        self.draw_ddl(&mut Rng::new(self.seed, "ninth generator"));
    }

    /// Draws what the ninth generator added: DDL beside transactions that keep their snapshots.
    fn draw_ddl(&mut self, rng: &mut Rng) {
        if rng.percent(15) {
            // Single statements change what blocks read, mostly in indexed columns.
            let (ddl, read_only) = (rng.pick(&[10, 25]), rng.pick(&[0, 30]));
            let (alone, block, reads, wide) = (rng.pick(&[50, 70]), 12, 40, 60);
            self.mix = Mix {
                ddl,
                read_only,
                alone,
                block,
                reads,
                wide,
                unique: 0,
                scans: 0,
                fills: 70,
                ..self.mix
            };
            (self.mix.levels, self.mix.repeatable) = (80, 80);
        }
        self.draw_imports(&mut Rng::new(self.seed, "tenth generator"));
    }

    /// Draws what the tenth generator added: sessions that export and import snapshots.
    fn draw_imports(&mut self, rng: &mut Rng) {
        if rng.percent(20) {
            self.mix.imports = rng.pick(&[20, 60]);
            self.mix.repeatable = self.mix.repeatable.max(30);
            self.sessions = self.sessions.max(2);
        }
        self.draw_free(&mut Rng::new(self.seed, "twelfth generator"));
    }
    /// Draws what the twelfth generator added: INSERT ... ON CONFLICT DO NOTHING.
    fn draw_free(&mut self, rng: &mut Rng) {
        if rng.percent(20) {
            self.mix.free = rng.pick(&[30, 80]);
            if rng.percent(60) {
                // The same few keys, in blocks that have read them before.
                let sessions = self.sessions.max(2);
                self.mix = Mix {
                    keys: 10,
                    alone: 20,
                    reads: 30,
                    levels: 100,
                    repeatable: 60,
                    ddl: 2,
                    ..self.mix
                };
                self.sessions = sessions;
            }
        }
        self.draw_adds(&mut Rng::new(self.seed, "thirteenth generator"));
    }
    /// Draws what the thirteenth generator added: rows that many transactions increment, and the
    /// setting that lets them do so concurrently.
    fn draw_adds(&mut self, rng: &mut Rng) {
        if rng.percent(25) {
            let (adds, alone, rollbacks) =
                (rng.pick(&[40, 60, 90]), rng.pick(&[10, 30]), rng.pick(&[5, 20, 50]));
            self.mix = Mix {
                adds,
                near: rng.percent(40),
                alone,
                rollbacks,
                keys: 4,
                ddl: 2,
                unique: 0,
                ..self.mix
            };
            self.sessions = self.sessions.max(3);
            self.engine.partition.increments = rng.percent(85);
            self.engine.partition.learn_after = rng.pick(&[1, 1, 2, 16]);
        }
        self.draw_whole(&mut Rng::new(self.seed, "fourteenth generator"));
        self.draw_copies(&mut Rng::new(self.seed, "fifteenth generator"));
    }

    /// Draws a world whose sessions mostly use lists, registers and counters, judged only by the
    /// checker of histories.
    pub fn of_histories(seed: u64) -> Self {
        let mut world = Self::new(seed);
        // Only the model can judge flipped bits.
        (world.histories, world.mix.unique, world.flips) = (true, 90, 0);
        world.draw_counters(&mut Rng::new(seed, counters::PURPOSE));
        world
    }
}
