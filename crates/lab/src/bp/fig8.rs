//! The source's figure 8: hit ratio and throughput against the size of the pool, with direct I/O, where the data is many times the pool.

use super::grid::{Grid, Measure};
use super::systems::{How, POLICY, Shared};
use super::workload::{Kind, Size, Workload};
use crate::bars::{Bar, Bound, Reading};
use crate::experiment::{Part, Task};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use clearway_buffer::{PAGE_SIZE, Pool, Want};
use clearway_env::DirectDisk;
use clearway_harness::Res;
use clearway_storage::{Node, NodeConfig};
use clearway_traces::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The source's three systems, and ours.
const SYSTEMS: [How; 4] = [How::Clock, How::Locked, How::BatchedPrefetched, How::Default];
/// Its two workloads.
const KINDS: [Kind; 2] = [Kind::Dbt1, Kind::Dbt2];
const THREADS: usize = 8;
/// The largest pool is the data's pages by this, the others each half the next.
const DATA_OVER_POOL: u32 = 6;
const POOLS: u32 = 6;
const QUICK_POOLS: u32 = 2;
const QUICK_RUN: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
struct Ran {
    hit_percent: f64,
    transactions: f64,
}

/// The bars: what the source claims.
pub const BARS: [&str; 3] = [COINCIDE, SMALLEST, LARGEST];
const COINCIDE: &str = "hit ratios of 2q/locked and 2q/batched-prefetched, the furthest apart";
const SMALLEST: &str = "smallest pool: throughput of 2q/batched-prefetched over that of clock-sweep, the lesser";
const LARGEST: &str = "largest pool: throughput of 2q/batched-prefetched over that of clock-sweep, the lesser";
/// Points of hit ratio: curves that are no further apart are one in the source's figure.
const COINCIDENT: f64 = 0.5;
/// Within a twentieth two curves of throughput are one.
const SAME: f64 = 0.95;

const HITS: Measure<Ran> =
    Measure { name: "hit ratio", unit: "%", digits: 2, axis: Axis::linear, events: None, of: |ran| ran.hit_percent };
const RATE: Measure<Ran> = Measure {
    name: "throughput",
    unit: "1/s",
    digits: 0,
    axis: Axis::linear,
    events: None,
    of: |ran| ran.transactions,
};

/// Figure 8.
pub fn run(task: &Task) -> Res<Findings> {
    let quick = task.options.quick;
    let size = if quick { Size::of(true) } else { Size { customers: 150_000, transactions: 20_000, frames: 65_536 } };
    let pools = if quick { QUICK_POOLS } else { POOLS };
    let systems: Vec<Shared> = Shared::all(POLICY).into_iter().filter(|shared| SYSTEMS.contains(&shared.how)).collect();
    let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| task.part.wants(kind.name(), true)).collect();
    let mut progress =
        Progress::new("bp-wrapper/fig8", kinds.len() * systems.len() * (pools * task.repetitions()) as usize);
    let mut findings = Findings { seeds: vec![1], ..Findings::default() };
    let mut grids: Vec<Grid<Ran>> = Vec::new();
    let disk = Arc::new(DirectDisk::default());
    let mut configuration = vec![
        ("threads", THREADS.to_string()),
        ("seconds", task.options.seconds.to_string()),
        ("repetitions", task.repetitions().to_string()),
    ];
    for kind in kinds {
        let workload = Workload::record(kind, size)?;
        configuration.push((kind.name(), workload.described()));
        let largest = workload.file_pages()? / DATA_OVER_POOL;
        let mut grid = Grid { title: kind.name().into(), x: "MiB", cells: Vec::new() };
        for frames in (0..pools).rev().map(|halved| largest >> halved) {
            let mib = f64::from(frames) * PAGE_SIZE as f64 / f64::from(1 << 20);
            let x = (mib * 100.0).round() / 100.0;
            for repetition in 1..=task.repetitions() {
                for system in &systems {
                    progress.step(&format!("{}, {x} MiB, {}, repetition {repetition}", kind.name(), system.name()));
                    let ran = measure(&disk, &workload, *system, frames, length(task))?;
                    grid.record(&system.name(), x, ran);
                }
            }
        }
        findings.found.extend(found(&grid));
        for measure in [&HITS, &RATE] {
            findings.samples.push(grid.samples(measure));
            findings.tables.push(grid.table(measure));
        }
        findings.agreement.extend(agreement(&grid));
        grids.push(grid);
    }
    if !matches!(task.part, Part::Only(_)) {
        findings.bars = bars(&grids);
    }
    let how = if disk.refused() { "the system's cache: the file system knows no direct I/O" } else { "direct I/O" };
    configuration.push(("disk", how.to_owned()));
    findings.configuration =
        configuration.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Configuration>();
    Ok(findings)
}

/// How long a pool is warmed, and how long it is measured.
fn length(task: &Task) -> Duration {
    if task.options.quick { QUICK_RUN } else { task.shared_time(4) }
}

/// One run with a cold pool: `length` to warm it, and as long measured.
fn measure(disk: &Arc<DirectDisk>, workload: &Workload, system: Shared, frames: u32, length: Duration) -> Res<Ran> {
    let config = NodeConfig { frames, replacement: system.kind(), read_ahead: 0, ..NodeConfig::default() };
    let node = Node::open(disk.clone(), workload.directory.path(), config).map_err(|e| e.to_string())?;
    let pool: &Pool = node.pool();
    let stop = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let stop = &stop;
        let mut rounds = Vec::new();
        for round in 0..2 {
            // Relaxed, here and below: a sign, nothing is handed over by it.
            stop.store(false, Ordering::Relaxed);
            let (reads, began) = (pool.stats().reads, Instant::now());
            let part = move |thread| part(pool, workload, round * THREADS as u64 + thread, stop);
            let threads: Vec<_> = (0..THREADS as u64).map(|thread| scope.spawn(move || part(thread))).collect();
            while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                thread::park_timeout(left);
            }
            stop.store(true, Ordering::Relaxed);
            let parts: Res<Vec<(u64, u64)>> =
                threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?).collect();
            rounds.push((parts?, pool.stats().reads - reads, began.elapsed()));
        }
        Ok::<_, String>(rounds)
    })?;
    let (parts, reads, elapsed) = rounds.into_iter().next_back().ok_or("no round")?;
    let accesses: u64 = parts.iter().map(|part| part.0).sum();
    let transactions: u64 = parts.iter().map(|part| part.1).sum();
    Ok(Ran {
        hit_percent: (1.0 - reads as f64 / accesses.max(1) as f64) * 100.0,
        transactions: transactions as f64 / elapsed.as_secs_f64(),
    })
}

/// Accesses and transactions of a thread.
fn part(pool: &Pool, workload: &Workload, seed: u64, stop: &AtomicBool) -> Res<(u64, u64)> {
    let (mut rng, mut done) = (Rng::new(seed + 1), (0, 0));
    loop {
        for number in &workload.transactions[rng.below(workload.transactions.len() as u64) as usize] {
            let id = workload.pages[*number as usize];
            let mut kept = None;
            while pool.read(id).is_err() {
                kept = Some(pool.fetch_blocking(Want::Page(id)).map_err(|e| e.to_string())?);
            }
            drop(kept);
            done.0 += 1;
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
        }
        done.1 += 1;
    }
}

/// Of all workloads.
fn bars(grids: &[Grid<Ran>]) -> Vec<Bar> {
    let reading = |grid: &Grid<Ran>, how, x: f64, measure: &Measure<Ran>| {
        let name = format!("{}, {x} MiB, {}", grid.title, Shared { policy: POLICY, how }.name());
        Some(Reading::new(&name, of(grid, how, x, measure.of)?, measure.unit, measure.digits))
    };
    let pair = |grid, a, b, x, measure| Some([reading(grid, a, x, measure)?, reading(grid, b, x, measure)?]);
    let places = |grid: &Grid<Ran>| grid.cells.iter().map(|cell| cell.x).collect::<Vec<_>>();
    let mut apart: Option<(f64, [Reading; 2])> = None;
    for (grid, x) in grids.iter().flat_map(|grid| places(grid).into_iter().map(move |x| (grid, x))) {
        if let Some(both) = pair(grid, How::BatchedPrefetched, How::Locked, x, &HITS) {
            let points = (both[0].value - both[1].value).abs();
            if apart.as_ref().is_none_or(|(most, _)| points > *most) {
                apart = Some((points, both));
            }
        }
    }
    let coincide =
        apart.map(|(points, both)| Bar::measured(COINCIDE, points, "points", Bound::AtMost(COINCIDENT), both.into()));
    let over_clock = |name, least: f64, place: fn((f64, f64)) -> f64| {
        let one = |grid| pair(grid, How::BatchedPrefetched, How::Clock, place(names(grid)?), &RATE);
        let ratio = |[ours, clock]: &[Reading; 2]| ours.value / clock.value;
        let worst = grids.iter().filter_map(one).min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
        let [ours, clock] = worst;
        Some(Bar::ratio(name, Bound::AtLeast(least), ours, clock))
    };
    let smallest = over_clock(SMALLEST, 1.0, |(least, _)| least);
    let largest = over_clock(LARGEST, SAME, |(_, most)| most);
    [coincide, smallest, largest].into_iter().flatten().collect()
}

fn names(grid: &Grid<Ran>) -> Option<(f64, f64)> {
    let places = grid.cells.iter().map(|cell| cell.x);
    Some((places.clone().min_by(f64::total_cmp)?, places.max_by(f64::total_cmp)?))
}

fn of(grid: &Grid<Ran>, how: How, x: f64, figure: fn(&Ran) -> f64) -> Option<f64> {
    grid.at(&Shared { policy: POLICY, how }.name(), x, figure)
}

fn found(grid: &Grid<Ran>) -> Option<String> {
    let (least, most) = names(grid)?;
    let over = |x, how| Some(of(grid, how, x, RATE.of)? / of(grid, How::Clock, x, RATE.of)?);
    Some(format!(
        "{}: throughput over the clock's with {least} MiB and with {most} MiB: 2Q behind a lock {:.2} and {:.2}, batched and prefetched {:.2} and {:.2}.",
        grid.title,
        over(least, How::Locked)?,
        over(most, How::Locked)?,
        over(least, How::BatchedPrefetched)?,
        over(most, How::BatchedPrefetched)?
    ))
}

/// The source's curves of hit ratios coincide: by how much ours differ at most.
fn agreement(grid: &Grid<Ran>) -> Option<String> {
    let places = grid.cells.iter().map(|cell| cell.x);
    let apart = places.filter_map(|x| {
        Some((of(grid, How::Locked, x, HITS.of)? - of(grid, How::BatchedPrefetched, x, HITS.of)?).abs())
    });
    let apart = apart.max_by(f64::total_cmp)?;
    Some(format!(
        "{}: the source's hit ratios of 2Q with the lock and with batches coincide; ours are at most {apart:.2} points apart. That its locked 2Q falls below the clock with the largest pool needs its eight processors.",
        grid.title
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_where_a_claim_holds_least_is_judged() {
        let mut grid = Grid { title: "DBT-1-like".into(), x: "MiB", cells: Vec::new() };
        for (how, x, hit_percent, transactions) in [
            (How::Clock, 32.0, 50.0, 100.0),
            (How::Locked, 32.0, 60.0, 110.0),
            (How::BatchedPrefetched, 32.0, 59.9, 120.0),
            (How::Clock, 1024.0, 90.0, 200.0),
            (How::Locked, 1024.0, 95.0, 150.0),
            (How::BatchedPrefetched, 1024.0, 94.25, 180.0),
        ] {
            grid.record(&Shared { policy: POLICY, how }.name(), x, Ran { hit_percent, transactions });
        }
        let bars = bars(&[grid]);
        let lines: Vec<String> = bars.iter().map(|bar| format!("{} {}", bar.verdict(false), bar.explained())).collect();
        assert!(lines[0].starts_with("short 0.75 points, bar at most 0.50 points (DBT-1-like, 1024 MiB"), "{lines:?}");
        assert!(lines[1].starts_with("ok 1.20 x") && lines[2].starts_with("short 0.90 x"), "{lines:?}");
        assert_eq!(bars.iter().map(|bar| bar.name.as_str()).collect::<Vec<_>>(), BARS);
    }
}
