//! The settings of one seed of the pool alone.

use crate::rng::Rng;
use crate::world::{Pace, SECOND_LEVEL, bad_second_level};
use clearway_buffer::{FrameWaits, PAGE_SIZE, PoolConfig, SecondLevelConfig};
use clearway_replacement::ReplacementKind;
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, Role, When};
use clearway_types::{PageId, PartitionId};
use std::time::Duration;

/// Minimum number of frames of a pool.
const MIN_FRAMES: u32 = 16;

/// The faults below and above the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultProfile {
    /// No faults.
    None,
    /// Short reads, and everything may take long.
    Slow,
    /// As `Slow`, and reads of pages fail occasionally.
    FailingReads,
    /// One write and one sync of pages or of their copies fail.
    Breaking,
    /// The log fails after some calls.
    BrokenLog,
}

/// What a seed stands for, except for the choices made during the run.
#[derive(Clone, Debug)]
pub struct World {
    /// The seed.
    pub seed: u64,
    /// How the pool is made.
    pub pool: PoolConfig,
    /// Partitions, each with a file.
    pub partitions: u16,
    /// The pages of each, by number.
    pub pages: Vec<u32>,
    /// Percentage of accesses that go to one of a few pages, where threads conflict.
    pub hot: u64,
    /// Threads that use the pool, besides the one that makes checkpoints.
    pub threads: u32,
    /// Number of operations of each.
    pub operations: u32,
    /// Maximum number of pages that a thread pins beyond what it needs.
    pub keeps: u32,
    /// Percentage of operations that only fetch a page and check that it is resident.
    pub grabs: u64,
    /// Some pages are fetched for scans.
    pub scans: bool,
    /// Threads for I/O.
    pub io_threads: usize,
    /// Percentage of reads whose completion the pool learns of late.
    pub late: u64,
    /// Where copies of evicted pages go, if anywhere.
    pub second_level: Option<SecondLevelConfig>,
    /// Whether the second level's file has faults: see [`crate::world::bad_second_level`].
    pub bad_copies: bool,
    /// The faults.
    pub faults: FaultProfile,
    /// Whether the pool is shut down in the middle of the work.
    pub closes: bool,
    /// How threads take turns.
    pub pace: Pace,
}

/// Returns page numbers that share two buckets of the page table, or a few if there are partitions:
/// chains are long, and frames often move from one to another.
fn of_two_buckets(count: u32) -> Vec<u32> {
    // The table's hash, for 64 buckets.
    let bucket = |no: u32| PageId::new(PartitionId(0), no).hash_bits() >> 58;
    (0..).filter(|no| bucket(*no) % 32 == 0).take(count as usize).collect()
}

impl World {
    /// Draws the world of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "pool");
        let (threads, keeps) = (rng.pick(&[1, 2, 3, 4]), rng.pick(&[0, 1, 2, 3, 4, 8]));
        let usual = FrameWaits::default();
        let ms = Duration::from_millis;
        let (starved_rounds, retry) = if threads * keeps >= MIN_FRAMES {
            // All frames may be pinned at once, and each thread waits for the others: keep that
            // short.
            rng.pick(&[(3, ms(0)), (40, ms(1))])
        } else {
            rng.pick(&[
                (usual.starved_rounds, usual.retry),
                (usual.starved_rounds, ms(0)),
                (3, ms(0)),
                (40, ms(1)),
            ])
        };
        let waits = FrameWaits {
            starved_rounds,
            promise_rounds: rng.pick(&[0, 1, usual.promise_rounds, 1_000]),
            retry,
            idle_retry: rng.pick(&[ms(1), usual.idle_retry, ms(5_000)]),
        };
        let pool = PoolConfig {
            frames: rng.pick(&[MIN_FRAMES, MIN_FRAMES, 17, 20]),
            replacement: rng.pick(&ReplacementKind::all().collect::<Vec<_>>()),
            write_batch: rng.pick(&[1, 2, 7, clearway_buffer::WRITE_BATCH]),
            waits,
        };
        let partitions = rng.pick(&[1, 2]);
        let pages = rng.pick(&[4, 18, 20, 24, 60]);
        let mut more = Rng::new(seed, "pool's more");
        let pages = match (pages / u32::from(partitions), more.percent(40)) {
            (count, true) => of_two_buckets(count.min(20)),
            (count, false) => (0..count).collect(),
        };
        let grabs = more.pick(&[0, 0, 60, 90]);
        // From the smallest, with regions of two pages, to one that holds everything.
        let mut second = Rng::new(seed, "pool's second level");
        let size = second.pick(&[16, 16, 17, 40, 120]) * PAGE_SIZE as u64;
        let second_level =
            second.percent(40).then(|| SecondLevelConfig { dir: SECOND_LEVEL.into(), size });
        Self {
            seed,
            pool,
            partitions,
            pages,
            hot: rng.pick(&[0, 20, 60]),
            threads,
            // An operation that only checks residency costs little.
            operations: rng.pick(&[10, 30, 80]) * if grabs > 0 { 8 } else { 1 },
            keeps,
            grabs,
            scans: more.percent(70),
            io_threads: rng.pick(&[1, 1, 2, 4]),
            late: more.pick(&[0, 0, 30]),
            bad_copies: second_level.is_some() && second.percent(50),
            second_level,
            faults: rng.pick(&[
                FaultProfile::None,
                FaultProfile::None,
                FaultProfile::Slow,
                FaultProfile::FailingReads,
                FaultProfile::Breaking,
                FaultProfile::Breaking,
                FaultProfile::BrokenLog,
            ]),
            closes: rng.percent(10),
            pace: Pace {
                switches: rng.pick(&[10, 50, 200, 500]),
                uneven: rng.percent(50),
                impatient: rng.percent(50),
                stalls: more.percent(50),
            },
        }
    }

    /// Returns a partition's page by its rank; the first follows the last.
    pub fn page(&self, partition: u16, rank: usize) -> PageId {
        PageId::new(PartitionId(partition), self.pages[rank % self.pages.len()])
    }

    /// Returns all pages.
    pub fn all_pages(&self) -> impl Iterator<Item = PageId> {
        (0..self.partitions).flat_map(move |partition| {
            self.pages.iter().map(move |no| PageId::new(PartitionId(partition), *no))
        })
    }

    /// Returns true if a fetch may be refused for want of a frame: because waits are short, or
    /// because so much is pinned at once.
    pub fn may_starve(&self) -> bool {
        // Besides its pins, a thread uses at most a few pages or frames for its operation.
        self.pool.waits.starved_rounds < FrameWaits::default().starved_rounds
            || self.threads * (self.keeps + 4) > self.pool.frames - 4
    }

    /// Draws the fault plan for page files in `/db`, and for the second level's.
    pub fn plan(&self, rng: &mut Rng) -> Option<FaultPlan> {
        let rare = When::OneIn(rng.pick(&[5, 20, 100]));
        let bad = |zone: FaultZone| match self.faults {
            FaultProfile::None | FaultProfile::BrokenLog => zone,
            FaultProfile::Slow | FaultProfile::FailingReads => {
                zone.fault(Fault::ShortRead, rare, FOR_EVER).fault(Fault::Delay, rare, FOR_EVER)
            }
            FaultProfile::Breaking => {
                let zone =
                    zone.fault(Fault::FailedWrite, rare, 1).fault(Fault::FailedSync, rare, 1);
                zone.fault(Fault::Delay, rare, FOR_EVER)
            }
        };
        let is_copies = |path: &std::path::Path| path.ends_with("double-write.data");
        let is_pages =
            move |path: &std::path::Path| path.starts_with(super::DIR) && !is_copies(path);
        let mut pages = bad(FaultZone::new(Role::Pages, "pages", is_pages));
        if self.faults == FaultProfile::FailingReads {
            pages = pages.fault(Fault::FailedRead, rare, 20);
        }
        let mut zones = vec![bad(FaultZone::new(Role::Copies, "copies", is_copies)), pages];
        let delay_limit = Duration::from_millis(rng.pick(&[1, 50]));
        if self.bad_copies {
            zones.push(bad_second_level(rng));
        }
        (self.bad_copies || !matches!(self.faults, FaultProfile::None | FaultProfile::BrokenLog))
            .then(|| FaultPlan::new(rng.u64(), delay_limit, zones))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_two_buckets_are_the_same_in_every_release() {
        assert_eq!(of_two_buckets(4), [0, 17, 34, 89]);
    }
}
