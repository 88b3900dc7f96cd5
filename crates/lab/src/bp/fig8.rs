//! The source's figure 8: hit ratio and throughput by pool size, with direct I/O and data many
//! times the size of the pool.

use super::grid::{Grid, Measure};
use super::real::Real;
use super::systems::{How, POLICY, Shared};
use super::workload::{Kind, Size, Workload};
use crate::bars::{Bar, Bound, Reading};
use crate::experiment::{Part, Task};
use crate::place::{self, Missing, Place, Placed, Watch};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use crate::spinlock::{Work, calibrate_work};
use clearway_buffer::{MissingPage, PAGE_SIZE, Pool};
use clearway_env::DirectDisk;
use clearway_harness::Res;
use clearway_storage::{Node, NodeConfig};
use clearway_testkit::Rng;
use clearway_types::PageId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The source's three systems, and our default.
const SYSTEMS: [How; 4] = [How::Clock, How::Locked, How::BatchedPrefetched, How::Default];
/// The source's two workloads.
const KINDS: [Kind; 2] = [Kind::Dbt1, Kind::Dbt2];
const THREADS: usize = 8;
/// Data size over the largest pool in the source: 6.8 and 5.6 GB over 1 GB. Each pool is half the
/// next larger one.
const DATA_OVER_POOL: [f64; 2] = [6.8, 5.6];
/// The accessed pages are at least this many times the largest pool, whatever else the file holds.
const ACCESSED_OVER_POOL: f64 = 6.0;
const POOLS: u32 = 6;
/// The source has 2.9 million customers in 6.8 GB. DBT-2's transactions access 121,000 pages of
/// this database, so its pools have 5 to 158 MiB. The smallest still holds more pages than the
/// queues of 64 of eight threads.
const SIZE: Size = Size { customers: 1_200_000, transactions: 200_000, frames: 262_144 };
/// A pool is warmed until it has read as many pages as it has frames, but at most for this many run
/// lengths.
const MAX_WARM_RUNS: u32 = 10;
/// Interval of checking whether a pool is warm.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const QUICK_POOLS: u32 = 2;
const QUICK_RUN: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
struct RunResult {
    hit_percent: f64,
    transactions: f64,
    /// Where the cores were.
    place: Place,
}

impl Placed for RunResult {
    fn place(&self) -> Option<&Place> {
        Some(&self.place)
    }

    fn place_mut(&mut self) -> Option<&mut Place> {
        Some(&mut self.place)
    }
}

/// The bars: the source's claims.
pub const BARS: [&str; 5] = [COINCIDE, SMALLEST, LARGEST, LOCKED, REMOVED];
const COINCIDE: &str = "hit ratios of 2q/locked and 2q/batched-prefetched: largest difference";
const SMALLEST: &str =
    "smallest pool: throughput of 2q/batched-prefetched over that of clock-sweep, worst workload";
const LARGEST: &str =
    "largest pool: throughput of 2q/batched-prefetched over that of clock-sweep, worst workload";
const LOCKED: &str =
    "largest pool: throughput of 2q/locked over that of clock-sweep, best workload";
const REMOVED: &str =
    "largest pool: throughput of 2q/batched-prefetched over that of 2q/locked, worst workload";
/// Percentage points of hit ratio within which two curves coincide in the source's figure.
const COINCIDENT: f64 = 0.5;
/// Two throughput curves within 5 % coincide.
const SAME: f64 = 0.95;

const HITS: Measure<RunResult> = Measure {
    name: "hit ratio",
    unit: "%",
    digits: 2,
    axis: Axis::linear,
    events: None,
    of: |ran| ran.hit_percent,
};
const RATE: Measure<RunResult> = Measure {
    name: "throughput",
    unit: "1/s",
    digits: 0,
    axis: Axis::linear,
    events: None,
    of: |ran| ran.transactions,
};

/// Runs figure 8.
pub fn run(task: &Task) -> Res<Findings> {
    let quick = task.options.quick;
    let size = if quick { Size::of(true) } else { SIZE };
    let pools = if quick { QUICK_POOLS } else { POOLS };
    let systems: Vec<Shared> =
        Shared::all(POLICY).into_iter().filter(|shared| SYSTEMS.contains(&shared.how)).collect();
    let per_ns = calibrate_work();
    let kinds: Vec<Kind> =
        KINDS.into_iter().filter(|kind| task.part.wants(kind.name(), true)).collect();
    let mut progress = Progress::new(
        "bp-wrapper/fig8",
        kinds.len() * systems.len() * (pools * task.repetitions()) as usize,
    );
    let mut findings = Findings { seeds: vec![1], ..Findings::default() };
    let mut grids: Vec<Grid<RunResult>> = Vec::new();
    let disk = Arc::new(DirectDisk::default());
    let mut configuration = vec![
        ("threads", THREADS.to_string()),
        ("seconds", task.options.seconds.to_string()),
        (place::SETTING.0, place::SETTING.1.into()),
        ("repetitions", task.repetitions().to_string()),
    ];
    for kind in kinds {
        let workload = Workload::record(kind, size)?;
        configuration.push((kind.name(), workload.described()));
        let largest = largest_pool(kind, workload.pages.len(), workload.file_pages()?);
        configuration.push((pools_of(kind), format!("{pools}, the largest of {largest} pages")));
        let work = Real::work(&workload, size.frames, per_ns)?;
        let mut grid = Grid { title: kind.name().into(), x: "MiB", cells: Vec::new() };
        for frames in (0..pools).rev().map(|halved| largest >> halved) {
            let mib = f64::from(frames) * PAGE_SIZE as f64 / f64::from(1 << 20);
            let x = (mib * 100.0).round() / 100.0;
            for repetition in 1..=task.repetitions() {
                for system in &systems {
                    progress.step(&format!(
                        "{}, {x} MiB, {}, repetition {repetition}",
                        kind.name(),
                        system.name()
                    ));
                    let ran =
                        measure(&disk, &workload, *system, frames, (work, per_ns), length(task))?;
                    if disk.refused() && !quick {
                        return refuse(&workload, task);
                    }
                    grid.record(&system.name(), x, ran);
                }
            }
        }
        grids.push(grid);
    }
    place::mark_apart(grids.iter_mut().flat_map(Grid::results_mut));
    for grid in &grids {
        findings.found.extend(found(grid));
        for measure in [&HITS, &RATE] {
            findings.samples.push(grid.samples(measure));
            findings.tables.push(grid.table(measure));
        }
        findings.samples.extend(grid.place_samples());
        findings.agreement.extend(agreement(grid));
    }
    findings.found.extend(place::found("runs", grids.iter().flat_map(Grid::places)));
    if !matches!(task.part, Part::Only(_)) {
        findings.bars = bars(&grids);
    }
    let how = if disk.refused() {
        "page cache: the file system does not support direct I/O"
    } else {
        "direct I/O"
    };
    configuration.push(("disk", how.to_owned()));
    findings.configuration = configuration
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Configuration>();
    Ok(findings)
}

/// Returns the pages of the largest pool: the source's share of the data, or less if the accessed
/// pages would not be many times its size.
fn largest_pool(kind: Kind, accessed: usize, in_file: u32) -> u32 {
    let ratio = KINDS
        .iter()
        .zip(DATA_OVER_POOL)
        .find(|(of, _)| **of == kind)
        .map_or(ACCESSED_OVER_POOL, |of| of.1);
    (accessed as f64 / ACCESSED_OVER_POOL).min(f64::from(in_file) / ratio) as u32
}

/// Returns the configuration key of a workload's pools.
fn pools_of(kind: Kind) -> &'static str {
    if kind == Kind::Dbt1 { "pools, DBT-1-like" } else { "pools, DBT-2-like" }
}

/// Fails without direct I/O: the page cache would serve the pool's misses, and the figure would be
/// meaningless.
fn refuse(workload: &Workload, task: &Task) -> Res<Findings> {
    let at = workload.directory.path().display();
    let why = format!(
        "the file system of {at} does not support direct I/O\nhint: set TMPDIR to a directory on a disk"
    );
    if task.part != Part::Bars {
        return Err(why);
    }
    Ok(Findings {
        bars: BARS.iter().map(|name| Bar::not_here(name, &why)).collect(),
        ..Findings::default()
    })
}

/// Returns the length of a run; a pool is warmed at least as long.
fn length(task: &Task) -> Duration {
    if task.options.quick { QUICK_RUN } else { task.shared_time(4) }
}

/// Runs once on a cold pool: warms it, then measures it. Threads do `work` between two accesses.
fn measure(
    disk: &Arc<DirectDisk>,
    workload: &Workload,
    system: Shared,
    frames: u32,
    (work, per_ns): (Work, f64),
    length: Duration,
) -> Res<RunResult> {
    let config =
        NodeConfig { frames, replacement: system.kind(), read_ahead: 0, ..NodeConfig::default() };
    let node =
        Node::open(disk.clone(), workload.directory.path(), config).map_err(|e| e.to_string())?;
    let pool: &Pool = node.pool();
    let stop = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let stop = &stop;
        let mut rounds = Vec::new();
        for round in 0..2 {
            let mut watch = Watch::begin(per_ns);
            // Relaxed, here and below: a stop flag; it publishes no data.
            stop.store(false, Ordering::Relaxed);
            let (reads, began) = (pool.stats().reads, Instant::now());
            let part =
                move |thread| part(pool, workload, work, round * THREADS as u64 + thread, stop);
            let threads: Vec<_> =
                (0..THREADS as u64).map(|thread| scope.spawn(move || part(thread))).collect();
            let is_over = || {
                let is_warm = round == 1 || pool.stats().reads - reads >= u64::from(frames);
                began.elapsed() >= if is_warm { length } else { length * MAX_WARM_RUNS }
            };
            while !is_over() {
                thread::park_timeout(
                    length
                        .saturating_sub(began.elapsed())
                        .clamp(Duration::from_millis(1), POLL_INTERVAL),
                );
            }
            stop.store(true, Ordering::Relaxed);
            let parts: Res<Vec<(u64, u64)>> = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                .collect();
            let (reads, elapsed) = (pool.stats().reads - reads, began.elapsed());
            rounds.push((parts?, reads, elapsed, watch.lap()));
        }
        Ok::<_, String>(rounds)
    })?;
    let (parts, reads, elapsed, place) = rounds.into_iter().next_back().ok_or("no round")?;
    let accesses: u64 = parts.iter().map(|part| part.0).sum();
    let transactions: u64 = parts.iter().map(|part| part.1).sum();
    Ok(RunResult {
        hit_percent: (1.0 - reads as f64 / accesses.max(1) as f64) * 100.0,
        transactions: transactions as f64 / elapsed.as_secs_f64(),
        place,
    })
}

/// Accesses a page once. A change dirties the page, so it must be written before its frame is
/// reused. The bytes stay the same, so there is nothing to log.
fn access(pool: &Pool, id: PageId, writes: bool) -> Result<(), MissingPage> {
    if writes {
        pool.write(id)?.mark_dirty_begin();
    } else {
        pool.read(id)?;
    }
    Ok(())
}

/// Runs one thread and returns its accesses and transactions.
fn part(
    pool: &Pool,
    workload: &Workload,
    work: Work,
    seed: u64,
    stop: &AtomicBool,
) -> Res<(u64, u64)> {
    let (mut rng, mut done) = (Rng::new(seed + 1), (0, 0));
    loop {
        let which = rng.below(workload.transactions.len() as u64) as usize;
        for (number, writes) in workload.transactions[which].iter().zip(&workload.writes[which]) {
            let id = workload.pages[*number as usize];
            let mut kept = None;
            while let Err(want) = access(pool, id, *writes) {
                kept = Some(pool.fetch_blocking(want).map_err(|e| e.to_string())?);
            }
            drop(kept);
            done.0 += 1;
            work.run(done.0);
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
        }
        done.1 += 1;
    }
}

/// Returns the bars over all workloads.
fn bars(grids: &[Grid<RunResult>]) -> Vec<Bar> {
    let points = Pairs::of(grids, [How::BatchedPrefetched, How::Locked], &HITS, Grid::positions);
    let coincide = points.bar(
        COINCIDE,
        |[ours, locked]| -(ours - locked).abs(),
        |name, both| {
            let points = (both[0].value - both[1].value).abs();
            Bar::measured(name, points, "points", Bound::AtMost(COINCIDENT), both.into())
        },
    );
    let over = |peer, name, least: f64, place: fn((f64, f64)) -> f64| {
        let at = |grid: &Grid<RunResult>| names(grid).map(place).into_iter().collect();
        let pairs = Pairs::of(grids, [How::BatchedPrefetched, peer], &RATE, at);
        pairs.bar(
            name,
            |[ours, peer]| ours / peer,
            |name, [ours, peer]| Bar::ratio(name, Bound::AtLeast(least), ours, peer),
        )
    };
    let smallest = over(How::Clock, SMALLEST, 1.0, |(least, _)| least);
    let largest = over(How::Clock, LARGEST, SAME, |(_, most)| most);
    // If the lock is what pulls the locked one down, the batched one is ahead of it.
    let removed = over(How::Locked, REMOVED, 1.0, |(_, most)| most);
    let at_most = |grid: &Grid<RunResult>| names(grid).map(|(_, most)| most).into_iter().collect();
    let locked = Pairs::of(grids, [How::Locked, How::Clock], &RATE, at_most).bar(
        LOCKED,
        |[locked, clock]| -(locked / clock),
        |name, [locked, clock]| Bar::ratio(name, Bound::AtMost(1.0), locked, clock),
    );
    [coincide, smallest, largest, locked, removed].into_iter().flatten().collect()
}

/// A system beside another one, with the cores in the same state.
#[derive(Default)]
struct Pairs {
    judged: Vec<[Reading; 2]>,
    /// The number of points without such runs.
    not_judged: usize,
}

impl Pairs {
    fn of(
        grids: &[Grid<RunResult>],
        systems: [How; 2],
        measure: &Measure<RunResult>,
        places: impl Fn(&Grid<RunResult>) -> Vec<f64>,
    ) -> Self {
        let names = systems.map(|how| Shared { policy: POLICY, how }.name());
        let mut pairs = Self::default();
        for (grid, x) in
            grids.iter().flat_map(|grid| places(grid).into_iter().map(move |x| (grid, x)))
        {
            match grid.together(names.each_ref().map(String::as_str), x, measure.of) {
                Ok(values) => pairs.judged.push([0, 1].map(|at| {
                    let name = format!("{}, {x} MiB, {}", grid.title, names[at]);
                    Reading::new(&name, values[at], measure.unit, measure.digits)
                })),
                Err(Missing::NoCommonState) => pairs.not_judged += 1,
                Err(Missing::Unmeasured) => {}
            }
        }
        pairs
    }

    /// Judges the pair with the lowest rank; returns `None` if there is no pair.
    fn bar(
        self,
        name: &str,
        rank: impl Fn([f64; 2]) -> f64,
        bar: impl Fn(&str, [Reading; 2]) -> Bar,
    ) -> Option<Bar> {
        let Self { judged, not_judged } = self;
        let rank = |pair: &[Reading; 2]| rank([pair[0].value, pair[1].value]);
        match judged.into_iter().min_by(|a, b| rank(a).total_cmp(&rank(b))) {
            Some(worst) => Some(bar(name, worst).without(not_judged)),
            None => (not_judged > 0).then(|| Bar::without_all(name, not_judged)),
        }
    }
}

fn names(grid: &Grid<RunResult>) -> Option<(f64, f64)> {
    let places = grid.cells.iter().map(|cell| cell.x);
    Some((places.clone().min_by(f64::total_cmp)?, places.max_by(f64::total_cmp)?))
}

fn of(grid: &Grid<RunResult>, how: How, x: f64, figure: fn(&RunResult) -> f64) -> Option<f64> {
    grid.at(&Shared { policy: POLICY, how }.name(), x, figure)
}

/// Returns the throughput over the clock's for every pool, and the hit ratios with the largest.
fn found(grid: &Grid<RunResult>) -> Option<String> {
    let pools = grid.positions();
    let over = |how| {
        let ratio =
            |x: &f64| Some(of(grid, how, *x, RATE.of)? / of(grid, How::Clock, *x, RATE.of)?);
        let ratios = pools.iter().map(|x| Some(format!("{:.2}", ratio(x)?)));
        Some(ratios.collect::<Option<Vec<_>>>()?.join(", "))
    };
    let hits = |how| of(grid, how, *pools.last()?, HITS.of);
    Some(format!(
        "{}: throughput over clock-sweep's, smallest pool first: 2Q behind a lock {}; batched and prefetched {}. Hit ratio with the largest pool: clock-sweep {:.2} %, 2Q behind a lock {:.2} %, batched and prefetched {:.2} %.",
        grid.title,
        over(How::Locked)?,
        over(How::BatchedPrefetched)?,
        hits(How::Clock)?,
        hits(How::Locked)?,
        hits(How::BatchedPrefetched)?
    ))
}

/// Compares with the source, whose hit-ratio curves coincide: reports our largest difference.
fn agreement(grid: &Grid<RunResult>) -> Option<String> {
    let places = grid.cells.iter().map(|cell| cell.x);
    let apart = places.filter_map(|x| {
        Some(
            (of(grid, How::Locked, x, HITS.of)? - of(grid, How::BatchedPrefetched, x, HITS.of)?)
                .abs(),
        )
    });
    let apart = apart.max_by(f64::total_cmp)?;
    let largest = names(grid)?.1;
    let over_clock =
        of(grid, How::Locked, largest, RATE.of)? / of(grid, How::Clock, largest, RATE.of)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Some(format!(
        "{}: the source's hit ratios of 2Q with the lock and with batches coincide; ours differ by at most {apart:.2} percentage points. With the largest pool the source's locked 2Q falls below the clock, on eight processors; ours has {over_clock:.2} of the clock's throughput, on {cores} cores.",
        grid.title
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::NEAR;

    #[test]
    fn fig8_accesses_six_times_the_largest_pool() {
        assert_eq!(largest_pool(Kind::Dbt1, 700_000, 680_000), 100_000);
        assert_eq!(largest_pool(Kind::Dbt2, 700_000, 560_000), 100_000);
        assert_eq!(
            largest_pool(Kind::Dbt1, 60_000, 680_000),
            10_000,
            "the file holds pages that are never accessed"
        );
    }

    #[test]
    fn changed_pages_become_dirty() {
        let workload = Workload::record(Kind::Dbt2, Size::of(true)).unwrap();
        let (disk, work) = (Arc::new(DirectDisk::default()), Work::of(0.0, 1.0));
        let config = NodeConfig { frames: 4_096, read_ahead: 0, ..NodeConfig::default() };
        let node = Node::open(disk, workload.directory.path(), config).unwrap();
        // Stopped from the start: one access, which is the descent of a tree and changes nothing.
        part(node.pool(), &workload, work, 0, &AtomicBool::new(true)).unwrap();
        assert_eq!(node.pool().stats().dirty, 0);
        let writes =
            |which: usize| workload.transactions[which].iter().zip(&workload.writes[which]);
        let changed =
            (0..workload.transactions.len()).flat_map(writes).filter(|(_, writes)| **writes);
        for (number, writes) in changed {
            let id = workload.pages[*number as usize];
            while let Err(want) = access(node.pool(), id, *writes) {
                drop(node.pool().fetch_blocking(want).unwrap());
            }
        }
        assert!(node.pool().stats().dirty > 0);
    }

    #[test]
    fn fig8_bars_judge_the_worst_position() {
        let mut grid = Grid { title: "DBT-1-like".into(), x: "MiB", cells: Vec::new() };
        for (how, x, hit_percent, transactions) in [
            (How::Clock, 32.0, 50.0, 100.0),
            (How::Locked, 32.0, 60.0, 110.0),
            (How::BatchedPrefetched, 32.0, 59.9, 120.0),
            (How::Clock, 1024.0, 90.0, 200.0),
            (How::Locked, 1024.0, 95.0, 150.0),
            (How::BatchedPrefetched, 1024.0, 94.25, 180.0),
        ] {
            grid.record(
                &Shared { policy: POLICY, how }.name(),
                x,
                RunResult { hit_percent, transactions, place: NEAR },
            );
        }
        let agreement = agreement(&grid).unwrap();
        assert!(agreement.contains("at most 0.75 percentage points"), "{agreement}");
        assert!(agreement.contains("ours has 0.75 of the clock's throughput"), "{agreement}");
        let found = found(&grid).unwrap();
        for part in ["lock 1.10, 0.75;", "prefetched 1.20, 0.90.", "clock-sweep 90.00 %", "94.25 %"]
        {
            assert!(found.contains(part), "{part}: {found}");
        }
        let bars = bars(&[grid]);
        let lines: Vec<String> =
            bars.iter().map(|bar| format!("{} {}", bar.verdict(false), bar.explained())).collect();
        assert!(
            lines[0]
                .starts_with("short 0.75 points, bar at most 0.50 points (DBT-1-like, 1024 MiB"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("ok 1.20 x") && lines[2].starts_with("short 0.90 x"),
            "{lines:?}"
        );
        assert!(
            lines[3].starts_with("ok 0.75 x") && lines[4].starts_with("ok 1.20 x"),
            "{lines:?}"
        );
        assert_eq!(bars.iter().map(|bar| bar.name.as_str()).collect::<Vec<_>>(), BARS);
    }
}
