//! The knobs of one seed of the pool alone.

use crate::rng::Rng;
use crate::world::Pace;
use clearway_buffer::{FrameWaits, PoolConfig, ReplacementKind};
use clearway_env::{FOR_EVER, Fault, FaultPlan, Role, When, Zone};
use clearway_types::{PageId, PartitionId};
use std::time::Duration;

/// What goes wrong below and above the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    Fair,
    /// Reads bring less than was asked for, and everything may take long.
    Slow,
    /// Reads of pages fail now and then.
    FailingReads,
    /// One write and one sync of pages or of their copies fail.
    Breaking,
    /// The log fails after some calls.
    BrokenLog,
}

/// What a seed stands for, but for the choices made on the way.
#[derive(Clone, Debug)]
pub struct World {
    /// The seed.
    pub seed: u64,
    /// How the pool is made.
    pub pool: PoolConfig,
    /// Partitions, each with a file.
    pub partitions: u16,
    /// Pages of each.
    pub pages: u32,
    /// What lies between two pages' numbers. At 89, a Fibonacci number, they share buckets of the page table, so that chains are long.
    pub stride: u32,
    /// So many of 100 times a page is one of a few, where several threads meet.
    pub hot: u64,
    /// Threads that use the pool, besides the one that makes checkpoints.
    pub threads: u32,
    /// What each of them does, in number.
    pub operations: u32,
    /// Pages that a thread keeps at most beyond what it needs.
    pub keeps: u32,
    /// Threads for I/O.
    pub io_threads: usize,
    /// So many of 100 reads are long over when the pool hears of it.
    pub late: u64,
    /// What goes wrong.
    pub weather: Weather,
    /// The pool is shut down in the middle of the work.
    pub closes: bool,
    /// How threads take turns.
    pub pace: Pace,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "pool");
        let usual = FrameWaits::default();
        let ms = Duration::from_millis;
        let (starved_rounds, retry) =
            rng.pick(&[(usual.starved_rounds, usual.retry), (usual.starved_rounds, ms(0)), (3, ms(0)), (40, ms(1))]);
        let waits = FrameWaits {
            starved_rounds,
            promise_rounds: rng.pick(&[0, 1, usual.promise_rounds, 1_000]),
            retry,
            idle_retry: rng.pick(&[ms(1), usual.idle_retry, ms(5_000)]),
        };
        let pool = PoolConfig {
            frames: rng.pick(&[16, 16, 17, 20]),
            replacement: rng.pick(&ReplacementKind::all().collect::<Vec<_>>()),
            write_batch: rng.pick(&[1, 2, 7, clearway_buffer::WRITE_BATCH]),
            waits,
        };
        let partitions = rng.pick(&[1, 2]);
        let pages = rng.pick(&[4, 18, 20, 24, 60]);
        let mut more = Rng::new(seed, "pool's more");
        let stride = more.pick(&[1, 1, 1, 89]);
        // Not too many far apart: the files are as long as the last one is far.
        let pages = if stride == 1 { pages } else { pages.min(20) };
        Self {
            seed,
            pool,
            partitions,
            pages: pages / u32::from(partitions),
            stride,
            hot: rng.pick(&[0, 20, 60]),
            threads: rng.pick(&[1, 2, 3, 4]),
            operations: rng.pick(&[10, 30, 80]),
            keeps: rng.pick(&[0, 1, 1, 8]),
            io_threads: rng.pick(&[1, 1, 2, 4]),
            late: more.pick(&[0, 0, 30]),
            weather: rng.pick(&[
                Weather::Fair,
                Weather::Fair,
                Weather::Slow,
                Weather::FailingReads,
                Weather::Breaking,
                Weather::Breaking,
                Weather::BrokenLog,
            ]),
            closes: rng.percent(10),
            pace: Pace { switches: rng.pick(&[10, 50, 200, 500]), uneven: rng.percent(50), impatient: rng.percent(50) },
        }
    }

    /// A partition's page by its rank.
    pub fn page(&self, partition: u16, rank: u32) -> PageId {
        PageId::new(PartitionId(partition), rank * self.stride)
    }

    /// All pages.
    pub fn all_pages(&self) -> impl Iterator<Item = PageId> {
        (0..self.partitions).flat_map(move |partition| (0..self.pages).map(move |rank| self.page(partition, rank)))
    }

    /// Whether a thread may be told that there is no frame: it is impatient, or so much is kept at once that it may be true.
    pub fn may_starve(&self) -> bool {
        // Beside its keeps a thread has at most a few pages or frames for what it does.
        self.pool.waits.starved_rounds < FrameWaits::default().starved_rounds
            || self.threads * (self.keeps + 4) > self.pool.frames - 4
    }

    /// The plan for page files in `/db`.
    pub fn plan(&self, rng: &mut Rng) -> Option<FaultPlan> {
        let rare = When::OneIn(rng.pick(&[5, 20, 100]));
        let bad = |zone: Zone| match self.weather {
            Weather::Fair | Weather::BrokenLog => zone,
            Weather::Slow | Weather::FailingReads => {
                zone.fault(Fault::ShortRead, rare, FOR_EVER).fault(Fault::Delay, rare, FOR_EVER)
            }
            Weather::Breaking => {
                let zone = zone.fault(Fault::FailedWrite, rare, 1).fault(Fault::FailedSync, rare, 1);
                zone.fault(Fault::Delay, rare, FOR_EVER)
            }
        };
        let is_copies = |path: &std::path::Path| path.ends_with("double-write.data");
        let mut pages = bad(Zone::new(Role::Pages, "pages", move |path| !is_copies(path)));
        if self.weather == Weather::FailingReads {
            pages = pages.fault(Fault::FailedRead, rare, 20);
        }
        let zones = vec![bad(Zone::new(Role::Copies, "copies", is_copies)), pages];
        let delay_limit = Duration::from_millis(rng.pick(&[1, 50]));
        (!matches!(self.weather, Weather::Fair | Weather::BrokenLog))
            .then(|| FaultPlan::new(rng.u64(), delay_limit, zones))
    }
}
