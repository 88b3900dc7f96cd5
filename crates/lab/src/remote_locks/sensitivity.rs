//! How a bar's ratio depends on the estimated costs, and on the transactions in flight by TCP.

use super::judge;
use super::systems::{Load, System, TCP};
use crate::experiment::Task;
use crate::number::shown;
use crate::progress::Progress;
use crate::table::{Cell, Column, Table};
use clearway_harness::Res;
use clearway_remote::Protocol;
use clearway_remote::ycsb::{CostField, Costs, YcsbOutcome};

/// Transactions in flight per worker by TCP, beside RCBench's.
const IN_FLIGHT: [usize; 3] = [2, 16, 128];

/// Steps of the progress.
pub const STEPS: usize = 2 * 9 + IN_FLIGHT.len();

/// What is compared with TCP at [`judge::THETA`].
pub struct Compared {
    pub protocol: Protocol,
    pub writes: f64,
    pub system: System,
    /// The runs with all costs as estimated, of seed 1.
    pub estimated: Ratio,
}

/// What [`run`] found.
pub struct Varied {
    /// Both rates and the ratio, with each cost halved and doubled.
    pub costs: Table,
    /// The same with fewer transactions in flight by TCP.
    pub in_flight: Table,
    /// Transactions in flight per worker by TCP, and the ratio.
    pub ratios: Vec<(usize, f64)>,
}

/// The runs of a ratio.
pub struct Ratio {
    pub ours: YcsbOutcome,
    pub tcp: YcsbOutcome,
}

impl Ratio {
    fn value(&self) -> f64 {
        self.ours.rate / self.tcp.rate
    }

    /// Returns both rates, of which those that are not stationary are marked, and the ratio.
    fn cells(&self, is_quick: bool) -> [Cell; 3] {
        let rate = |run: &YcsbOutcome| {
            let mark = if run.is_stationary || is_quick { "" } else { "*" };
            Cell::text(shown(run.rate / 1e3, 1) + mark)
        };
        [rate(&self.ours), rate(&self.tcp), Cell::number(self.value(), 2)]
    }
}

/// Runs both systems with each cost halved and doubled, and with fewer transactions in flight by
/// TCP; seed 1. A cost that does not affect a system leaves its run as estimated.
pub fn run(task: &Task, compared: Compared, progress: &mut Progress) -> Res<Varied> {
    let Compared { protocol, writes, system, estimated: as_estimated } = compared;
    let run = |system: System, load: Load| system.run(task, protocol, load, 1);
    let estimated = Load::new(judge::THETA, writes);
    let with = |field: &CostField, costs: Costs| {
        let load = Load { costs, ..estimated };
        let of = |system: System, known| match system.depends_on(field) {
            true => run(system, load),
            false => Ok(known),
        };
        Ok::<_, String>(Ratio {
            ours: of(system, as_estimated.ours)?,
            tcp: of(TCP, as_estimated.tcp)?,
        })
    };
    let cells = |ratio: &Ratio| ratio.cells(task.options.quick);
    let row = |name: &str, ratios: [&Ratio; 2]| {
        std::iter::once(Cell::text(name)).chain(ratios.into_iter().flat_map(cells)).collect()
    };
    let mut rows = vec![row("as estimated", [&as_estimated, &as_estimated])];
    for field in Costs::fields() {
        let (mut halved, mut doubled) = (Costs::default(), Costs::default());
        (field.of)(&mut halved).into_iter().for_each(|ns| *ns /= 2);
        (field.of)(&mut doubled).into_iter().for_each(|ns| *ns *= 2);
        progress.step(&format!("{}, halved", field.name));
        let halved = with(&field, halved)?;
        progress.step(&format!("{}, doubled", field.name));
        let doubled = with(&field, doubled)?;
        rows.push(row(field.name, [&halved, &doubled]));
    }
    let ours = system.name;
    let mut columns = vec![Column::ours("cost", "")];
    for change in ["halved", "doubled"] {
        let rates = [ours, TCP.name].map(|name| (name, "thousand/s"));
        let named = |(name, unit)| Column::ours(&format!("{change}: {name}"), unit);
        columns.extend(rates.into_iter().chain([("ratio", "")]).map(named));
    }
    let title = format!(
        "{ours} over TCP at theta {}, with each cost halved and doubled (*: not stationary)",
        judge::THETA
    );
    let costs = Table { title, columns, rows };
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for in_flight in IN_FLIGHT {
        progress.step(&format!("TCP, {in_flight} in flight per worker"));
        let tcp = run(TCP, Load { in_flight: Some(in_flight), ..estimated })?;
        let ratio = Ratio { ours: as_estimated.ours, tcp };
        ratios.push((in_flight, ratio.value()));
        let number = Cell::number(in_flight as f64, 0);
        rows.push(std::iter::once(number).chain(cells(&ratio)).collect());
    }
    let columns = [
        Column::ours("in flight per worker", ""),
        Column::ours(ours, "thousand/s"),
        Column::ours(TCP.name, "thousand/s"),
        Column::ours("ratio", ""),
    ];
    let title = format!(
        "{ours} over TCP at theta {}, with fewer transactions in flight by TCP (*: not stationary)",
        judge::THETA
    );
    Ok(Varied { costs, in_flight: Table { title, columns: columns.to_vec(), rows }, ratios })
}
