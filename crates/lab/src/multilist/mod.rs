//! OpenZFS's experiment: many threads read cached blocks of 8 KiB at random, from a pool whose policy has one list or several.

use crate::bp::grid::{Cell, Grid, Measure};
use crate::bp::workload::{Kind, Size, Workload};
use crate::experiment::{Experiment, Part, Task};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use crate::simulator::costs::Costs;
use crate::simulator::{Blocks, Called, Machine, Outcome, System, Transactions, simulate};
use crate::table::{self, Column, Table};
use clearway_buffer::{MultilistKind, PAGE_SIZE, PolicyKind, Pool, ReplacementKind, WrapperKind};
use clearway_env::OsDisk;
use clearway_harness::Res;
use clearway_latch::lockstat;
use clearway_storage::{Node, NodeConfig};
use clearway_traces::Rng;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "multilist/bandwidth",
    about: "32 threads, cached random reads of 8 KiB: policies with one list, with sublists, and ours",
    question: "How much do the locks of a cache's lists cost reads that all hit, and what does it gain to split each list into sublists with locks of their own?",
    source: "Prakash Surya: OpenZFS: Reducing ARC Lock Contention, 2015 (illumos commit 244781f1, 5497 lock contention on arcs_mtx): fio, 32 threads, a file of 512 MB each.",
    source_found: "With one list 840,893 KB/s on one CPU, 5,104.9 MB/s on 8 and 3,036.2 MB/s on 32; with sublists 9,896.6 MB/s on 32, 225 % more, and nothing lost with few. Two waits for ARC_mfu made 92 % of all contention, 68 to 75 us each; after, no list is in sight.",
    bars: &[],
    run,
};

/// CPUs, and MB/s after and before, as published; those of one CPU are KB/s there.
const PUBLISHED: [(usize, f64, f64); 6] = [
    (1, 833_163.0 / 1024.0, 840_893.0 / 1024.0),
    (2, 1520.2, 1559.5),
    (4, 2985.3, 3022.1),
    (8, 5913.2, 5104.9),
    (16, 8938.9, 3854.3),
    (32, 9896.6, 3036.2),
];
/// The source's lockstat with 32 CPUs and one list: share of all contention in percent, waits in nanoseconds, latch and caller.
const PUBLISHED_WAITS: [(&str, f64, f64); 3] = [
    ("ARC_mfu, remove_reference", 47.0, 67_709.0),
    ("ARC_mfu, add_reference", 46.0, 75_366.0),
    ("buf_hash_table, arc_buf_add_ref", 0.0, 436_330.0),
];
/// The source's machine, a virtual one. A hit takes the list's lock twice, and what is between is half a read: together 8 KiB at its rate on one CPU.
/// Waiters spin, as the owner runs. Two costs were fitted to 32 CPUs: that the lock takes longer the more wait, with one list; and what all CPUs
/// share, with sublists, where no list's lock is in the source's lockstat, and no other for long enough to matter: half a read at the bandwidth
/// that they came to. All other points are the check.
const SOURCE: Costs = Costs {
    work_ns: 4_450.0,
    note_ns: 0.0,
    policy_ns: 200.0,
    cold_ns: 150.0,
    prefetch_ns: 0.0,
    latch_ns: 70.0,
    transfer_ns: 150.0,
    memory_ns: 395.0,
    crowd_ns: 18.0,
    switch_ns: 3_000.0,
    slice_ns: f64::INFINITY,
    spin_ns: 1e6,
};
/// Requests for the list's lock by read, in the source's.
const LOCKS_A_READ: f64 = 2.0;
/// Reads between two times that a thread gives others the core.
const READS_A_TURN: u64 = 500;
/// How many threads read.
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const QUICK_THREADS: [usize; 2] = [1, 32];
const QUICK_RUN: Duration = Duration::from_millis(10);
const PLAYED: u64 = 300_000;
const QUICK_PLAYED: u64 = 3_000;

const BANDWIDTH: Measure<f64> =
    Measure { name: "bandwidth", unit: "MB/s", digits: 1, axis: Axis::linear, of: |mb_s| *mb_s };

/// One list, sublists if the engine has them, ours, and the clock without a lock.
fn kinds() -> Vec<ReplacementKind> {
    let wanted = |kind: &ReplacementKind| match kind {
        ReplacementKind::Wrapped(policy, wrapper) => {
            ["lru", "arc"].contains(&policy.name())
                && (["locked", "multilist"].contains(&wrapper.name()) || *wrapper == WrapperKind::default())
        }
        _ => true,
    };
    ReplacementKind::all().filter(wanted).collect()
}

fn run(task: &Task) -> Res<Findings> {
    let quick = task.options.quick;
    // Any tables will do: what is read are their pages.
    let size = Size::of(quick);
    let workload = Workload::record(Kind::TableScan, size)?;
    let kinds: Vec<ReplacementKind> =
        kinds().into_iter().filter(|kind| task.part.wants(&kind.to_string(), false)).collect();
    let threads: &[usize] = if quick { &QUICK_THREADS } else { &THREADS };
    let mut progress = Progress::new(EXPERIMENT.name, kinds.len() * threads.len());
    let mut grid = Grid { title: "Measured here".into(), x: "threads", cells: Vec::new() };
    let mut waits = Vec::new();
    for kind in &kinds {
        let config = NodeConfig { frames: size.frames, replacement: *kind, ..NodeConfig::default() };
        let node = Node::open(Arc::new(OsDisk), workload.directory.path(), config).map_err(|e| e.to_string())?;
        for page in &workload.pages {
            node.pool().fetch_blocking(clearway_buffer::Want::Page(*page)).map_err(|e| e.to_string())?;
        }
        for threads in threads {
            progress.step(&format!("{kind}, {threads} threads"));
            let one = |_| read(node.pool(), &workload, *threads, length(task));
            let figures = (0..task.repetitions()).map(one).collect::<Res<_>>()?;
            grid.cells.push(Cell { system: kind.to_string(), x: *threads as f64, figures });
        }
        waits.extend(waited(&kind.to_string()));
    }
    let simulated = if task.part == Part::Whole { play(quick) } else { Vec::new() };
    let mut samples = vec![grid.samples(&BANDWIDTH)];
    samples.extend((!simulated.is_empty()).then(|| beside_published(&simulated).samples(&BANDWIDTH)));
    Ok(Findings {
        configuration: configuration(task, &workload),
        seeds: vec![1],
        samples,
        tables: vec![grid.table(&BANDWIDTH), published(&simulated), lockstat_table(waits)],
        found: found(&grid),
        agreement: agreement(&simulated),
        ..Findings::default()
    })
}

fn length(task: &Task) -> Duration {
    if task.options.quick { QUICK_RUN } else { Duration::from_secs(task.options.seconds.into()) / 5 }
}

fn configuration(task: &Task, workload: &Workload) -> Configuration {
    let settings = [
        ("reads", format!("of {} pages of {PAGE_SIZE} bytes, all in the pool, copied whole", workload.pages.len())),
        ("simulated machine", SOURCE.described()),
        ("run length", format!("{:?}", length(task))),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// MB/s that threads read.
fn read(pool: &Pool, workload: &Workload, threads: usize, length: Duration) -> Res<f64> {
    lockstat::reset();
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let one = |seed| {
        let (mut rng, mut reads, mut block) = (Rng::new(seed), 0_u64, vec![0_u8; PAGE_SIZE]);
        loop {
            let id = workload.pages[rng.below(workload.pages.len() as u64) as usize];
            let page = pool.read(id).map_err(|_| format!("{id} has left a pool that has room for all"))?;
            block.copy_from_slice(&page);
            black_box(&mut block);
            reads += 1;
            // Relaxed: a sign, nothing is handed over by it. One read at least, however late the thread has a core.
            if stop.load(Ordering::Relaxed) {
                return Ok::<_, String>(reads);
            }
        }
    };
    let reads = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (1..=threads as u64).map(|seed| scope.spawn(move || one(seed))).collect();
        while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked".to_owned())?).sum::<Res<u64>>()
    })?;
    Ok(reads as f64 * PAGE_SIZE as f64 / began.elapsed().as_secs_f64() / f64::from(1 << 20))
}

/// A row of lockstat: the system, latch and caller, waits, their share of all, and how long one takes.
type Waited = (String, String, u64, f64, f64);

/// The three latches and callers that waited most often since the last reset: of the last run, which had the most threads.
fn waited(system: &str) -> Vec<Waited> {
    let mut rows = lockstat::contention();
    let all: u64 = rows.iter().map(|row| row.contended).sum();
    rows.retain(|row| row.contended > 0);
    rows.sort_by_key(|row| std::cmp::Reverse(row.contended));
    let shown = rows.iter().take(PUBLISHED_WAITS.len()).map(|row| {
        let caller = row.caller.map_or_else(String::new, |caller| format!(", {caller}"));
        let mean = row.waits.sum_ns() as f64 / row.contended as f64;
        (
            system.to_owned(),
            row.name.to_owned() + &caller,
            row.contended,
            row.contended as f64 * 100.0 / all as f64,
            mean,
        )
    });
    shown.collect()
}

fn lockstat_table(waits: Vec<Waited>) -> Table {
    let columns = vec![
        Column::ours("system", ""),
        Column::ours("latch and caller", ""),
        Column::ours("waits", ""),
        Column::ours("of all", "%"),
        Column::published("of all", "%"),
        Column::ours("a wait", "ns"),
        Column::published("a wait", "ns"),
    ];
    let ours = waits.into_iter().map(|(system, latch, count, share, mean)| {
        let number = |value, digits| table::Cell::number(value, digits);
        let cells =
            [number(count as f64, 0), number(share, 0), table::Cell::Empty, number(mean, 0), table::Cell::Empty];
        [table::Cell::text(system), table::Cell::text(latch)].into_iter().chain(cells).collect()
    });
    let source = PUBLISHED_WAITS.map(|(latch, share, mean)| {
        let number = |value, digits| table::Cell::number(value, digits);
        let cells = [table::Cell::Empty, table::Cell::Empty, number(share, 0), table::Cell::Empty, number(mean, 0)];
        [table::Cell::text("one list, 32 CPUs"), table::Cell::text(latch)].into_iter().chain(cells).collect()
    });
    Table { title: "lockstat with the most threads".into(), columns, rows: ours.chain(source).collect() }
}

/// What was simulated, by CPUs.
struct Played {
    cores: usize,
    /// LRU behind one lock.
    one_list: Outcome,
    /// LRU over as many sublists as there are CPUs, but four at least.
    sublists: Outcome,
}

/// The source's machine.
fn play(quick: bool) -> Vec<Played> {
    const PAGES: u64 = 20_000;
    const FEWEST: usize = 4;
    let one_list = Called::Wrapped(PolicyKind::Lru, |policy, frames| WrapperKind::Locked.wrap(policy, frames));
    let mut rng = Rng::new(1);
    // A read is two accesses to one page. A thread reads on and on: it gives others the core now and then only, as at the end of its time slice.
    let mut turn = || (0..READS_A_TURN).flat_map(|_| [rng.below(PAGES) as u32; LOCKS_A_READ as usize]).collect();
    let reads: Transactions = (0..PAGES / READS_A_TURN).map(|_| turn()).collect();
    let accesses = if quick { QUICK_PLAYED } else { PLAYED };
    let played = |cores: usize| {
        let threads = THREADS[THREADS.len() - 1];
        let outcome = |called| {
            let system = System { called, blocks: Blocks::Always, prefetches: false };
            simulate(&system, &Machine { cores, threads, costs: SOURCE, accesses, seed: 1 }, &reads)
        };
        let sublists = Called::Sublists(MultilistKind::Lru, cores.max(FEWEST) as u32);
        Played { cores, one_list: outcome(one_list), sublists: outcome(sublists) }
    };
    PUBLISHED.iter().map(|(cores, ..)| played(*cores)).collect()
}

/// The simulated bandwidths and the published ones.
fn beside_published(simulated: &[Played]) -> Grid<f64> {
    let cell = |system: &str, cores: usize, mb_s| Cell { system: system.into(), x: cores as f64, figures: vec![mb_s] };
    let cells = simulated.iter().zip(&PUBLISHED).flat_map(|(played, (cores, after, before))| {
        [
            cell("one list, simulated", *cores, mb_s(&played.one_list)),
            cell("one list, published", *cores, *before),
            cell("sublists, simulated", *cores, mb_s(&played.sublists)),
            cell("sublists, published", *cores, *after),
        ]
    });
    Grid { title: "The source's machine, simulated and published".into(), x: "CPUs", cells: cells.collect() }
}

fn mb_s(outcome: &Outcome) -> f64 {
    outcome.rate() * 1e6 / LOCKS_A_READ * PAGE_SIZE as f64 / f64::from(1 << 20)
}

/// The mean wait for a list's lock, in microseconds.
fn wait_us(outcome: &Outcome) -> Option<f64> {
    (outcome.waits > 0).then(|| outcome.waited_ns / outcome.waits as f64 / 1e3)
}

/// How much of the CPUs' time went into waiting for lists' locks, in percent.
fn waiting(played: &Played, outcome: &Outcome) -> f64 {
    outcome.waited_ns * 100.0 / (outcome.elapsed_ns * played.cores as f64)
}

fn published(simulated: &[Played]) -> Table {
    let columns = vec![
        Column::ours("CPUs", ""),
        Column::ours("one list, simulated", "MB/s"),
        Column::published("one list", "MB/s"),
        Column::ours("sublists, simulated", "MB/s"),
        Column::published("sublists", "MB/s"),
        Column::ours("a wait, one list, simulated", "us"),
        Column::ours("waiting, one list, simulated", "%"),
        Column::ours("waiting, sublists, simulated", "%"),
    ];
    let row = |(cores, after, before): &(usize, f64, f64)| {
        let played = simulated.iter().find(|played| played.cores == *cores);
        let of = |of: fn(&Played) -> Option<f64>| played.and_then(of);
        let numbers = [
            of(|played| Some(mb_s(&played.one_list))),
            Some(*before),
            of(|played| Some(mb_s(&played.sublists))),
            Some(*after),
            of(|played| wait_us(&played.one_list)),
            of(|played| Some(waiting(played, &played.one_list))),
            of(|played| Some(waiting(played, &played.sublists))),
        ];
        let cells = numbers.map(|value| table::Cell::number(value, 1));
        std::iter::once(table::Cell::number(*cores as f64, 0)).chain(cells).collect()
    };
    let title = "The source's machine, simulated, beside what was published".into();
    Table { title, columns, rows: PUBLISHED.iter().map(row).collect() }
}

fn found(grid: &Grid<f64>) -> Vec<String> {
    let most = THREADS[THREADS.len() - 1] as f64;
    let mut systems: Vec<&String> = grid.cells.iter().map(|cell| &cell.system).collect();
    systems.dedup();
    let one = |system: &&String| Some(format!("{system} {:.0}", grid.at(system, most, BANDWIDTH.of)?));
    let all: Vec<String> = systems.iter().filter_map(one).collect();
    if all.is_empty() { all } else { vec![format!("MB/s with {most} threads, measured here: {}.", all.join(", "))] }
}

fn agreement(simulated: &[Played]) -> Vec<String> {
    let off = |of: fn(&Played) -> &Outcome, published: fn(&(usize, f64, f64)) -> f64| {
        let point = |(played, point): (&Played, &(usize, f64, f64))| {
            format!("{} CPUs {:+.0} %", played.cores, (mb_s(of(played)) / published(point) - 1.0) * 100.0)
        };
        simulated.iter().zip(&PUBLISHED).map(point).collect::<Vec<_>>().join(", ")
    };
    if simulated.is_empty() {
        return Vec::new();
    }
    let (one_list, sublists) =
        (off(|p| &p.one_list, |(_, _, before)| *before), off(|p| &p.sublists, |(_, after, _)| *after));
    vec![
        format!(
            "Simulated beside published, with one list: {one_list}; with sublists: {sublists}. The costs are given; that of a crowd was fitted to one list on 32 CPUs, the bandwidth that all CPUs share to sublists on 32."
        ),
        "On two cores no list's lock is held for long enough to show what the source's 32 CPUs did.".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Options;
    use crate::result::Record;

    #[test]
    fn a_quick_run_reads_from_one_list_and_shows_the_published() {
        let options = Options { quick: true, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        let record = Record::make(&EXPERIMENT, &Task { options, part: Part::Whole }).unwrap();
        let measured = &record.findings.samples[0].series;
        assert!(measured.iter().any(|s| s.name == "arc/locked") && measured.len() >= 3);
        assert!(measured.iter().all(|s| s.points.iter().all(|p| p.y[0] > 0.0)));
        assert_eq!(record.findings.tables[1].rows.len(), PUBLISHED.len());
        let compared = &record.findings.samples[1].series;
        assert!(compared.len() == 4 && compared.iter().all(|s| s.points.len() == PUBLISHED.len()));
    }

    fn rates(of: fn(&Played) -> &Outcome) -> Vec<f64> {
        play(true).iter().map(|played| mb_s(of(played))).collect()
    }

    /// One CPU is what the given costs say, and 32 are what two of them are fitted to.
    #[test]
    fn the_simulated_machine_is_the_sources() {
        let (one_list, sublists) = (rates(|played| &played.one_list), rates(|played| &played.sublists));
        let before = [(0, 0.03), (5, 0.05)].map(|(at, most)| (one_list[at], PUBLISHED[at].2, most));
        let after = [(0, 0.03), (5, 0.05)].map(|(at, most)| (sublists[at], PUBLISHED[at].1, most));
        for (simulated, published, most) in before.into_iter().chain(after) {
            assert!((simulated / published - 1.0).abs() < most, "{one_list:?}, {sublists:?}, {published} published");
        }
    }

    /// What the source saw: with one list more CPUs come to read less.
    #[test]
    fn one_list_has_a_peak() {
        let rates = rates(|played| &played.one_list);
        assert!(rates[3] > 4.0 * rates[0] && rates[5] < rates[3], "{rates:?}");
    }

    /// With sublists each CPU adds, until what they share is used up; with few CPUs nothing is lost.
    #[test]
    fn sublists_scale_and_lose_nothing_with_few_cpus() {
        let (one_list, sublists) = (rates(|played| &played.one_list), rates(|played| &played.sublists));
        assert!((0..3).all(|at| sublists[at] > 0.98 * one_list[at]), "{one_list:?} {sublists:?}");
        assert!(sublists[3] > 7.0 * sublists[0] && sublists[5] > 2.5 * one_list[5], "{one_list:?} {sublists:?}");
        let played = &play(true)[5];
        let waiting = [&played.one_list, &played.sublists].map(|outcome| waiting(played, outcome));
        assert!(waiting[1] < waiting[0] / 5.0, "{waiting:?} % of the CPUs' time");
    }
}
