//! The source's figure 2 and tables II and III: the effect of batch, queue and threshold sizes.

use super::bare;
use super::claims::{self, BySize};
use super::grid::{Cell, Grid, Measure};
use super::real::{Real, RunResult};
use super::scaling::{CONTENTION, SEEDS, SLEEPING};
use super::source::ALTIX;
use super::systems::{How, POLICY, Shared, Sized};
use super::workload::{Kind, Recorded, Workload};
use crate::bars::Bar;
use crate::experiment::{Part, Task};
use crate::place::{self, Watch};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings, Samples};
use crate::room::Room;
use crate::simulator::{Machine, Outcome, System, on_all_cores, simulate};
use crate::spinlock::calibrate_work;
use clearway_harness::Res;
use clearway_replacement::ReplacementKind;
use std::time::Duration;

/// Threads on this machine: more than it has cores, as in the source.
const THREADS: usize = 8;
/// Processors of the source's machine.
const CORES: usize = 16;
const QUICK_RUN: Duration = Duration::from_millis(3);
const SIMULATED_ACCESSES: u64 = 1_000_000;
const QUICK_ACCESSES: u64 = 4_000;

const RATE: Measure<RunResult> = Measure {
    name: "throughput",
    unit: "accesses/us",
    digits: 2,
    axis: Axis::linear,
    events: None,
    of: |r| r.rate,
};
const SIMULATED_CONTENTION: Measure<Outcome> = Measure {
    name: "contention per million accesses",
    unit: "",
    digits: 1,
    axis: Axis::log,
    events: Some(("waits", |o| o.waits as f64)),
    of: Outcome::contention,
};
const SIMULATED_RATE: Measure<Outcome> = Measure {
    name: "throughput",
    unit: "accesses/us",
    digits: 3,
    axis: Axis::linear,
    events: None,
    of: Outcome::rate,
};
const LOCK: Measure<f64> = Measure {
    name: "time to acquire and hold, per access",
    unit: "ns",
    digits: 1,
    axis: Axis::log,
    events: None,
    of: |ns| *ns,
};

/// Name of the simulated series in figure 2.
const SIMULATED_SERIES: &str = "simulated 16 processors";

/// One of the source's two tables.
pub struct Sizes {
    name: &'static str,
    sizes: &'static [Sized],
    /// The varied size: its name, and how it is read.
    x: &'static str,
    of: fn(&Sized) -> u32,
    /// Published reduction of contention between two sizes: from, to, factor by workload.
    falls: Option<(u32, u32, [f64; 3])>,
    /// The size that beats prefetching alone, according to the source.
    beats_prefetching: Option<u32>,
}

/// The pool and the simulated system for one cell of a table.
struct Contender {
    /// Position in the table; [`NO_QUEUE`] for prefetching alone.
    x: f64,
    kind: ReplacementKind,
    system: System,
}

impl Sizes {
    /// Returns every size, and prefetching alone if the source compares with it.
    fn contenders(&self) -> Vec<Contender> {
        let sized = |sized: &Sized| Contender {
            x: f64::from((self.of)(sized)),
            kind: sized.kind(),
            system: sized.system(),
        };
        let alone = Contender { x: NO_QUEUE, kind: PREFETCHED.kind(), system: PREFETCHED.system() };
        let alone = self.beats_prefetching.map(|_| alone);
        self.sizes.iter().map(sized).chain(alone).collect()
    }
}

/// Table II.
pub const TABLE2: Sizes = Sizes {
    name: "bp-wrapper/table2",
    sizes: &Sized::HALF,
    x: "S",
    of: |sized| sized.queue,
    falls: Some((2, 8, [477.0, 32.0, 130.0])),
    beats_prefetching: Some(2),
};
/// Table III.
pub const TABLE3: Sizes = Sizes {
    name: "bp-wrapper/table3",
    sizes: &Sized::OF_64,
    x: "T",
    of: |sized| sized.threshold,
    falls: None,
    beats_prefetching: None,
};

/// 2Q behind a lock with prefetching, the source's pgPref. It has no queue; its numbers are at
/// position 0.
const PREFETCHED: Shared = Shared { policy: POLICY, how: How::Prefetched };
const NO_QUEUE: f64 = 0.0;

fn machine(task: &Task, seed: u64) -> Machine {
    let accesses = if task.options.quick { QUICK_ACCESSES } else { SIMULATED_ACCESSES };
    Machine { cores: CORES, threads: 2 * CORES, costs: ALTIX.costs, accesses, seed }
}

/// Simulates a system on the source's machine, once for each seed.
fn simulated_with_seeds(task: &Task, system: &System, workload: &Workload) -> Vec<Outcome> {
    let transactions = &workload.transactions;
    on_all_cores(SEEDS.len(), |at| simulate(system, &machine(task, SEEDS[at]), transactions))
}

fn length(task: &Task) -> Duration {
    if task.options.quick { QUICK_RUN } else { task.shared_time(4) }
}

fn configuration(task: &Task, workloads: &[Recorded]) -> Configuration {
    let settings = [
        ("measured", format!("{THREADS} threads on this machine")),
        (
            "simulated",
            format!("{CORES} processors of the {}: {}", ALTIX.machine, ALTIX.costs.described()),
        ),
        ("repetitions", task.repetitions().to_string()),
        ("run length", format!("{:?}", length(task))),
    ];
    let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value));
    settings.chain(workloads.iter().flat_map(Recorded::described)).collect()
}

fn recorded(task: &Task, kinds: &[Kind]) -> Res<Vec<Recorded>> {
    let (quick, room) = (task.options.quick, Room::here()?);
    let wanted = kinds.iter().filter(|kind| task.part.wants(kind.name(), true));
    wanted.map(|kind| Recorded::new(*kind, quick, room)).collect()
}

/// Runs table II or III.
pub fn run(table: &Sizes, task: &Task) -> Res<Findings> {
    let (per_ns, workloads) = (calibrate_work(), recorded(task, &Kind::ALL)?);
    let mut progress = Progress::new(
        table.name,
        workloads.len() * table.contenders().len() * task.repetitions() as usize,
    );
    let title = |what: &str| format!("2Q, batched, {what}");
    let mut measured = Grid {
        title: title("measured here with 8 threads"),
        x: table.x,
        cells: Vec::<Cell<RunResult>>::new(),
    };
    let mut simulated = Grid {
        title: title("simulated 16 processors"),
        x: table.x,
        cells: Vec::<Cell<Outcome>>::new(),
    };
    let alone = |what: &str| format!("2Q, prefetching alone, {what}");
    let mut prefetched = Prefetched {
        measured: Grid {
            title: alone("measured here with 8 threads"),
            x: table.x,
            cells: Vec::new(),
        },
        simulated: Grid { title: alone("simulated 16 processors"), x: table.x, cells: Vec::new() },
    };
    for recorded in &workloads {
        let (workload, frames) = (&recorded.measured, recorded.size.frames);
        let work = Real::work(workload, frames, per_ns)?;
        // Sizes and prefetching alone take turns, so that a temporary slowdown of the machine
        // affects all of them.
        for repetition in 1..=task.repetitions() {
            for contender in table.contenders() {
                let (name, x) = (workload.kind.name(), contender.x);
                progress.step(&format!("{name}, {} = {x}, repetition {repetition}", table.x));
                let real = Real::open(workload, contender.kind, frames, work)?;
                let to = if x == NO_QUEUE { &mut prefetched.measured } else { &mut measured };
                let mut watch = Watch::begin(per_ns);
                to.record(name, x, real.run(THREADS, length(task), &mut watch)?);
            }
        }
        for contender in table.contenders() {
            let to =
                if contender.x == NO_QUEUE { &mut prefetched.simulated } else { &mut simulated };
            for outcome in simulated_with_seeds(task, &contender.system, recorded.simulated()) {
                to.record(workload.kind.name(), contender.x, outcome);
            }
        }
    }
    let all = measured.results_mut().chain(prefetched.measured.results_mut());
    place::mark_apart(all);
    let by_size = BySize {
        measured: &measured,
        simulated: &simulated,
        measured_alone: &prefetched.measured,
        simulated_alone: &prefetched.simulated,
        alone: NO_QUEUE,
    };
    let bars = match table.falls {
        Some((from, to, published)) => by_size.table2(from, to, published),
        None => by_size.table3(),
    };
    let mut agreement = agreement(table, &simulated);
    agreement.extend(beats_prefetching(table, &measured, &simulated, &prefetched));
    let mut configuration = configuration(task, &workloads);
    configuration.insert(place::SETTING.0.into(), place::SETTING.1.into());
    Ok(Findings {
        configuration,
        seeds: SEEDS.into(),
        samples: vec![
            simulated.samples(&SIMULATED_CONTENTION),
            simulated.samples(&SIMULATED_RATE),
            measured.samples(&CONTENTION),
            measured.samples(&SLEEPING),
            measured.samples(&RATE),
        ]
        .into_iter()
        .chain(measured.place_samples())
        .chain(measured.counts(&CONTENTION))
        .chain(measured.counts(&SLEEPING))
        .chain(simulated.counts(&SIMULATED_CONTENTION))
        .chain(prefetched.samples())
        .collect(),
        tables: vec![
            simulated.table(&SIMULATED_CONTENTION),
            simulated.table(&SIMULATED_RATE),
            measured.table(&CONTENTION),
            measured.table(&SLEEPING),
            measured.table(&RATE),
        ],
        found: found(table, &simulated)
            .into_iter()
            .chain(place::found("runs", measured.places().chain(prefetched.measured.places())))
            .collect(),
        agreement,
        bars: judged(task, bars),
    })
}

/// Returns the bars, or none in a run limited by `--only`, which judges nothing.
fn judged(task: &Task, bars: Vec<Bar>) -> Vec<Bar> {
    if matches!(task.part, Part::Only(_)) { Vec::new() } else { bars }
}

/// Results of prefetching alone, by workload.
struct Prefetched {
    measured: Grid<RunResult>,
    simulated: Grid<Outcome>,
}

impl Prefetched {
    /// Returns all results, which are stored and not drawn.
    fn samples(&self) -> Vec<Samples> {
        let Self { measured, simulated } = self;
        if measured.cells.is_empty() {
            return Vec::new();
        }
        let mut all = vec![
            simulated.samples(&SIMULATED_CONTENTION),
            simulated.samples(&SIMULATED_RATE),
            measured.samples(&CONTENTION),
            measured.samples(&SLEEPING),
            measured.samples(&RATE),
        ];
        all.extend(measured.place_samples());
        all.extend(
            [measured.counts(&CONTENTION), measured.counts(&SLEEPING)].into_iter().flatten(),
        );
        all.into_iter().map(|samples| Samples { drawn: false, ..samples }).collect()
    }
}

/// Reports by workload whether a short queue beats prefetching alone, as the source claims.
fn beats_prefetching(
    table: &Sizes,
    measured: &Grid<RunResult>,
    simulated: &Grid<Outcome>,
    prefetched: &Prefetched,
) -> Option<String> {
    let size = table.beats_prefetching?;
    let one = |kind: Kind| {
        let (name, x) = (kind.name(), f64::from(size));
        let ran = |of: fn(&RunResult) -> f64| prefetched.measured.at(name, NO_QUEUE, of);
        let played = |of: fn(&Outcome) -> f64| prefetched.simulated.at(name, NO_QUEUE, of);
        Some(format!(
            "{name}: contention {} beside {} simulated, {} beside {} measured; throughput {:.3} beside \
             {:.3} simulated, {:.2} beside {:.2} measured",
            simulated.cell(name, x, &SIMULATED_CONTENTION),
            prefetched.simulated.cell(name, NO_QUEUE, &SIMULATED_CONTENTION),
            measured.cell(name, x, &CONTENTION),
            prefetched.measured.cell(name, NO_QUEUE, &CONTENTION),
            simulated.at(name, x, Outcome::rate)?,
            played(Outcome::rate)?,
            measured.at(name, x, RATE.of)?,
            ran(RATE.of)?,
        ))
    };
    let all: Vec<String> = Kind::ALL.into_iter().filter_map(one).collect();
    let claim = format!(
        "The source: {} = {size} beats prefetching alone. Here, beside prefetching",
        table.x
    );
    (!all.is_empty()).then(|| format!("{claim}: {}.", all.join("; ")))
}

/// Reports by workload where contention is lowest.
fn found(table: &Sizes, simulated: &Grid<Outcome>) -> Vec<String> {
    let best = |kind: &Kind| {
        let at = |sized: &Sized| {
            let x = (table.of)(sized);
            Some((x, simulated.at(kind.name(), x.into(), Outcome::contention)?))
        };
        let (x, _) = table.sizes.iter().filter_map(at).min_by(|a, b| a.1.total_cmp(&b.1))?;
        let shown = simulated.cell(kind.name(), x.into(), &SIMULATED_CONTENTION);
        Some(format!("{} at {} = {x} ({shown})", kind.name(), table.x))
    };
    let best: Vec<String> = Kind::ALL.iter().filter_map(best).collect();
    if best.is_empty() {
        best
    } else {
        vec![format!("Simulated contention is lowest: {}.", best.join(", "))]
    }
}

fn agreement(table: &Sizes, simulated: &Grid<Outcome>) -> Vec<String> {
    let at = |kind: Kind, x: u32| simulated.at(kind.name(), x.into(), Outcome::contention);
    let Some((from, to, published)) = table.falls else {
        let rises: Vec<String> = Kind::ALL
            .into_iter()
            .filter_map(|kind| {
                let rate = |x: u32| simulated.at(kind.name(), x.into(), Outcome::rate);
                let (name, few, many) = (kind.name(), at(kind, 32)?, at(kind, 64)?);
                Some(format!(
                    "{name} {few:.0} and {many:.0}, with {:.3} and {:.3} accesses a microsecond",
                    rate(32)?,
                    rate(64)?
                ))
            })
            .collect();
        return if rises.is_empty() {
            rises
        } else {
            vec![format!(
                "The source's contention falls until T = 32 and rises sharply at T = S = 64, where the wait follows the only try; its throughput then falls. Simulated at 32 and 64: {}.",
                rises.join("; ")
            )]
        };
    };
    let falls: Vec<String> = Kind::ALL
        .into_iter()
        .zip(published)
        .filter_map(|(kind, published)| {
            // A run without a wait counts as one wait.
            let falls = at(kind, from)? / at(kind, to)?.max(1.0);
            Some(format!("{} by a factor of {falls:.0} (published {published:.0})", kind.name()))
        })
        .collect();
    if falls.is_empty() {
        return falls;
    }
    vec![format!(
        "From {x} = {from} to {x} = {to} contention falls, simulated: {}.",
        falls.join(", "),
        x = table.x
    )]
}

/// Runs figure 2.
pub fn fig2(task: &Task) -> Res<Findings> {
    let (per_ns, workloads) = (calibrate_work(), recorded(task, &[Kind::Dbt1])?);
    let steps = Sized::BATCHES.len() * task.repetitions() as usize;
    let mut progress = Progress::new("bp-wrapper/fig2", steps);
    let mut grid = Grid { title: "DBT-1-like".into(), x: "batch", cells: Vec::<Cell<f64>>::new() };
    // Batches take turns, so that a temporary slowdown of the machine affects all of them.
    for repetition in 1..=task.repetitions() {
        for (workload, sized) in workloads
            .iter()
            .flat_map(|w| Sized::BATCHES.iter().map(move |sized| (&w.measured, sized)))
        {
            let x = f64::from(sized.queue);
            progress.step(&format!("batches of {x}, repetition {repetition}"));
            for threads in [1, THREADS] {
                let ns = bare::lock_ns(sized, workload, threads, length(task), per_ns)?;
                grid.record(&format!("measured here, threads: {threads}"), x, ns);
            }
        }
    }
    for (workload, sized) in workloads
        .iter()
        .flat_map(|w| Sized::BATCHES.iter().map(move |sized| (w.simulated(), sized)))
    {
        for outcome in simulated_with_seeds(task, &sized.system(), workload) {
            grid.record(SIMULATED_SERIES, f64::from(sized.queue), outcome.lock_ns());
        }
    }
    let falls =
        |system: &str| Some(grid.at(system, 1.0, LOCK.of)? / grid.at(system, 64.0, LOCK.of)?);
    let eight = format!("measured here, threads: {THREADS}");
    let (measured, simulated) = (falls(&eight), falls(SIMULATED_SERIES));
    let (found, agreement) = match (measured, simulated) {
        (Some(measured), Some(simulated)) => (
            vec![format!(
                "Per access, a batch of 64 takes less time than a batch of one by a factor of {measured:.1} measured with {THREADS} threads, and of {simulated:.1} simulated with {CORES} processors."
            )],
            vec![
                "The source shows a curve without numbers, on logarithmic axes, that falls monotonically from 1 to 64."
                    .into(),
            ],
        ),
        _ => (Vec::new(), Vec::new()),
    };
    let samples = grid.samples(&LOCK);
    let y = Axis::log(&samples.y.label, &samples.y.unit);
    Ok(Findings {
        configuration: configuration(task, &workloads),
        seeds: SEEDS.into(),
        samples: vec![crate::result::Samples { y, ..samples }],
        tables: vec![grid.table(&LOCK)],
        found,
        agreement,
        bars: judged(task, claims::falls_all_the_way(&grid, &eight, SIMULATED_SERIES)),
    })
}
