//! OpenZFS's experiment: many threads read cached 8 KiB blocks at random from a pool whose policy
//! has one list or several.

mod simulated;

use crate::bars::{Bar, Bound, Reading};
use crate::bp::grid::{Grid, Measure};
use crate::bp::point;
use crate::bp::real::{Counted, load};
use crate::bp::workload::{Kind, Size, Workload};
use crate::experiment::{Experiment, Part, Task};
use crate::place::{self, Missing, Place, Placed, Watch};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use crate::room::Room;
use crate::spinlock::calibrate_work;
use crate::table::{self, Column, FEW, Table};
use clearway_buffer::{PAGE_SIZE, Pool};
use clearway_env::OsDisk;
use clearway_harness::Res;
use clearway_latch::lockstat::{self, Contention};
use clearway_replacement::{ReplacementKind, WrapperKind};
use clearway_storage::{Node, NodeConfig};
use clearway_testkit::Rng;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "multilist/bandwidth",
    about: "32 threads, cached random reads of 8 KiB: policies with one list, with sublists, and our default",
    question: "How much do the locks of a cache's lists cost if all reads hit, and what does splitting each list into sublists with their own locks gain?",
    source: "Prakash Surya: OpenZFS: Reducing ARC Lock Contention, 2015 (illumos commit 244781f1, 5497 lock contention on arcs_mtx): fio, 32 threads, a file of 512 MB each.",
    source_found: "With one list: 840,893 KB/s on 1 CPU, 5,104.9 MB/s on 8 and 3,036.2 MB/s on 32. With sublists: 9,896.6 MB/s on 32, 225 % more, and a negligible loss with few CPUs. Before, two waits for ARC_mfu made up 92 % of all contention, with 68 to 75 us each; after, no list is among the three entries that it shows.",
    limits: &[
        "No more threads run at once than this machine has cores, so most of a wait for a list's latch here is probably time without a core.",
        "Simulated: the work of a read is fitted to the point of one list with 1 CPU, and two costs to those with 32. The other costs are our estimates.",
    ],
    bars: &BARS,
    run,
};

const BARS: [&str; 3] = [NO_LOSS, GAIN, point::PREDICTIONS];
/// According to the source, sublists lose a negligible share with few CPUs and gain 225 % with 32.
const NO_LOSS: &str = "32 threads: bandwidth of arc/multilist over that of arc/locked";
const GAIN: &str =
    "32 threads on as many cores: bandwidth of arc/multilist over that of arc/locked";
const GAIN_AT_LEAST: f64 = 3.25;
/// Sublists and one list.
const JUDGED: [&str; 2] = ["arc/multilist", "arc/locked"];

/// The source's lockstat with 32 CPUs and one list: latch and caller, share of all contention in
/// percent, nanoseconds per wait.
const PUBLISHED_WAITS: [(&str, f64, f64); 3] = [
    ("ARC_mfu, remove_reference", 47.0, 67_709.0),
    ("ARC_mfu, add_reference", 46.0, 75_366.0),
    ("buf_hash_table, arc_buf_add_ref", 0.0, 436_330.0),
];
/// Thread counts.
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const QUICK_THREADS: [usize; 2] = [1, 32];
/// Minimum run length. The source's runs last a minute (`--seconds 60`).
const MIN_RUN: Duration = Duration::from_secs(10);
const QUICK_RUN: Duration = Duration::from_millis(10);
/// The most bytes that are read: the source's 32 files of 512 MB.
const SOURCE_BYTES: u64 = 32 * (512 << 20);
/// The least: many times a processor's caches.
const LEAST_BYTES: u64 = 1 << 30;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
struct RunResult {
    mb_s: f64,
    /// Reads, over all threads.
    reads: u64,
    /// Requests for the lists' latches.
    requests: u64,
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

const REQUESTS: Measure<RunResult> = Measure {
    name: "requests for a list's latch per read",
    unit: "",
    digits: 2,
    axis: Axis::linear,
    events: None,
    of: |ran| ran.requests as f64 / ran.reads.max(1) as f64,
};
/// lockstat's name of the policies' latches.
const POLICY_CLASS: &str = "buffer.policy";
const BANDWIDTH: Measure<RunResult> = Measure {
    name: "bandwidth",
    unit: "MB/s",
    digits: 1,
    axis: Axis::linear,
    events: None,
    of: |ran| ran.mb_s,
};
/// Bandwidth of the simulations.
const SIMULATED_BANDWIDTH: Measure<f64> = Measure {
    name: "bandwidth",
    unit: "MB/s",
    digits: 1,
    axis: Axis::linear,
    events: None,
    of: |mb_s| *mb_s,
};

/// Returns the replacements: one list, sublists if the engine has them, our default, and the clock
/// without a lock.
fn kinds() -> Vec<ReplacementKind> {
    let wanted = |kind: &ReplacementKind| match kind {
        ReplacementKind::Wrapped(policy, wrapper) => {
            ["lru", "arc"].contains(&policy.name())
                && (["locked", "multilist"].contains(&wrapper.name())
                    || *wrapper == WrapperKind::default())
        }
        _ => true,
    };
    ReplacementKind::all().filter(wanted).collect()
}

fn run(task: &Task) -> Res<Findings> {
    let quick = task.options.quick;
    // Any tables will do: only their pages are read.
    let size = match quick {
        true => Size::of(true),
        false => Size::scans_of(bytes(Room::here()?)?),
    };
    let workload = Workload::record(Kind::TableScan, size)?;
    let kinds: Vec<ReplacementKind> = kinds()
        .into_iter()
        .filter(|kind| {
            task.part.wants(&kind.to_string(), JUDGED.contains(&kind.to_string().as_str()))
        })
        .collect();
    let threads: &[usize] = match (quick, &task.part) {
        (true, _) => &QUICK_THREADS,
        (false, Part::Bars) => &THREADS[THREADS.len() - 1..],
        (false, _) => &THREADS,
    };
    let mut progress =
        Progress::new(EXPERIMENT.name, kinds.len() * threads.len() * task.repetitions() as usize);
    let mut grid = Grid { title: "Measured here".into(), x: "threads", cells: Vec::new() };
    let mut waits = Vec::new();
    let per_ns = calibrate_work();
    // Policies take turns, so that a temporary slowdown of the machine affects all of them.
    let turns = (1..=task.repetitions())
        .flat_map(|repetition| kinds.iter().map(move |kind| (repetition, kind)));
    for (repetition, kind) in turns {
        let config =
            NodeConfig { frames: size.frames, replacement: *kind, ..NodeConfig::default() };
        let node = Node::open(Arc::new(OsDisk), workload.directory.path(), config)
            .map_err(|e| e.to_string())?;
        load(node.pool(), &workload.pages)?;
        let (mut watch, mut rows) = (Watch::begin(per_ns), Vec::new());
        for threads in threads {
            progress.step(&format!("{kind}, {threads} threads, repetition {repetition}"));
            let ran;
            (ran, rows) = read(node.pool(), &workload, *threads, length(task), &mut watch)?;
            grid.record(&kind.to_string(), *threads as f64, ran);
        }
        if repetition == task.repetitions() {
            waits.extend(waited(&kind.to_string(), rows));
        }
    }
    place::mark_apart(grid.results_mut());
    let judged = !matches!(task.part, Part::Only(_));
    let lists = lists_in_lockstat(&waits);
    let simulated = if judged { simulated::simulate_all(quick) } else { Vec::new() };
    let mut samples = vec![grid.samples(&BANDWIDTH)];
    let mut tables = vec![
        grid.table(&BANDWIDTH),
        simulated::published(&simulated),
        lockstat_table(waits),
        grid.table(&REQUESTS),
    ];
    if !simulated.is_empty() {
        samples.push(simulated::chart(&simulated, &SIMULATED_BANDWIDTH));
    }
    samples.extend(grid.place_samples());
    if task.part == Part::Whole {
        tables.push(simulated::sensitivity(quick));
    }
    Ok(Findings {
        configuration: configuration(task, &workload),
        seeds: simulated::SEEDS.into(),
        samples,
        tables,
        found: found(&grid).into_iter().chain(place::found("runs", grid.places())).collect(),
        agreement: simulated::agreement(&simulated).into_iter().chain(lists).collect(),
        bars: if judged { bars(&grid, &simulated) } else { Vec::new() },
    })
}

/// Returns the bytes of tables that fit, at most the source's.
fn bytes(room: Room) -> Res<u64> {
    match room.for_tables() {
        bytes if bytes >= LEAST_BYTES => Ok(bytes.min(SOURCE_BYTES)),
        bytes => Err(format!(
            "memory and disk have room for {} MiB of tables, and {} are needed",
            bytes >> 20,
            LEAST_BYTES >> 20
        )),
    }
}

/// Judges sublists against one list, here and where the source saw a gain; and the simulation's
/// predictions.
fn bars(grid: &Grid<RunResult>, simulated: &[simulated::Simulated]) -> Vec<Bar> {
    let most = THREADS[THREADS.len() - 1];
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let over = |name, least| match grid.together(JUDGED, most as f64, BANDWIDTH.of) {
        Ok(rates) => {
            let [ours, one] = [0, 1]
                .map(|at| Reading::new(JUDGED[at], rates[at], BANDWIDTH.unit, BANDWIDTH.digits));
            Some(Bar::ratio(name, Bound::AtLeast(least), ours, one))
        }
        Err(Missing::NoCommonState) => Some(Bar::without_all(name, 1)),
        Err(Missing::Unmeasured) => None,
    };
    let gain = match cores >= most {
        true => over(GAIN, GAIN_AT_LEAST),
        false => Some(Bar::not_here(
            GAIN,
            format!("{most} cores are needed, and this machine has {cores}"),
        )),
    };
    [over(NO_LOSS, 1.0), gain, simulated::bar(simulated)].into_iter().flatten().collect()
}

fn length(task: &Task) -> Duration {
    if task.options.quick {
        QUICK_RUN
    } else {
        Duration::from_secs(task.options.seconds.into()).max(MIN_RUN)
    }
}

fn configuration(task: &Task, workload: &Workload) -> Configuration {
    let settings = [
        (
            "reads",
            format!(
                "of {} pages of {PAGE_SIZE} bytes (the source's files have {}), all in the pool, copied whole, each reported to the policy {} times",
                workload.pages.len(),
                SOURCE_BYTES / PAGE_SIZE as u64,
                simulated::LOCKS_A_READ
            ),
        ),
        ("simulated machine", simulated::SOURCE.described()),
        ("run length", format!("{:?}", length(task))),
        (place::SETTING.0, place::SETTING.1.into()),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Runs the reading threads, and returns lockstat's rows, read before a thread ends: its end also
/// takes the policy's latch. The watch has just begun, or ended its last run. As in the source and
/// its simulation, a read requests the list's lock twice.
fn read(
    pool: &Pool,
    workload: &Workload,
    threads: usize,
    length: Duration,
    watch: &mut Watch,
) -> Res<(RunResult, Vec<Contention>)> {
    lockstat::reset();
    let (stop, over) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let began = Instant::now();
    let one = |seed| {
        let _counted = Counted(&over);
        let (mut rng, mut reads, mut block) = (Rng::new(seed), 0_u64, vec![0_u8; PAGE_SIZE]);
        loop {
            let id = workload.pages[rng.below(workload.pages.len() as u64) as usize];
            let missing = |_| format!("{id} has left a pool that has room for all");
            for _ in 1..simulated::LOCKS_A_READ {
                black_box(pool.read(id).map_err(missing)?[0]);
            }
            block.copy_from_slice(&pool.read(id).map_err(missing)?);
            black_box(&mut block);
            reads += 1;
            // Relaxed: a stop flag; it publishes no data. Each thread reads at least once, even if
            // it got a core late.
            if stop.load(Ordering::Relaxed) {
                return Ok::<_, String>(reads);
            }
        }
    };
    let (reads, elapsed, rows) = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> =
            (1..=threads as u64).map(|seed| scope.spawn(move || one(seed))).collect();
        while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
        stop.store(true, Ordering::Relaxed);
        over.wait();
        let (elapsed, rows) = (began.elapsed().as_secs_f64(), lockstat::contention());
        over.wait();
        let joined = threads.into_iter();
        let joined = joined.map(|t| t.join().map_err(|_| "a thread panicked".to_owned())?);
        Ok::<_, String>((joined.sum::<Res<u64>>()?, elapsed, rows))
    })?;
    // Each row of a class has the requests of all its call sites.
    let policy = rows.iter().filter(|row| row.name == POLICY_CLASS);
    let requests = policy.map(|row| row.requests).max().unwrap_or(0);
    let ran = RunResult {
        mb_s: reads as f64 * PAGE_SIZE as f64 / elapsed / f64::from(1 << 20),
        reads,
        requests,
        place: watch.lap(),
    };
    Ok((ran, rows))
}

/// A row of lockstat: system, latch and caller, waits, their share of all waits, nanoseconds per
/// wait.
type Waited = (String, String, u64, f64, f64);

/// Returns the three latches and callers with the most waits in the last run, which had the most
/// threads.
fn waited(system: &str, mut rows: Vec<Contention>) -> Vec<Waited> {
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
            if all as f64 >= FEW { row.contended as f64 * 100.0 / all as f64 } else { f64::NAN },
            mean,
        )
    });
    shown.collect()
}

/// Says what share of all waits those for the sublists of ARC are: the source's lists vanish.
fn lists_in_lockstat(waits: &[Waited]) -> Option<String> {
    let of = |system: &str| {
        let rows =
            waits.iter().filter(move |row| row.0 == system && row.1.starts_with(POLICY_CLASS));
        let sum = |part: fn(&Waited) -> f64| rows.clone().map(part).sum::<f64>();
        (sum(|row| row.3), sum(|row| row.2 as f64 * row.4 / 1e9))
    };
    let [(share, sublists), (_, one)] = JUDGED.map(of);
    (share > 0.0 && one > 0.0).then(|| {
        format!(
            "With sublists, no list is among the three entries of lockstat that the source shows. Here, with the most threads, waits for {} are {share:.0} % of all, {sublists:.0} s in all threads, beside {one:.0} s for {}.",
            JUDGED[0], JUDGED[1]
        )
    })
}

fn lockstat_table(waits: Vec<Waited>) -> Table {
    let columns = vec![
        Column::ours("system", ""),
        Column::ours("latch and caller", ""),
        Column::ours("waits", ""),
        Column::ours("share", "%"),
        Column::published("share", "%"),
        Column::ours("per wait", "ns"),
        Column::published("per wait", "ns"),
    ];
    let ours = waits.into_iter().map(|(system, latch, count, share, mean)| {
        let number = |value, digits| table::Cell::number(value, digits);
        // Too few waits are shown as a count without a share.
        let share = if share.is_finite() { number(share, 0) } else { table::Cell::Empty };
        let cells = [
            number(count as f64, 0),
            share,
            table::Cell::Empty,
            number(mean, 0),
            table::Cell::Empty,
        ];
        [table::Cell::text(system), table::Cell::text(latch)].into_iter().chain(cells).collect()
    });
    let source = PUBLISHED_WAITS.map(|(latch, share, mean)| {
        let number = |value, digits| table::Cell::number(value, digits);
        let cells = [
            table::Cell::Empty,
            table::Cell::Empty,
            number(share, 0),
            table::Cell::Empty,
            number(mean, 0),
        ];
        [table::Cell::text("one list, 32 CPUs"), table::Cell::text(latch)]
            .into_iter()
            .chain(cells)
            .collect()
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Table {
        title: format!(
            "lockstat with the most threads, in the last repetition, without the ends of threads: here on {cores} cores, where a wait includes the time without a core; published on 32 CPUs, so waits are not as long"
        ),
        columns,
        rows: ours.chain(source).collect(),
    }
}

fn found(grid: &Grid<RunResult>) -> Vec<String> {
    let most = THREADS[THREADS.len() - 1] as f64;
    let mut systems: Vec<&String> = grid.cells.iter().map(|cell| &cell.system).collect();
    systems.dedup();
    let one =
        |system: &&String| Some(format!("{system} {:.0}", grid.at(system, most, BANDWIDTH.of)?));
    let all: Vec<String> = systems.iter().filter_map(one).collect();
    if all.is_empty() {
        all
    } else {
        vec![format!("MB/s with {most} threads, measured here: {}.", all.join(", "))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Options;
    use crate::result::Record;
    use clearway_replacement::{ClockSweep, Probe, Replacement, ReplacementFactory};
    use clearway_types::{FrameId, PageId};
    use std::sync::atomic::AtomicU64;

    static HITS: AtomicU64 = AtomicU64::new(0);

    /// Counts the hits reported to it.
    struct Counting(ClockSweep);

    impl Replacement for Counting {
        fn hit(&self, frame: FrameId, page: PageId) {
            // Relaxed: a count, read after the threads have ended.
            HITS.fetch_add(1, Ordering::Relaxed);
            self.0.hit(frame, page);
        }
        fn miss(&self, frame: FrameId, page: PageId) {
            self.0.miss(frame, page);
        }
        fn evict(
            &self,
            incoming: Option<PageId>,
            probe: &mut dyn FnMut(FrameId) -> Probe,
        ) -> Option<FrameId> {
            self.0.evict(incoming, probe)
        }
        fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
            self.0.remove(frame, take);
        }
    }

    #[test]
    fn waits_for_sublists_are_reported_beside_one_list() {
        let row = |system: &str, waits, share, ns| {
            (system.to_owned(), format!("{POLICY_CLASS}, hit"), waits, share, ns)
        };
        let waits =
            [row(JUDGED[0], 892_778, 100.0, 235_990.0), row(JUDGED[1], 2_736_364, 100.0, 80_817.0)];
        let said = lists_in_lockstat(&waits).unwrap();
        assert!(said.contains("100 % of all, 211 s") && said.contains("beside 221 s"), "{said}");
        assert_eq!(lists_in_lockstat(&waits[1..]), None);
        assert!(lockstat_table(Vec::new()).title.contains("published on 32 CPUs"));
    }

    #[test]
    fn tables_are_as_large_as_fits() {
        let of = |gib: u64| bytes(Room::of(gib << 30, 1 << 60));
        assert_eq!((of(8), of(1_000)), (Ok(4 << 30), Ok(16 << 30)));
        assert!(of(1).is_err_and(|why| why.contains("512 MiB")), "half of the memory");
    }

    #[test]
    fn reads_notify_the_policy_as_often_as_simulated() {
        let size = Size::of(true);
        let workload = Workload::record(Kind::TableScan, size).unwrap();
        let replacement = ReplacementKind::Custom(ReplacementFactory::Notified(|frames| {
            Box::new(Counting(ClockSweep::new(frames)))
        }));
        let config = NodeConfig { frames: size.frames, replacement, ..NodeConfig::default() };
        let node = Node::open(Arc::new(OsDisk), workload.directory.path(), config).unwrap();
        load(node.pool(), &workload.pages).unwrap();
        let before = HITS.load(Ordering::Relaxed);
        let mut watch = Watch::begin(1.0);
        let (ran, rows) = read(node.pool(), &workload, 2, QUICK_RUN, &mut watch).unwrap();
        assert!(rows.len() >= waited("counting", rows.clone()).len());
        let told = HITS.load(Ordering::Relaxed) - before;
        assert!(
            ran.reads > 0 && told == ran.reads * simulated::LOCKS_A_READ as u64,
            "{told} for {ran:?}"
        );
    }

    #[test]
    fn quick_run_covers_lists_and_published_points() {
        let options =
            Options { quick: true, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        let record = Record::make(&EXPERIMENT, &Task { options, part: Part::Whole }).unwrap();
        let measured = &record.findings.samples[0].series;
        assert!(measured.iter().any(|s| s.name == "arc/locked") && measured.len() >= 3);
        assert!(measured.iter().all(|s| s.points.iter().all(|p| p.y[0] > 0.0)));
        // The values are not checked: lockstat also counts other tests of this process.
        assert_eq!(record.findings.tables[3].rows.len(), record.findings.tables[0].rows.len());
        assert_eq!(record.findings.tables[1].rows.len(), simulated::PUBLISHED.len());
        let judged: Vec<&str> = record.findings.bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(judged, BARS);
        let marked = record.findings.samples[1].marked.as_ref().unwrap();
        let fitted = |x: f64| marked.points.contains(&("sublists, simulated".to_owned(), x));
        assert_eq!([1.0, 8.0, 32.0].map(fitted), [true, false, true]);
        let compared = &record.findings.samples[1].series;
        assert!(
            compared.len() == 4
                && compared.iter().all(|s| s.points.len() == simulated::PUBLISHED.len())
        );
    }
}
