//! Sensitivity of the predictions: each cost of a simulated machine, halved and doubled.
//!
//! The costs of the source's machines are estimates. A prediction that moves with a cost says as
//! much about the estimate as about the system.

use super::point::{Basis, On, Point};
use super::source::Source;
use super::systems::{How, POLICY, Shared};
use super::workload::{Kind, Workload};
use crate::number;
use crate::simulator::costs::Costs;
use crate::simulator::{Machine, Outcome, on_all_cores, simulate};
use crate::table::{Cell, Column, Table};
use std::cell::RefCell;
use std::collections::HashMap;

/// Seed of these simulations.
const SEED: u64 = 1;

/// Own machine or not, workload, system, processors.
type Key = (bool, &'static str, String, usize);

/// The simulations with one set of costs, run on demand.
struct Simulated<'a> {
    source: &'a Source,
    costs: Costs,
    workloads: &'a [&'a Workload],
    accesses: u64,
    threads_per_core: usize,
    /// Finished simulations.
    done: RefCell<HashMap<Key, Outcome>>,
}

impl Simulated<'_> {
    fn look(
        &self,
        on: On,
        kind: Kind,
        how: How,
        cores: usize,
        of: fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let workload = self.workloads.iter().find(|workload| workload.kind == kind)?;
        let system = Shared { policy: POLICY, how };
        let costs = match on {
            On::Own => self.costs,
            On::Other => self.source.other?.0.costs,
        };
        let key = (on == On::Own, kind.name(), system.name(), cores);
        if let Some(outcome) = self.done.borrow().get(&key) {
            return Some(of(outcome));
        }
        let threads = cores * self.threads_per_core;
        let machine = Machine { cores, threads, costs, accesses: self.accesses, seed: SEED };
        let outcome = simulate(&system.system(), &machine, &workload.transactions);
        self.done.borrow_mut().insert(key, outcome);
        Some(of(&outcome))
    }
}

/// Renders the source's predictions with each cost halved and doubled, except costs that are 0 or
/// infinite.
pub fn table(
    source: &Source,
    workloads: &[&Workload],
    accesses: u64,
    threads_per_core: usize,
) -> Table {
    let predicted = || -> Vec<Point> {
        (source.points)().into_iter().filter(|point| point.basis == Basis::Predicted).collect()
    };
    let values = |costs: Costs| {
        let done = RefCell::default();
        let played = Simulated { source, costs, workloads, accesses, threads_per_core, done };
        let value = |point: &Point| {
            (point.of)(&|on, kind, how, cores, of| played.look(on, kind, how, cores, of))
        };
        predicted().iter().map(value).collect::<Vec<_>>()
    };
    let mut columns = vec![
        Column::ours("prediction", ""),
        Column::published("", ""),
        Column::ours("as given", ""),
    ];
    let mut variants = vec![source.costs];
    for (heading, costs) in source.costs.varied() {
        columns.push(Column::ours(&heading, ""));
        variants.push(costs);
    }
    let all = on_all_cores(variants.len(), |at| values(variants[at]));
    let row = |(at, point): (usize, &Point)| {
        let names = [
            Cell::text(format!("{}, {}", point.what, point.unit)),
            Cell::number(point.published.0, 1),
        ];
        names.into_iter().chain(all.iter().map(|values| Cell::number(values[at], 1))).collect()
    };
    let rows = predicted().iter().enumerate().map(row).collect();
    let title = format!(
        "{}: simulated predictions with one cost halved or doubled, the others as given; seed {SEED}, {} accesses",
        source.machine,
        number::shown(accesses as f64, 0)
    );
    Table { title, columns, rows }
}
