//! Real processes on this machine: one-sided verbs on shared memory, messages through shared
//! memory, and TCP.

use super::measures::Shown;
use super::process::{self, Counts};
use super::{judge, protocol_name, seeds};
use crate::bars::{Bar, Bound, Reading};
use crate::bp::grid::{Cell, Grid, Measure};
use crate::experiment::Task;
use crate::place::Placed;
use crate::progress::Progress;
use crate::result::{Axis, Findings, Samples};
use crate::table::{self, Column, Table};
use clearway_harness::Res;
use clearway_remote::Protocol;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "remote-locks/real";
const NODES: usize = 4;
const TRANSACTIONS: usize = 4;
const ROWS: u32 = 100_000;
const QUICK_ROWS: u32 = 2_000;
const THETAS: [f64; 4] = [0.0, 0.6, 0.85, 0.95];
const QUICK_THETAS: [f64; 1] = [0.85];
const LATENCIES_NS: [u64; 2] = [0, 2_000];

/// A way to reach rows.
#[derive(Clone, Copy)]
struct System {
    name: &'static str,
    transport: &'static str,
    locks: &'static str,
    protocol: Protocol,
}

const fn one_sided(name: &'static str, locks: &'static str) -> System {
    System { name, transport: "one-sided", locks, protocol: Protocol::NoWait }
}

const fn wait_die(name: &'static str, transport: &'static str, locks: &'static str) -> System {
    System { name, transport, locks, protocol: Protocol::WaitDie }
}

const ONE_SIDED: [System; 4] = [
    one_sided("M", "mutual"),
    one_sided("M/S", "shared"),
    one_sided("one round", "one-round"),
    one_sided("adaptive", "adaptive"),
];
const TWO_SIDED: System = System { transport: "two-sided", ..one_sided("two-sided", "shared") };
const TCP: System = System { transport: "tcp", ..one_sided("TCP", "shared") };

/// The systems of a protocol that are compared.
struct Compared {
    protocol: Protocol,
    /// The source's two kinds of lock, then ours.
    one_sided: &'static [System],
    two_sided: System,
    tcp: System,
}

/// The number of one-sided systems that are the source's.
const PUBLISHED: usize = 2;

const NO_WAIT: Compared =
    Compared { protocol: Protocol::NoWait, one_sided: &ONE_SIDED, two_sided: TWO_SIDED, tcp: TCP };
const WAIT_DIE: Compared = Compared {
    protocol: Protocol::WaitDie,
    one_sided: &[
        wait_die("WAIT_DIE: M", "one-sided", "mutual"),
        wait_die("WAIT_DIE: M/S", "one-sided", "shared"),
        wait_die("WAIT_DIE: M in line", "one-sided", "line"),
    ],
    two_sided: wait_die("WAIT_DIE: two-sided", "two-sided", "shared"),
    tcp: wait_die("WAIT_DIE: TCP", "tcp", "shared"),
};

impl Compared {
    fn systems(&self) -> impl Iterator<Item = System> + '_ {
        self.one_sided.iter().copied().chain([self.two_sided, self.tcp])
    }
}

impl System {
    /// Returns its name with the injected latency. TCP has only the kernel's own.
    fn at(self, latency_ns: u64) -> String {
        if self.transport == "tcp" {
            self.name.into()
        } else {
            format!("{}, {} us", self.name, latency_ns / 1000)
        }
    }

    fn latencies(self) -> &'static [u64] {
        let one = self.transport == "tcp" || self.protocol == Protocol::WaitDie;
        if one { &LATENCIES_NS[..1] } else { &LATENCIES_NS }
    }
}

/// The causes of aborts: their names in a process's counts, and in tables.
const CAUSES: [(&str, &str); 3] = [
    ("conflicts", "conflict"),
    ("older", "older holder"),
    ("too_many_readers", "full array of readers"),
];

impl Placed for Run {}

/// The result of a run of all processes.
#[derive(Default)]
struct Run {
    rate: f64,
    aborts: u64,
    /// Aborts by cause, in the order of [`CAUSES`].
    caused: [u64; 3],
    commits: u64,
    latency_ns: f64,
}

impl Shown for Run {
    fn rate(&self) -> f64 {
        self.rate
    }

    fn abort_rate(&self) -> f64 {
        self.aborts as f64 / (self.aborts + self.commits).max(1) as f64
    }

    fn latency_ns(&self) -> f64 {
        self.latency_ns
    }
}

fn measure(
    binary: &Path,
    system: System,
    latency_ns: u64,
    theta: f64,
    seed: u64,
    task: &Task,
) -> Res<Run> {
    let rows = if task.options.quick { QUICK_ROWS } else { ROWS };
    let args = [
        ("--transport", system.transport.to_owned()),
        ("--locks", system.locks.to_owned()),
        (
            "--protocol",
            if system.protocol == Protocol::NoWait { "no-wait" } else { "wait-die" }.to_owned(),
        ),
        ("--theta", theta.to_string()),
        ("--rows", rows.to_string()),
        ("--transactions", TRANSACTIONS.to_string()),
        ("--latency-ns", latency_ns.to_string()),
        ("--seed", seed.to_string()),
    ];
    let args: Vec<String> =
        args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    let counts = process::run(binary, NODES, &args, time(task))
        .map_err(|why| format!("{}, theta {theta}: {why}", system.at(latency_ns)))?;
    let sum = |name: &str| {
        counts.iter().map(|counts: &Counts| counts.get(name).copied().unwrap_or(0)).sum::<u64>()
    };
    let (commits, aborts) = (sum("commits"), sum("aborts"));
    let caused = CAUSES.map(|(count, _)| sum(count));
    if caused.iter().sum::<u64>() != aborts {
        return Err(format!("{aborts} aborts, by cause {caused:?}"));
    }
    if system.protocol == Protocol::NoWait && caused[0] != aborts {
        return Err(format!("NO_WAIT aborted for another cause than a conflict: {caused:?}"));
    }
    let seconds = sum("took_ns") as f64 / counts.len() as f64 / 1e9;
    let latency_ns = sum("latency_ns") as f64 / commits.max(1) as f64;
    Ok(Run { rate: commits as f64 / seconds, aborts, caused, commits, latency_ns })
}

/// Runs all systems at every theta, in turn.
pub fn run(task: &Task) -> Res<Findings> {
    let binary = process::build()?;
    let thetas: &[f64] = if task.options.quick { &QUICK_THETAS } else { &THETAS };
    let systems = NO_WAIT.systems().chain(WAIT_DIE.systems());
    let cases = systems
        .flat_map(|system| system.latencies().iter().map(move |latency_ns| (system, *latency_ns)));
    let cases: Vec<_> =
        cases.flat_map(|case| thetas.iter().map(move |theta| (case, *theta))).collect();
    let wanted = |((system, latency_ns), theta): &((System, u64), f64)| {
        let judged = *latency_ns == LATENCIES_NS[0];
        task.part.wants(&format!("{} {theta}", system.at(*latency_ns)), judged)
    };
    let cases: Vec<_> = cases.into_iter().filter(wanted).collect();
    let seeds = seeds(task);
    let mut progress = Progress::new(NAME, cases.len() * seeds.len());
    let title =
        "50 % writes, 4 processes on this machine, NO_WAIT unless stated otherwise".to_owned();
    let cell = |((system, latency_ns), theta): &((System, u64), f64)| Cell {
        system: system.at(*latency_ns),
        x: *theta,
        figures: Vec::new(),
    };
    let mut grid = Grid { title, x: "theta", cells: cases.iter().map(cell).collect() };
    // All systems in turn, so that a slow minute of the machine affects all of them.
    for seed in &seeds {
        for (((system, latency_ns), theta), cell) in cases.iter().zip(&mut grid.cells) {
            progress.step(&format!("{}, theta {theta}", system.at(*latency_ns)));
            cell.figures.push(measure(&binary, *system, *latency_ns, *theta, *seed, task)?);
        }
    }
    Ok(Findings {
        configuration: configuration(task),
        seeds,
        samples: [Run::RATE, Run::ABORTS, Run::LATENCY]
            .iter()
            .map(|measure| drawn(&grid, measure))
            .collect(),
        tables: vec![
            grid.table(&Run::RATE),
            grid.table(&Run::ABORTS),
            causes(&grid),
            ratios(&grid, &NO_WAIT, thetas),
            ratios(&grid, &WAIT_DIE, thetas),
        ],
        found: [&NO_WAIT, &WAIT_DIE].into_iter().flat_map(|of| aborts(&grid, of, thetas)).collect(),
        agreement: Vec::new(),
        bars: bars(&grid, thetas),
    })
}

fn time(task: &Task) -> Duration {
    if task.options.quick {
        Duration::from_millis(100)
    } else {
        Duration::from_secs(task.options.seconds.into())
    }
}

fn configuration(task: &Task) -> crate::result::Configuration {
    let rows = if task.options.quick { QUICK_ROWS } else { ROWS };
    let settings = [
        ("nodes", format!("{NODES} processes, each with {TRANSACTIONS} concurrent transactions")),
        ("operations", "10 per transaction, half of them updates".to_owned()),
        ("keys of a node", rows.to_string()),
        ("milliseconds", time(task).as_millis().to_string()),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn drawn(grid: &Grid<Run>, measure: &Measure<Run>) -> Samples {
    Samples { x: Axis::linear("theta", ""), ..grid.samples(measure) }
}

fn rate(grid: &Grid<Run>, system: System, theta: f64) -> Option<f64> {
    grid.at(&system.at(LATENCIES_NS[0]), theta, Run::RATE.of)
}

/// Returns the rates of the best one-sided mode, of two-sided and of TCP, without injected latency.
fn compared(grid: &Grid<Run>, of: &Compared, theta: f64) -> Option<[(String, f64); 3]> {
    let named = |system: System| Some((system.name.to_owned(), rate(grid, system, theta)?));
    let best = of.one_sided.iter().copied().filter_map(named).max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some([best, named(of.two_sided)?, named(of.tcp)?])
}

/// Returns the rates of the better one of the source's one-sided modes, of two-sided and of TCP,
/// without injected latency.
fn published(grid: &Grid<Run>, of: &Compared, theta: f64) -> Option<[(String, f64); 3]> {
    compared(grid, &Compared { one_sided: &of.one_sided[..PUBLISHED], ..*of }, theta)
}

/// Reports by theta how many transactions each system aborts, which the source has fewer of
/// one-sided.
fn aborts(grid: &Grid<Run>, of: &Compared, thetas: &[f64]) -> Vec<String> {
    let at = |theta: &f64| {
        let one = |system: System| {
            let share = grid.at(&system.at(LATENCIES_NS[0]), *theta, Run::abort_rate)?;
            Some(format!("{} {:.1} %", system.name, share * 100.0))
        };
        let all: Vec<String> = of.systems().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("Aborts at theta {theta}: {}.", all.join(", ")))
    };
    thetas.iter().filter_map(at).collect()
}

/// Tabulates the aborts by cause, as shares of all commits and aborts.
fn causes(grid: &Grid<Run>) -> Table {
    let mut columns = vec![Column::ours("system", ""), Column::ours("theta", "")];
    columns.extend(CAUSES.map(|(_, name)| Column::ours(name, "%")));
    let row = |cell: &Cell<Run>| {
        let share = |cause: usize| {
            let of_run = |run: &Run| {
                run.caused[cause] as f64 * 100.0 / (run.aborts + run.commits).max(1) as f64
            };
            table::Cell::measured(&cell.figures.iter().map(of_run).collect::<Vec<_>>(), 1)
        };
        let mut row = vec![table::Cell::text(&cell.system), table::Cell::number(cell.x, 2)];
        row.extend((0..CAUSES.len()).map(share));
        row
    };
    let rows = grid.cells.iter().filter(|cell| !cell.figures.is_empty()).map(row).collect();
    Table { title: "Aborts by cause".into(), columns, rows }
}

fn ratios(grid: &Grid<Run>, of: &Compared, thetas: &[f64]) -> Table {
    let names = [
        "best one-sided",
        "over two-sided",
        "over TCP",
        "two-sided over TCP",
        "better of M and M/S over two-sided",
        "better of M and M/S over TCP",
    ];
    let mut columns = vec![Column::ours("theta", "")];
    columns.extend(names.map(|name| Column::ours(name, "")));
    let row = |theta: &f64| {
        let [best, two_sided, tcp] = compared(grid, of, *theta)?;
        let published = published(grid, of, *theta).map(|rates| rates[0].1);
        let of_published = [two_sided.1, tcp.1].map(|peer| published.map(|rate| rate / peer));
        let ratios = [best.1 / two_sided.1, best.1 / tcp.1, two_sided.1 / tcp.1].map(Some);
        let ratios = ratios.into_iter().chain(of_published);
        let row = [table::Cell::number(*theta, 2), table::Cell::text(&best.0)];
        Some(row.into_iter().chain(ratios.map(|ratio| table::Cell::number(ratio, 2))).collect())
    };
    let title = format!("{}, without injected latency", protocol_name(of.protocol));
    Table { title, columns, rows: thetas.iter().filter_map(row).collect() }
}

fn bars(grid: &Grid<Run>, thetas: &[f64]) -> Vec<Bar> {
    let rates = |of: &Compared| -> Vec<(f64, [(String, f64); 3])> {
        thetas.iter().filter_map(|theta| Some((*theta, published(grid, of, *theta)?))).collect()
    };
    let (all, wait_die) = (rates(&NO_WAIT), rates(&WAIT_DIE));
    let bar = |name, least, theta: f64, (ours, a): &(String, f64), (peer, b): &(String, f64)| {
        let ours = Reading::new(&format!("{ours} at theta {theta}"), *a, Run::RATE.unit, 1);
        Bar::ratio(name, Bound::AtLeast(least), ours, Reading::new(peer, *b, Run::RATE.unit, 1))
    };
    let order = [
        (judge::REAL_ONE_SIDED, &all, 0, 1),
        (judge::REAL_TWO_SIDED, &all, 1, 2),
        (judge::REAL_WAIT_DIE, &wait_die, 0, 1),
    ];
    let order = order.into_iter().filter_map(|(name, of, a, b)| {
        let ratio = |rates: &[(String, f64); 3]| rates[a].1 / rates[b].1;
        let worst = of.iter().min_by(|x, y| ratio(&x.1).total_cmp(&ratio(&y.1)));
        worst.map(|(theta, rates)| bar(name, 1.0, *theta, &rates[a], &rates[b]))
    });
    let at = all.iter().find(|(theta, _)| *theta == judge::THETA);
    let over_tcp = at.map(|(theta, rates)| {
        bar(judge::REAL_OVER_TCP, judge::REAL_OVER_TCP_AT_LEAST, *theta, &rates[0], &rates[2])
    });
    order.chain(over_tcp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;

    #[test]
    fn real_runs_are_judged_where_they_do_worst() {
        let grid = |two_sided| Grid {
            title: String::new(),
            x: "theta",
            cells: vec![
                cell(ONE_SIDED[0], 0.0, 90.0),
                cell(ONE_SIDED[1], 0.0, 100.0),
                // Ours is not judged.
                cell(ONE_SIDED[2], 0.0, 1_000.0),
                cell(TWO_SIDED, 0.0, two_sided),
                cell(TCP, 0.0, 10.0),
                cell(ONE_SIDED[0], judge::THETA, 50.0),
                cell(TWO_SIDED, judge::THETA, 20.0),
                cell(TCP, judge::THETA, 11.0),
            ],
        };
        let verdicts = |two_sided| {
            let bars = bars(&grid(two_sided), &[0.0, judge::THETA]);
            bars.iter().map(|bar| bar.verdict(false)).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(99.0), [Verdict::Ok, Verdict::Ok, Verdict::Short]);
        assert_eq!(verdicts(101.0), [Verdict::Short, Verdict::Ok, Verdict::Short]);
        assert_eq!(verdicts(9.0), [Verdict::Ok, Verdict::Short, Verdict::Short]);
    }

    fn cell(system: System, x: f64, rate: f64) -> Cell<Run> {
        let run = Run { rate: rate * 1e3, commits: 1, latency_ns: 1e3, ..Run::default() };
        Cell { system: system.at(0), x, figures: vec![run] }
    }

    #[test]
    fn the_source_s_locks_are_judged_with_waits_too() {
        let systems: Vec<System> = WAIT_DIE.systems().collect();
        let [m, m_s, line, two_sided, tcp] = systems[..] else { panic!("five systems") };
        let cells = vec![
            cell(m, 0.6, 20.0),
            cell(m_s, 0.6, 30.0),
            cell(line, 0.6, 90.0),
            cell(two_sided, 0.6, 60.0),
            cell(tcp, 0.6, 10.0),
        ];
        let grid = Grid { title: String::new(), x: "theta", cells };
        let bars = bars(&grid, &[0.6]);
        assert_eq!(bars.len(), 1, "NO_WAIT was not run: {bars:?}");
        assert!(bars[0].explained().starts_with("0.50 x"), "{bars:?}");
        let row = &ratios(&grid, &WAIT_DIE, &[0.6]).rows[0];
        let shown: Vec<String> = row.iter().map(ToString::to_string).collect();
        assert_eq!(shown[2..], ["1.50", "9.00", "6.00", "0.50", "3.00"]);
    }

    #[test]
    fn aborts_are_reported_by_system() {
        let mut of_m = cell(ONE_SIDED[0], 0.6, 10.0);
        of_m.figures[0].aborts = 1;
        let cells = vec![of_m, cell(TWO_SIDED, 0.6, 10.0)];
        let grid = Grid { title: String::new(), x: "theta", cells };
        let said = aborts(&grid, &NO_WAIT, &[0.6, 0.95]);
        assert_eq!(said, ["Aborts at theta 0.6: M 50.0 %, two-sided 0.0 %."]);
    }
}
