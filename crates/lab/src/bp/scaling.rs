//! The source's figures 6 and 7: systems on increasing numbers of processors. This machine's are
//! measured, the source's are simulated.

use super::grid::{Cell, Grid, Measure};
use super::real::{Real, RunResult};
use super::source::Source;
use super::systems::{How, POLICY, Shared};
use super::workload::{Kind, Recorded, Size, Workload};
use super::{judge, point, ratios, sensitivity};
use crate::experiment::{Part, Task};
use crate::place::{self, Watch};
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings, Samples};
use crate::room::Room;
use crate::simulator::costs::Costs;
use crate::simulator::{Machine, Outcome, on_all_cores, simulate};
use crate::spinlock::{Work, calibrate_work};
use clearway_harness::Res;
use std::thread;
use std::time::Duration;

/// The largest thread count is at least this, on a machine with few cores.
const MIN_MAX_THREADS: usize = 32;
/// Thread counts that the bars need.
pub const JUDGED_THREADS: [usize; 2] = [8, 16];
const QUICK_THREADS: [usize; 2] = [1, 8];
const QUICK_RUN: Duration = Duration::from_millis(5);
/// Minimum length of a run of TableScan: each of many threads must finish scans of up to 19,000
/// pages, for a response time.
const MIN_SCANS_RUN: Duration = Duration::from_secs(2);
/// Core counts of a larger machine like this one.
const MORE: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Simulated accesses on the source's machine. Many are needed, since a latch holder rarely loses
/// its core.
const SIMULATED_ACCESSES: u64 = 2_000_000;
/// Simulated accesses on larger machines like this one.
const MORE_ACCESSES: u64 = 400_000;
const QUICK_ACCESSES: u64 = 4_000;
/// Simulated accesses for one of the hundreds of simulations of the sensitivity table.
const SENSITIVITY_ACCESSES: u64 = 200_000;
/// Seeds of the simulations of the source's machine.
pub const SEEDS: [u64; 3] = [1, 2, 3];
/// Simulated threads per processor: a thread that waits for the lock leaves the processor to
/// another.
const THREADS_PER_CORE: usize = 2;

/// Waits for the lock.
pub const CONTENTION: Measure<RunResult> = Measure {
    name: "contention per million accesses",
    unit: "",
    digits: 1,
    axis: Axis::log,
    events: Some(("waits", |r| r.waits)),
    of: RunResult::contention,
};
/// Waits that slept; the source counts those that gave up the core.
pub const SLEEPING: Measure<RunResult> = Measure {
    name: "waits that slept, per million accesses",
    unit: "",
    digits: 1,
    axis: Axis::log,
    events: Some(("waits", |r| r.sleeps)),
    of: RunResult::sleeping,
};

/// Measures of the runs on this machine.
pub const MEASURED: [Measure<RunResult>; 5] = [
    Measure {
        name: "throughput",
        unit: "1/s",
        digits: 0,
        axis: Axis::linear,
        events: None,
        of: |r| r.transactions,
    },
    Measure {
        name: "mean response time",
        unit: "us",
        digits: 1,
        axis: Axis::log,
        events: None,
        of: |r| r.response_us,
    },
    CONTENTION,
    SLEEPING,
    Measure {
        name: "accesses",
        unit: "/us",
        digits: 2,
        axis: Axis::linear,
        events: None,
        of: |r| r.rate,
    },
];
/// Measures of the simulations.
pub const SIMULATED: [Measure<Outcome>; 3] = [
    Measure {
        name: "throughput",
        unit: "1/s",
        digits: 0,
        axis: Axis::log,
        events: None,
        of: |o| o.transactions as f64 * 1e9 / o.elapsed_ns,
    },
    Measure {
        name: "mean response time",
        unit: "us",
        digits: 1,
        axis: Axis::log,
        events: None,
        of: |o| o.response_ns / 1e3,
    },
    Measure {
        name: "contention per million accesses",
        unit: "",
        digits: 1,
        axis: Axis::log,
        events: Some(("waits", |o| o.waits as f64)),
        of: Outcome::contention,
    },
];

/// The results of one workload.
pub struct Scaled {
    /// The workload.
    pub kind: Kind,
    /// On this machine, by threads.
    pub measured: Grid<RunResult>,
    /// On the source's machine, by processors.
    pub simulated: Grid<Outcome>,
    /// 2Q behind a lock on the machine that the figure compares with.
    pub other: Grid<Outcome>,
    /// On a larger machine with cores like this one's.
    pub more: Grid<Outcome>,
}

/// Returns the thread counts for a machine with this many cores: powers of two, the number of
/// cores, and more threads than cores.
fn numbers_of_threads(cores: usize) -> Vec<usize> {
    let most = MIN_MAX_THREADS.max(2 * cores);
    let mut threads: Vec<usize> = std::iter::successors(Some(1), |threads| Some(2 * threads))
        .take_while(|t| *t < most)
        .collect();
    threads.extend([cores, most]);
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// Returns every system in turn, once per repetition.
fn turns<'a>(task: &Task, systems: &'a [Shared]) -> impl Iterator<Item = (u32, Shared)> + 'a {
    (1..=task.repetitions())
        .flat_map(|repetition| systems.iter().map(move |system| (repetition, *system)))
}

/// Definition of a figure.
pub struct Figure<'a> {
    /// The experiment's name.
    pub name: &'static str,
    /// The source's machine.
    pub source: &'a Source,
    /// The systems to compare.
    pub systems: &'a [Shared],
    /// Names of the bars.
    pub bars: &'static [&'static str],
}

/// Runs a figure.
pub fn run(figure: &Figure<'_>, task: &Task) -> Res<Findings> {
    let Figure { name, source, systems, bars } = *figure;
    let (quick, room) = (task.options.quick, Room::here()?);
    // Predictions need all workloads.
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|k| task.part.wants(k.name(), true)).collect();
    let per_ns = calibrate_work();
    let here = Costs::here(0.0, POLICY);
    let rounds = task.repetitions() as usize + 1;
    let mut progress = Progress::new(name, kinds.len() * systems.len() * rounds);
    let (mut all, mut described, mut workloads) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        let recorded = Recorded::new(kind, quick, room)?;
        described.extend(recorded.described());
        let workload = &recorded.measured;
        let mut scaled = Scaled {
            kind,
            measured: Grid {
                title: format!("{}, measured here", kind.name()),
                x: "threads",
                cells: Vec::new(),
            },
            simulated: Grid {
                title: format!("{}, simulated {}", kind.name(), source.machine),
                x: "processors",
                cells: Vec::new(),
            },
            other: Grid { title: "the other machine".into(), x: "processors", cells: Vec::new() },
            more: Grid {
                title: format!("{}, simulated cores like this machine's", kind.name()),
                x: "cores",
                cells: Vec::new(),
            },
        };
        let here = Costs { work_ns: workload.ns_per_access, ..here };
        described.push((format!("this machine, {}", kind.name()), here.described()));
        let work = Real::work(workload, recorded.size.frames, per_ns)?;
        // Systems take turns, so that a temporary slowdown of the machine affects all of them.
        for (repetition, system) in turns(task, systems) {
            progress.step(&format!("{}, {}, repetition {repetition}", kind.name(), system.name()));
            let size = recorded.size;
            measure(&mut scaled.measured, system, workload, size, (work, per_ns), task)?;
        }
        for system in systems {
            progress.step(&format!("{}, {}, simulated", kind.name(), system.name()));
            simulate_all(&mut scaled, source, *system, recorded.simulated(), here, task);
        }
        all.push(scaled);
        workloads.push(recorded);
    }
    place::mark_apart(all.iter_mut().flat_map(|scaled| scaled.measured.results_mut()));
    let mut samples = ratios::charts(source, &all);
    for scaled in &all {
        samples.extend(MEASURED[..4].iter().map(|measure| scaled.measured.samples(measure)));
        // The bars judge it; the first chart shows about the same.
        samples.push(Samples { drawn: false, ..scaled.measured.samples(&MEASURED[4]) });
        samples.extend(scaled.measured.place_samples());
        samples.extend(MEASURED.iter().filter_map(|measure| scaled.measured.counts(measure)));
        for grid in [&scaled.simulated, &scaled.more] {
            samples.extend(SIMULATED.iter().map(|measure| grid.samples(measure)));
            samples.extend(SIMULATED.iter().filter_map(|measure| grid.counts(measure)));
        }
    }
    let mut tables = vec![point::table(source.machine, (source.points)(), &all)];
    if task.part == Part::Whole {
        let accesses = if quick { QUICK_ACCESSES / 2 } else { SENSITIVITY_ACCESSES };
        let workloads: Vec<&Workload> = workloads.iter().map(Recorded::simulated).collect();
        tables.push(sensitivity::table(source, &workloads, accesses, THREADS_PER_CORE));
    }
    for scaled in &all {
        tables.extend(MEASURED.iter().map(|measure| scaled.measured.table(measure)));
        for grid in [&scaled.simulated, &scaled.more] {
            tables.extend(SIMULATED.iter().map(|measure| grid.table(measure)));
        }
    }
    Ok(Findings {
        configuration: configuration(source, described, task),
        seeds: SEEDS.into(),
        samples,
        tables,
        found: judge::found(&all)
            .into_iter()
            .chain(place::found("runs", all.iter().flat_map(|scaled| scaled.measured.places())))
            .collect(),
        agreement: point::agreement((source.points)(), &all),
        bars: Vec::new(),
    })
    .map(|findings| judge::with_bars(findings, bars, (source.points)(), &all, task))
}

/// Runs one repetition of a system with each number of threads.
fn measure(
    grid: &mut Grid<RunResult>,
    system: Shared,
    workload: &Workload,
    size: Size,
    (work, per_ns): (Work, f64),
    task: &Task,
) -> Res<()> {
    let real = Real::open(workload, system.kind(), size.frames, work)?;
    let mut watch = Watch::begin(per_ns);
    let quick = task.options.quick;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let all = if quick { QUICK_THREADS.into() } else { numbers_of_threads(cores) };
    let length = match (quick, workload.kind) {
        (true, _) => QUICK_RUN,
        (false, Kind::TableScan) => task.shared_time(all.len() as u32).max(MIN_SCANS_RUN),
        (false, _) => task.shared_time(all.len() as u32),
    };
    for threads in all.into_iter().filter(|t| task.part != Part::Bars || JUDGED_THREADS.contains(t))
    {
        grid.record(&system.name(), threads as f64, real.run(threads, length, &mut watch)?);
    }
    Ok(())
}

/// Simulates a system on the source's machine and, in a whole run, on larger machines like this
/// one. A run for the bars simulates fewer accesses.
fn simulate_all(
    scaled: &mut Scaled,
    source: &Source,
    system: Shared,
    workload: &Workload,
    here: Costs,
    task: &Task,
) {
    let accesses = |many| if task.options.quick { QUICK_ACCESSES } else { many };
    let (simulated, seeds) = if task.part == Part::Bars {
        (SENSITIVITY_ACCESSES, &SEEDS[..1])
    } else {
        (SIMULATED_ACCESSES, &SEEDS[..])
    };
    if task.part != Part::Bars || system.policy == POLICY {
        let own = (source.cores, source.costs);
        simulate_grid(&mut scaled.simulated, system, workload, own, accesses(simulated), seeds);
    }
    if task.part != Part::Bars {
        simulate_grid(
            &mut scaled.more,
            system,
            workload,
            (&MORE, here),
            accesses(MORE_ACCESSES),
            &[1],
        );
    }
    if let (Some((other, cores)), How::Locked) = (source.other, system.how) {
        let other = (&[cores][..], other.costs);
        simulate_grid(&mut scaled.other, system, workload, other, accesses(simulated), seeds);
    }
}

fn simulate_grid(
    grid: &mut Grid<Outcome>,
    system: Shared,
    workload: &Workload,
    (numbers, costs): (&[usize], Costs),
    accesses: u64,
    seeds: &[u64],
) {
    let machines: Vec<Machine> = numbers
        .iter()
        .flat_map(|cores| {
            let machine = move |seed: &u64| Machine {
                cores: *cores,
                threads: *cores * THREADS_PER_CORE,
                costs,
                accesses,
                seed: *seed,
            };
            seeds.iter().map(machine)
        })
        .collect();
    let transactions = &workload.transactions;
    let outcomes =
        on_all_cores(machines.len(), |at| simulate(&system.system(), &machines[at], transactions));
    for (cores, figures) in numbers.iter().zip(outcomes.chunks(seeds.len())) {
        let (x, figures) = (*cores as f64, figures.to_vec());
        grid.cells.push(Cell { system: system.name(), x, figures });
    }
}

fn configuration(source: &Source, workloads: Vec<(String, String)>, task: &Task) -> Configuration {
    let settings = [
        ("simulated machine", format!("{}: {}", source.machine, source.costs.described())),
        ("threads of a simulated processor", THREADS_PER_CORE.to_string()),
        ("pool", "holds all pages, warmed up".into()),
        (
            "queues",
            format!("S = {}, T = {}", clearway_replacement::QUEUE, clearway_replacement::THRESHOLD),
        ),
        (place::SETTING.0, place::SETTING.1.into()),
        ("repetitions", task.repetitions().to_string()),
        ("seconds", task.options.seconds.to_string()),
    ];
    let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value));
    settings.chain(workloads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_cover_the_cores_and_more() {
        assert_eq!(numbers_of_threads(1), [1, 2, 4, 8, 16, 32]);
        assert_eq!(numbers_of_threads(2), [1, 2, 4, 8, 16, 32]);
        assert_eq!(numbers_of_threads(24), [1, 2, 4, 8, 16, 24, 32, 48]);
        for cores in 1..300 {
            let threads = numbers_of_threads(cores);
            assert!(
                threads.contains(&cores) && threads.last().is_some_and(|most| *most >= 2 * cores),
                "{threads:?}"
            );
            assert!(JUDGED_THREADS.iter().all(|judged| threads.contains(judged)), "{threads:?}");
        }
    }
}
