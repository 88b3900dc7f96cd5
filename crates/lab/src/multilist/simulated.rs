//! Simulates the source's machine around the real code of ARC behind one lock and of ARC with
//! sublists.
//!
//! Three costs are fitted to three of the twelve published numbers: the work of a read (one CPU),
//! the cost that waiters add to the lock (one list, 32 CPUs), and the memory bandwidth that all
//! CPUs share (sublists, 32 CPUs). With one CPU both curves show the work of a read. The eight
//! points from 2 to 16 CPUs are therefore predicted. The other costs are estimates: [`sensitivity`]
//! shows their effect on the predictions.

use super::THREADS;
use crate::bars::{Bar, Reading};
use crate::bp::grid::{Cell, Grid, Measure};
use crate::bp::point;
use crate::number::{self, median};
use crate::result::{Marked, Samples};
use crate::simulator::costs::Costs;
use crate::simulator::{
    Blocks, Called, Machine, Outcome, System, TOLERANCE, Transactions, on_all_cores, simulate,
};
use crate::table::{self, Column, Table};
use clearway_buffer::PAGE_SIZE;
use clearway_replacement::{MultilistKind, PolicyKind, WrapperKind};
use clearway_testkit::Rng;
use std::thread;

/// Published MB/s by number of CPUs: CPUs, after, before. The source gives KB/s for one CPU.
pub const PUBLISHED: [(usize, f64, f64); 6] = [
    (1, 833_163.0 / 1024.0, 840_893.0 / 1024.0),
    (2, 1520.2, 1559.5),
    (4, 2985.3, 3022.1),
    (8, 5913.2, 5104.9),
    (16, 8938.9, 3854.3),
    (32, 9896.6, 3036.2),
];

/// Costs of the source's virtual machine. A hit takes the list's lock twice, with half a read in
/// between; together they take as long as 8 KiB at the rate of one CPU. Waiters spin while the
/// owner runs.
pub const SOURCE: Costs = Costs {
    work_ns: 4_450.0,
    note_ns: 0.0,
    policy_ns: 200.0,
    cold_ns: 150.0,
    prefetch_ns: 0.0,
    latch_ns: 70.0,
    transfer_ns: 150.0,
    memory_ns: 395.0,
    waiter_ns: 18.0,
    switch_ns: 3_000.0,
    slice_ns: f64::INFINITY,
    spin_ns: 1e6,
};

/// Seeds of the simulations.
pub const SEEDS: [u64; 3] = [1, 2, 3];
/// Requests for the list's lock per read in the source: one to add a reference and one to remove
/// it.
pub const LOCKS_A_READ: usize = 2;
/// Reads after which a thread yields its core.
const READS_A_TURN: u64 = 500;
const SIMULATED_ACCESSES: u64 = 300_000;
const QUICK_ACCESSES: u64 = 3_000;

/// Simulations with one number of CPUs, one per seed.
pub struct Simulated {
    cores: usize,
    /// ARC behind one lock.
    one_list: Vec<Outcome>,
    /// ARC with one sublist per CPU, and at least four.
    sublists: Vec<Outcome>,
}

/// One of the two curves.
#[derive(Clone, Copy)]
struct Curve {
    name: &'static str,
    of: fn(&Simulated) -> &[Outcome],
    published: fn(&(usize, f64, f64)) -> f64,
}

const CURVES: [Curve; 2] = [
    Curve { name: "one list", of: |played| &played.one_list, published: |(_, _, before)| *before },
    Curve { name: "sublists", of: |played| &played.sublists, published: |(_, after, _)| *after },
];

/// Returns true if a cost was fitted to the points with this number of CPUs.
fn is_fitted(cores: usize) -> bool {
    [1, 32].contains(&cores)
}

/// Simulates the source's machine with each number of CPUs.
pub fn simulate_all(quick: bool) -> Vec<Simulated> {
    simulate_with(SOURCE, if quick { QUICK_ACCESSES } else { SIMULATED_ACCESSES }, &SEEDS)
}

fn simulate_with(costs: Costs, accesses: u64, seeds: &[u64]) -> Vec<Simulated> {
    const PAGES: u64 = 20_000;
    const FEWEST: usize = 4;
    let one_list =
        Called::Wrapped(PolicyKind::Arc, |policy, frames| WrapperKind::Locked.wrap(policy, frames));
    let mut rng = Rng::new(1);
    // A read is two accesses to one page. A thread reads continuously and yields rarely, as at the
    // end of its time slice.
    let mut turn =
        || (0..READS_A_TURN).flat_map(|_| [rng.below(PAGES) as u32; LOCKS_A_READ]).collect();
    let reads: Transactions = (0..PAGES / READS_A_TURN).map(|_| turn()).collect();
    let played = |cores: usize| {
        let threads = THREADS[THREADS.len() - 1];
        let outcomes = |called| {
            let system = System { called, blocks: Blocks::Always, prefetches: false };
            let one = |at: usize| {
                let machine = Machine { cores, threads, costs, accesses, seed: seeds[at] };
                simulate(&system, &machine, &reads)
            };
            on_all_cores(seeds.len(), one)
        };
        let sublists = Called::Sublists(MultilistKind::Arc, cores.max(FEWEST) as u32);
        Simulated { cores, one_list: outcomes(one_list), sublists: outcomes(sublists) }
    };
    PUBLISHED.iter().map(|(cores, ..)| played(*cores)).collect()
}

/// Returns the simulated bandwidths beside the published ones.
fn beside_published(simulated: &[Simulated]) -> Grid<f64> {
    let cells = simulated.iter().zip(&PUBLISHED).flat_map(|(played, point)| {
        CURVES.into_iter().flat_map(move |curve| {
            let cell = |what: &str, figures| Cell {
                system: format!("{}, {what}", curve.name),
                x: played.cores as f64,
                figures,
            };
            let simulated = (curve.of)(played).iter().map(mb_s).collect();
            [cell("simulated", simulated), cell("published", vec![(curve.published)(point)])]
        })
    });
    Grid {
        title: "The source's machine, simulated and published".into(),
        x: "CPUs",
        cells: cells.collect(),
    }
}

/// Returns the chart of both, with the fitted points marked.
pub fn chart(simulated: &[Simulated], measure: &Measure<f64>) -> Samples {
    let fitted = simulated.iter().filter(|played| is_fitted(played.cores));
    let points = fitted.flat_map(|played| {
        CURVES.map(|curve| (format!("{}, simulated", curve.name), played.cores as f64))
    });
    let marked = Some(Marked { what: "fitted".into(), points: points.collect() });
    Samples { marked, ..beside_published(simulated).samples(measure) }
}

fn mb_s(outcome: &Outcome) -> f64 {
    outcome.rate() * 1e6 / LOCKS_A_READ as f64 * PAGE_SIZE as f64 / f64::from(1 << 20)
}

/// Returns the median over the seeds.
fn typical(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> Option<f64> {
    median(&outcomes.iter().map(of).collect::<Vec<_>>())
}

/// Returns the mean wait for a list's lock, in microseconds.
fn wait_us(outcome: &Outcome) -> f64 {
    outcome.waited_ns / outcome.waits as f64 / 1e3
}

/// Returns the share of CPU time spent waiting for lists' locks, in percent.
fn waiting(cores: usize, outcome: &Outcome) -> f64 {
    outcome.waited_ns * 100.0 / (outcome.elapsed_ns * cores as f64)
}

/// Renders the published points beside the simulated ones.
pub fn published(simulated: &[Simulated]) -> Table {
    let columns = vec![
        Column::ours("CPUs", ""),
        Column::ours("basis", ""),
        Column::ours("one list, simulated", "MB/s"),
        Column::published("one list", "MB/s"),
        Column::ours("sublists, simulated", "MB/s"),
        Column::published("sublists", "MB/s"),
        Column::ours("one list, simulated, per wait", "us"),
        Column::ours("waiting, one list, simulated", "%"),
        Column::ours("waiting, sublists, simulated", "%"),
    ];
    let row = |(cores, after, before): &(usize, f64, f64)| {
        let played = simulated.iter().find(|played| played.cores == *cores);
        let of = |curve: &Curve, read: &dyn Fn(&Outcome) -> f64| {
            let outcomes = played.map_or(&[][..], curve.of);
            table::Cell::measured(&outcomes.iter().map(read).collect::<Vec<_>>(), 1)
        };
        let [one_list, sublists] = &CURVES;
        let waiting = |outcome: &Outcome| waiting(*cores, outcome);
        let numbers = [
            of(one_list, &mb_s),
            table::Cell::number(*before, 1),
            of(sublists, &mb_s),
            table::Cell::number(*after, 1),
            of(one_list, &wait_us),
            of(one_list, &waiting),
            of(sublists, &waiting),
        ];
        let basis = if is_fitted(*cores) { "fitted" } else { "predicted" };
        let names = [table::Cell::number(*cores as f64, 0), table::Cell::text(basis)];
        names.into_iter().chain(numbers).collect()
    };
    let title =
        "The source's machine, simulated (medians of the seeds), beside what was published".into();
    Table { title, columns, rows: PUBLISHED.iter().map(row).collect() }
}

/// Renders the eight predictions with each cost halved and doubled, the others as given.
pub fn sensitivity(quick: bool) -> Table {
    let accesses = if quick { QUICK_ACCESSES / 10 } else { SIMULATED_ACCESSES / 10 };
    let mut columns = vec![
        Column::ours("prediction", "MB/s"),
        Column::published("", ""),
        Column::ours("as given", ""),
    ];
    let mut all = vec![simulate_with(SOURCE, accesses, &SEEDS[..1])];
    for (heading, costs) in SOURCE.varied() {
        columns.push(Column::ours(&heading, ""));
        all.push(simulate_with(costs, accesses, &SEEDS[..1]));
    }
    let mut rows = Vec::new();
    for curve in CURVES {
        for (at, point) in
            PUBLISHED.iter().enumerate().filter(|(_, (cores, ..))| !is_fitted(*cores))
        {
            let names = [
                table::Cell::text(format!("{}, {} CPUs", curve.name, point.0)),
                table::Cell::number((curve.published)(point), 0),
            ];
            let values = all
                .iter()
                .map(|played| table::Cell::number(typical((curve.of)(&played[at]), mb_s), 0));
            rows.push(names.into_iter().chain(values).collect());
        }
    }
    Table {
        title: format!(
            "Simulated predictions with one cost halved or doubled, the others as given; seed {}, {} accesses",
            SEEDS[0],
            number::shown(accesses as f64, 0)
        ),
        columns,
        rows,
    }
}

/// Returns the relative deviation of each prediction from the published number.
fn predictions(simulated: &[Simulated]) -> Vec<(Curve, usize, f64)> {
    let mut off = Vec::new();
    for curve in CURVES {
        for (played, point) in
            simulated.iter().zip(&PUBLISHED).filter(|(played, _)| !is_fitted(played.cores))
        {
            if let Some(value) = typical((curve.of)(played), mb_s) {
                off.push((curve, played.cores, value / (curve.published)(point) - 1.0));
            }
        }
    }
    off
}

/// Judges how many predictions hold.
pub fn bar(simulated: &[Simulated]) -> Option<Bar> {
    let off = predictions(simulated);
    let met = off.iter().filter(|(_, _, off)| off.abs() <= TOLERANCE).count();
    let met_of = |met| vec![Reading::new("met", met, "points", 0)];
    point::bar_of(met as f64, off.len() as f64, met_of)
}

/// Summarises the agreement, missed predictions first.
pub fn agreement(simulated: &[Simulated]) -> Vec<String> {
    if simulated.is_empty() {
        return Vec::new();
    }
    let off = predictions(simulated);
    let shown = |(curve, cores, off): &(Curve, usize, f64)| {
        format!("{}, {cores} CPUs {:+.0} %", curve.name, off * 100.0)
    };
    let (met, missed): (Vec<_>, Vec<_>) =
        off.iter().partition(|(_, _, off)| off.abs() <= TOLERANCE);
    let list = |points: Vec<&(Curve, usize, f64)>| {
        points.into_iter().map(shown).collect::<Vec<_>>().join("; ")
    };
    let mut said = Vec::new();
    if !missed.is_empty() {
        said.push(format!("Predictions that fail: {}.", list(missed)));
    }
    said.push(format!(
        "{} of {} predictions are within 10 %: {}. Both points with 1 CPU and both with 32 are fitted.",
        met.len(),
        off.len(),
        list(met)
    ));
    let (cores, source) = (thread::available_parallelism().map_or(1, usize::from), 32);
    if cores < source {
        said.push(format!(
            "This machine has {cores} cores, so its measurements cannot show what {source} CPUs do to a list's lock."
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(curve: Curve) -> Vec<f64> {
        simulate_all(true).iter().filter_map(|played| typical((curve.of)(played), mb_s)).collect()
    }

    /// Costs are fitted to the points with one and 32 CPUs.
    #[test]
    fn fitted_points_match_the_source() {
        for curve in CURVES {
            let rates = rates(curve);
            for (at, most) in [(0, 0.03), (5, 0.05)] {
                let published = (curve.published)(&PUBLISHED[at]);
                assert!(
                    (rates[at] / published - 1.0).abs() < most,
                    "{}: {rates:?}, published {published}",
                    curve.name
                );
            }
        }
    }

    /// As in the source, one list delivers less with more CPUs beyond a peak.
    #[test]
    fn one_list_has_a_throughput_peak() {
        let rates = rates(CURVES[0]);
        assert!(rates[3] > 4.0 * rates[0] && rates[5] < rates[3], "{rates:?}");
    }

    /// With sublists each CPU adds bandwidth until the shared memory is saturated; few CPUs lose
    /// nothing.
    #[test]
    fn sublists_scale_without_loss_on_few_cpus() {
        let (one_list, sublists) = (rates(CURVES[0]), rates(CURVES[1]));
        assert!((0..3).all(|at| sublists[at] > 0.98 * one_list[at]), "{one_list:?} {sublists:?}");
        assert!(
            sublists[3] > 7.0 * sublists[0] && sublists[5] > 2.5 * one_list[5],
            "{one_list:?} {sublists:?}"
        );
        let played = &simulate_all(true)[5];
        let waiting = CURVES.map(|curve| typical((curve.of)(played), |o| waiting(32, o)).unwrap());
        assert!(waiting[1] < waiting[0] / 5.0, "{waiting:?} % of the CPUs' time");
    }

    #[test]
    fn simulated_medians_have_a_deviation() {
        let rows = published(&simulate_all(true)).rows;
        for row in &rows {
            assert!([2, 4].iter().all(|at| row[*at].to_string().contains(" ±")), "{row:?}");
            assert!([3, 5].iter().all(|at| !row[*at].to_string().contains('±')), "{row:?}");
        }
        let empty = published(&[]).rows;
        assert_eq!(empty[0][2], table::Cell::Empty, "nothing was simulated");
    }

    #[test]
    fn sensitivity_varies_every_cost_of_eight_points() {
        let sensitivity = sensitivity(true);
        assert_eq!(sensitivity.rows.len(), 8);
        assert!(sensitivity.title.ends_with("; seed 1, 300 accesses"), "{}", sensitivity.title);
        assert_eq!(sensitivity.columns.len(), 3 + 2 * 9, "{:?}", sensitivity.columns);
        let bar = bar(&simulate_all(true)).unwrap();
        assert!(bar.explained().contains("of 8 predictions"), "{}", bar.explained());
        let said = agreement(&simulate_all(true)).join(" ");
        assert!(said.contains("of 8 predictions"), "{said}");
    }
}
