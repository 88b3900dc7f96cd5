//! Way (i): the real engine with a stall between the last fragment and the decision.
//!
//! One thread is the worker of all sessions and both partitions. While a transaction stalls, the
//! thread runs whatever else may run.

use super::driven::schemes;
use super::engine::{Call, MicroBenchmark, PARTITIONS, Reach};
use crate::bars::{Bar, Bound, Reading};
use crate::bp::grid::{Grid, Measure};
use crate::experiment::{Part, Task};
use crate::number::{median, spread};
use crate::place::Placed;
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use crate::table::{Cell, Column, Table};
use clearway_cluster::SchemeKind;
use clearway_coordinator::Stall;
use clearway_harness::Res;
use clearway_ir::Plan;
use clearway_testkit::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the experiment.
pub const NAME: &str = "partition/engine";
/// Name of this way in tables and charts.
pub const ENGINE: &str = "engine (i)";
/// Names of the bars, one for each judged stall.
pub const ORDERS: [&str; 2] = [
    "20 us: pairs of schemes in the source's order, of those that differ, %",
    "150 us: pairs of schemes in the source's order, of those that differ, %",
];

/// Stalls in microseconds.
const STALLS: [u64; 3] = [0, 20, 150];
/// The stalls of the bars: about the source's share of a transaction, and about its length.
const JUDGED: [u64; 2] = [20, 150];
/// Shares of transactions at both partitions, in percent, and those of a quick run.
const PERCENTS: [u64; 7] = [0, 2, 10, 16, 30, 50, 100];
const QUICK_PERCENTS: [u64; 2] = [0, 50];
const SESSIONS: usize = 40;
const ROWS: usize = 12;
/// Length of a run and of its start, which does not count; then those of a quick run.
const LENGTHS: [[Duration; 2]; 2] = [
    [Duration::from_millis(1000), Duration::from_millis(200)],
    [Duration::from_millis(10), Duration::from_millis(2)],
];

/// A measured case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The scheme of both partitions.
    pub scheme: SchemeKind,
    /// The stall before each decision.
    pub stall: Stall,
    /// Transactions at both partitions, in percent.
    pub percent: u64,
    /// Whether all transactions use the shared key of one of their partitions.
    pub conflicts: bool,
}

impl Placed for Measured {}

/// A run's result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Commits in a second.
    rate: f64,
    /// Transactions that failed and were repeated, in percent of the commits.
    failed: f64,
}

const RATE: Measure<Measured> = Measure {
    name: "throughput",
    unit: "transactions/s",
    digits: 0,
    axis: Axis::linear,
    events: None,
    of: |measured| measured.rate,
};

const FAILED: Measure<Measured> = Measure {
    name: "failed and repeated",
    unit: "%",
    digits: 1,
    axis: Axis::linear,
    events: None,
    of: |measured| measured.failed,
};

/// A pair of schemes that the source orders.
struct Pair {
    better: SchemeKind,
    worse: SchemeKind,
    conflicts: bool,
    percents: &'static [u64],
}

const PAIRS: [Pair; 5] = [
    pair(SchemeKind::Speculative, SchemeKind::Locking, false, &[16, 30, 50]),
    pair(SchemeKind::Locking, SchemeKind::Blocking, false, &[16, 30, 50, 100]),
    pair(SchemeKind::Locking, SchemeKind::Speculative, false, &[100]),
    pair(SchemeKind::Speculative, SchemeKind::Locking, true, &[16, 30, 50]),
    pair(SchemeKind::Locking, SchemeKind::Blocking, true, &[100]),
];

/// The share of the pairs that must differ, so that a bar on their order can be met.
const MUST_DIFFER: f64 = 0.75;

const fn pair(
    better: SchemeKind,
    worse: SchemeKind,
    conflicts: bool,
    percents: &'static [u64],
) -> Pair {
    Pair { better, worse, conflicts, percents }
}

impl Case {
    fn system(&self) -> String {
        let conflicts = if self.conflicts { ", all conflict" } else { "" };
        format!("{}{conflicts}, {ENGINE}", self.scheme)
    }

    fn name(&self) -> String {
        format!("{} {:?} {} %", self.system(), self.stall, self.percent)
    }

    /// Returns true if a bar needs it.
    fn is_judged(&self) -> bool {
        let needs = |pair: &Pair| {
            pair.conflicts == self.conflicts
                && [pair.better, pair.worse].contains(&self.scheme)
                && pair.percents.contains(&self.percent)
        };
        JUDGED.map(stall_of).contains(&self.stall) && PAIRS.iter().any(needs)
    }

    /// Opens an engine for the case.
    pub fn load(&self, seed: u64) -> Res<Load> {
        let keys = (SESSIONS + 1) * ROWS;
        let micro = MicroBenchmark::open(self.scheme, self.stall, SESSIONS as u32, keys)?;
        let [one, all] = [Reach::One, Reach::All].map(|reach| micro.update(ROWS, reach));
        let (one, all, rng) = (one?, all?, Rng::new(seed));
        Ok(Load { micro, one, all, case: *self, rng, ready: Vec::new() })
    }
}

/// A load and its engine.
pub struct Load {
    micro: MicroBenchmark,
    one: Arc<Plan>,
    all: Arc<Plan>,
    case: Case,
    rng: Rng,
    /// Sessions without a transaction, and the ones that they repeat.
    ready: Vec<(usize, Option<Call>)>,
}

impl Load {
    /// Runs it for this time after a start that does not count.
    pub fn run(mut self, [length, start]: [Duration; 2]) -> Res<Measured> {
        self.ready = (0..SESSIONS).map(|session| (session, None)).collect();
        let mut running: Vec<Option<Call>> = vec![None; SESSIONS];
        let (mut commits, mut failures) = (0_u64, 0_u64);
        let began = Instant::now();
        let mut counted = None;
        let mut ended = Vec::new();
        let mut measured = None;
        while running.iter().any(Option::is_some) || measured.is_none() {
            let now = began.elapsed();
            if now >= start && counted.is_none() {
                counted = Some((Instant::now(), commits, failures));
            }
            if let Some((since, before, failed)) = counted.filter(|_| measured.is_none())
                && now >= start + length
            {
                let done = (commits - before) as f64;
                let failed = (failures - failed) as f64;
                let rate = done / since.elapsed().as_secs_f64();
                measured = Some(Measured { rate, failed: 100.0 * failed / done.max(1.0) });
            }
            if measured.is_none() {
                for (session, repeated) in std::mem::take(&mut self.ready) {
                    let call = repeated.unwrap_or_else(|| self.draw(session));
                    let result = self.micro.start(session, &call)?;
                    running[session] = Some(call);
                    ended.extend(result.map(|result| (session, result.is_ok())));
                }
            }
            self.micro.turn(|session, result| {
                ended.push((session, result.is_ok()));
                Ok(())
            })?;
            for (session, committed) in ended.drain(..) {
                let call = running[session].take();
                *(if committed { &mut commits } else { &mut failures }) += 1;
                self.ready.push((session, call.filter(|_| !committed)));
            }
        }
        // Each commit has added 1 to its rows, which began with 1.
        let rows = (SESSIONS + 1) * ROWS * usize::from(PARTITIONS);
        self.micro.check_sum(rows as u64 + ROWS as u64 * commits)?;
        self.micro.close()?;
        measured.ok_or_else(|| "the run was not measured".into())
    }

    /// Draws a session's next transaction.
    fn draw(&mut self, session: usize) -> Call {
        let both = self.rng.permille(10 * self.case.percent);
        let first = self.rng.below(u64::from(PARTITIONS)) as usize;
        let (plan, parts) = match both {
            true => (&self.all, vec![(0, ROWS / 2), (1, ROWS / 2)]),
            false => (&self.one, vec![(first, ROWS)]),
        };
        let mut keys = Vec::with_capacity(ROWS);
        for (partition, rows) in parts {
            let all = self.micro.keys(partition);
            let mut own = all[session * ROWS..][..rows].iter();
            // As in the source, a transaction conflicts at one partition only.
            if self.case.conflicts && partition == first {
                own.next();
                keys.extend(all.last());
            }
            keys.extend(own);
        }
        Call::new(plan, keys)
    }
}

/// Returns the place of a stall in [`STALLS`].
fn place_of(stall: Stall) -> usize {
    STALLS.iter().position(|us| stall_of(*us) == stall).unwrap_or_default()
}

/// Returns the stall of this number of microseconds.
fn stall_of(us: u64) -> Stall {
    if us == 0 { Stall::None } else { Stall::Time(Duration::from_micros(us)) }
}

fn cases(task: &Task) -> Vec<Case> {
    let percents: &[u64] = if task.options.quick { &QUICK_PERCENTS } else { &PERCENTS };
    let mut cases = Vec::new();
    for stall_us in STALLS {
        for conflicts in [false, true] {
            for scheme in schemes() {
                let stall = stall_of(stall_us);
                let case = |percent: &u64| Case { scheme, stall, percent: *percent, conflicts };
                cases.extend(percents.iter().map(case));
            }
        }
    }
    cases.retain(|case| task.part.wants(&case.name(), case.is_judged()));
    cases
}

/// Measures all cases in turn.
pub fn run(task: &Task) -> Res<Findings> {
    let lengths = LENGTHS[usize::from(task.options.quick)];
    let cases = cases(task);
    let seeds = super::seeds(task);
    let mut progress = Progress::new(NAME, cases.len() * seeds.len());
    let mut grids = STALLS.map(|stall| {
        let title = format!("A stall of {stall} us, {ENGINE}");
        Grid { title, x: "% at both", cells: Vec::new() }
    });
    for seed in &seeds {
        for case in &cases {
            progress.step(&case.name());
            let measured = case
                .load(*seed)
                .and_then(|load| load.run(lengths))
                .map_err(|why| format!("{}: {why}", case.name()))?;
            let grid = &mut grids[place_of(case.stall)];
            grid.record(&case.system(), case.percent as f64, measured);
        }
    }
    let pairs = JUDGED.map(|us| (us, compared(&grids[place_of(stall_of(us))], us)));
    let mut tables: Vec<Table> = pairs.iter().map(|(us, pairs)| table(*us, pairs)).collect();
    let measured = || grids.iter().filter(|grid| !grid.cells.is_empty());
    tables.extend(measured().flat_map(|grid| [grid.table(&RATE), grid.table(&FAILED)]));
    let samples = measured().map(|grid| {
        let mut samples = grid.samples(&RATE);
        samples.x = Axis::linear("transactions at both partitions", "%");
        samples
    });
    let samples = samples.collect();
    Ok(Findings {
        configuration: configuration(task, lengths),
        seeds,
        samples,
        tables,
        found: length_of_a_transaction(&grids[0]).into_iter().collect(),
        agreement: Vec::new(),
        bars: pairs
            .iter()
            .zip(ORDERS)
            .filter_map(|((_, pairs), name)| bar(name, pairs, &task.part))
            .collect(),
    })
}

/// Reports how long a transaction takes if nothing stalls and none is at both partitions.
fn length_of_a_transaction(grid: &Grid<Measured>) -> Option<String> {
    let case =
        Case { scheme: SchemeKind::Blocking, stall: stall_of(0), percent: 0, conflicts: false };
    let rate = grid.at(&case.system(), 0.0, RATE.of)?;
    Some(format!(
        "Under blocking, without a stall and at one partition, a transaction takes {:.1} us; in the source, as recalled, 64 us.",
        1e6 / rate
    ))
}

/// A pair's rates.
struct Compared {
    pair: &'static Pair,
    percent: u64,
    /// All repetitions, of the better one in the source and of the worse one.
    rates: [Vec<f64>; 2],
}

impl Compared {
    /// Returns the median rate of the better one in the source over that of the other.
    fn ratio(&self) -> Option<f64> {
        let [better, worse] = self.rates.each_ref().map(|rates| median(rates));
        Some(better? / worse?)
    }

    /// Returns whether the schemes are in the source's order; `None` if they differ by no more than
    /// the spread of their repetitions.
    fn is_in_order(&self) -> Option<bool> {
        let [better, worse] = self.rates.each_ref().map(|rates| spread(rates));
        let ((least, most), (worse_least, worse_most)) = (better?, worse?);
        match () {
            () if least > worse_most => Some(true),
            () if most < worse_least => Some(false),
            () => None,
        }
    }
}

/// Returns the pairs that were measured.
fn compared(grid: &Grid<Measured>, stall_us: u64) -> Vec<Compared> {
    let mut all = Vec::new();
    for pair in &PAIRS {
        for percent in pair.percents {
            let rates = [pair.better, pair.worse].map(|scheme| {
                let case = Case {
                    scheme,
                    stall: stall_of(stall_us),
                    percent: *percent,
                    conflicts: pair.conflicts,
                };
                grid.repetitions(&case.system(), *percent as f64, RATE.of)
            });
            if rates.iter().all(|rates| !rates.is_empty()) {
                all.push(Compared { pair, percent: *percent, rates });
            }
        }
    }
    all
}

fn table(stall_us: u64, pairs: &[Compared]) -> Table {
    let columns = vec![
        Column::ours("at both", "%"),
        Column::ours("load", ""),
        Column::ours("ahead in the source", ""),
        Column::ours("its rate", RATE.unit),
        Column::ours("behind in the source", ""),
        Column::ours("its rate", RATE.unit),
        Column::ours("ratio", ""),
        Column::ours("here", ""),
    ];
    let row = |compared: &Compared| {
        let Compared { pair, percent, rates: [better, worse] } = compared;
        vec![
            Cell::number(*percent as f64, 0),
            Cell::text(if pair.conflicts { "all conflict" } else { "" }),
            Cell::text(pair.better.to_string()),
            Cell::measured(better, 0),
            Cell::text(pair.worse.to_string()),
            Cell::measured(worse, 0),
            Cell::number(compared.ratio(), 2),
            Cell::text(match compared.is_in_order() {
                Some(true) => "the same order",
                Some(false) => "reversed",
                None => "within the spread",
            }),
        ]
    };
    Table {
        title: format!("The order of the schemes, a stall of {stall_us} us, {ENGINE}"),
        columns,
        rows: pairs.iter().map(row).collect(),
    }
}

fn bar(name: &str, pairs: &[Compared], part: &Part) -> Option<Bar> {
    if pairs.is_empty() && matches!(part, Part::Only(_)) {
        return None;
    }
    let orders: Vec<bool> = pairs.iter().filter_map(Compared::is_in_order).collect();
    let same = orders.iter().filter(|same| **same).count() as f64;
    let differ = orders.len() as f64;
    let readings = vec![
        Reading::new("the same order", same, "pairs", 0),
        Reading::new("that differ", differ, "pairs", 0),
    ];
    // If few differ, the runs were disturbed or the schemes are equal: there is no order to judge.
    let shows_order = differ >= MUST_DIFFER * pairs.len() as f64;
    let value = if shows_order { 100.0 * same / differ } else { f64::NAN };
    Some(Bar::measured(name, value, "", Bound::AtLeast(100.0), readings))
}

fn configuration(task: &Task, [length, start]: [Duration; 2]) -> Configuration {
    let settings = [
        (
            "load",
            format!(
                "{PARTITIONS} partitions, {SESSIONS} clients with one transaction at a time, \
                 {ROWS} rows read and changed, half of them at each partition if at both; keys of \
                 3 bytes, values of 4; no wait for the log"
            ),
        ),
        ("threads", "1 for all clients and partitions".to_owned()),
        ("length of a run", format!("{} ms after {} ms", length.as_millis(), start.as_millis())),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;

    #[test]
    fn pairs_within_the_spread_are_not_judged() {
        let with = |better: &[f64], worse: &[f64]| Compared {
            pair: &PAIRS[0],
            percent: 16,
            rates: [better.to_vec(), worse.to_vec()],
        };
        let pairs = [
            with(&[5.0, 6.0], &[3.0, 4.0]),
            with(&[1.0, 2.0], &[3.0]),
            with(&[4.0], &[3.0]),
            with(&[1.0, 3.0], &[2.0]),
        ];
        let orders: Vec<_> = pairs.iter().map(Compared::is_in_order).collect();
        assert_eq!(orders, [Some(true), Some(false), Some(true), None]);
        let judged = |pairs: &[Compared]| bar(ORDERS[0], pairs, &Part::Whole).unwrap();
        assert!(judged(&pairs).explained().starts_with("66.67"), "{}", judged(&pairs).explained());
        let disturbed = judged(&pairs[2..]);
        assert_eq!(disturbed.verdict(false), Verdict::Short, "one of two pairs differs");
        let table = table(20, &pairs).to_string();
        assert!(table.contains("1.67") && table.contains("reversed"), "{table}");
    }

    #[test]
    fn every_scheme_keeps_the_sum() {
        for scheme in schemes() {
            for (stall_us, conflicts) in [(0, true), (20, false), (150, true)] {
                let case = Case { scheme, stall: stall_of(stall_us), percent: 30, conflicts };
                let result = case.load(1).and_then(|load| load.run(LENGTHS[1]));
                assert!(result.is_ok(), "{}: {:?}", case.name(), result.err());
            }
        }
    }
}
