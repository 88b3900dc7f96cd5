//! Published numbers, what each can prove about the simulation, and how well the simulation agrees.
//!
//! Only a *predicted* point is evidence: nothing was fitted to it, and it does not follow from a
//! fitted point. Tables list predictions first, and failing ones before those that hold.

use super::scaling::Scaled;
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::bars::{Bar, Bound, Reading};
use crate::simulator::{Outcome, TOLERANCE};
use crate::table::{Cell, Column, Table};

/// Relation of a published number to the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Nothing was fitted to it.
    Predicted,
    /// The source gives a bound on one side.
    Range,
    /// It follows from fitted numbers: in a closed system, response times follow from throughput.
    Implied,
    /// A cost was fitted to it, or to a mean that includes it.
    Fitted,
}

impl Basis {
    const ALL: [Self; 4] = [Self::Predicted, Self::Range, Self::Implied, Self::Fitted];

    fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Range => "range",
            Self::Implied => "implied",
            Self::Fitted => "fitted",
        }
    }
}

/// The simulated machine that a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The figure's own machine.
    Own,
    /// The machine that the figure compares with.
    Other,
}

/// Reads one value of a simulation: machine, workload, how 2Q is shared, number of processors.
pub type Look<'a> = &'a dyn Fn(On, Kind, How, usize, fn(&Outcome) -> f64) -> Option<f64>;

/// Computes a published number from simulations.
pub type ReadOff = dyn Fn(Look<'_>) -> Option<f64>;

/// A published number and its simulated counterpart.
pub struct Point {
    /// Description.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// Relation to the simulation.
    pub basis: Basis,
    /// Range; the upper end is infinite if the source gives only a lower bound.
    pub published: (f64, f64),
    /// The published number if the source's percentage does not mean "of": throughput "below", or
    /// contention "above".
    pub otherwise: Option<f64>,
    /// Computes the simulated number.
    pub of: Box<ReadOff>,
}

fn is_within((from, to): (f64, f64), value: f64) -> bool {
    (from * (1.0 - TOLERANCE)..=to * (1.0 + TOLERANCE)).contains(&value)
}

impl Point {
    fn is_met(&self, value: f64) -> bool {
        is_within(self.published, value)
    }

    /// Returns true if the value meets the point in the other reading of percentages.
    fn is_met_otherwise(&self, value: f64) -> bool {
        self.otherwise.map_or_else(|| self.is_met(value), |other| is_within((other, other), value))
    }
}

/// A point and its simulated value.
struct Compared {
    point: Point,
    value: Option<f64>,
}

/// Reads a value from the simulations of a run.
pub fn look(
    all: &[Scaled],
    on: On,
    kind: Kind,
    how: How,
    cores: usize,
    of: fn(&Outcome) -> f64,
) -> Option<f64> {
    let scaled = all.iter().find(|scaled| scaled.kind == kind)?;
    let grid = if on == On::Own { &scaled.simulated } else { &scaled.other };
    grid.at(&Shared { policy: POLICY, how }.name(), cores as f64, of)
}

/// Sorts predictions first, and missed ones first among them.
fn compared(points: Vec<Point>, all: &[Scaled]) -> Vec<Compared> {
    let with_value = |point: Point| {
        let value = (point.of)(&|on, kind, how, cores, of| look(all, on, kind, how, cores, of));
        Compared { point, value }
    };
    let mut compared: Vec<Compared> = points.into_iter().map(with_value).collect();
    let is_met = |c: &Compared| c.value.is_some_and(|value| c.point.is_met(value));
    compared.sort_by_key(|c| (c.point.basis, is_met(c)));
    compared
}

/// Renders the published points beside the simulated ones.
pub fn table(machine: &str, points: Vec<Point>, all: &[Scaled]) -> Table {
    let columns = vec![
        Column::ours("point", ""),
        Column::ours("basis", ""),
        Column::ours("simulated", ""),
        Column::published("from", ""),
        Column::published("to", ""),
        Column::published("if not \"of\"", ""),
        Column::ours("unit", ""),
    ];
    let row = |Compared { point, value }: Compared| {
        let (from, to) = point.published;
        let numbers = [value, Some(from), Some(to).filter(|to| to.is_finite()), point.otherwise];
        let numbers = numbers.map(|number| Cell::number(number, 1));
        let names = [Cell::text(point.what), Cell::text(point.basis.name())];
        names.into_iter().chain(numbers).chain([Cell::text(point.unit)]).collect()
    };
    let rows = compared(points, all).into_iter().map(row).collect();
    Table { title: format!("{machine}: published points beside simulated ones"), columns, rows }
}

/// The other reading of percentages.
const OTHERWISE: &str = "if they mean \"below\" (throughput) or \"above\" (contention)";

/// The bar of a simulation: its credibility depends on its predictions.
pub const PREDICTIONS: &str = "simulated predictions within a tenth of the published points";

/// Judges how many predictions hold; returns `None` if nothing was simulated.
pub fn bar(points: Vec<Point>, all: &[Scaled]) -> Option<Bar> {
    let predicted: Vec<(Point, f64)> = compared(points, all)
        .into_iter()
        .filter(|compared| compared.point.basis == Basis::Predicted)
        .filter_map(|compared| Some((compared.point, compared.value?)))
        .collect();
    let count = |is_met: fn(&Point, f64) -> bool| {
        predicted.iter().filter(|(point, value)| is_met(point, *value)).count() as f64
    };
    bar_of(count(Point::is_met), predicted.len() as f64, |met| {
        vec![
            Reading::new("if percentages mean \"of\"", met, "points", 0),
            Reading::new(OTHERWISE, count(Point::is_met_otherwise), "points", 0),
        ]
    })
}

/// Creates the bar for `met` of `all` predictions.
pub fn bar_of(met: f64, all: f64, readings: impl FnOnce(f64) -> Vec<Reading>) -> Option<Bar> {
    let total = Reading::new("of", all, "predictions", 0);
    let readings = readings(met).into_iter().chain([total]).collect();
    (all > 0.0).then(|| {
        Bar::measured(PREDICTIONS, met * 100.0 / all, "%", Bound::AtLeast(100.0), readings)
    })
}

/// Summarises the agreement: counts predictions, and lists the other kinds of points separately.
pub fn agreement(points: Vec<Point>, all: &[Scaled]) -> Vec<String> {
    let compared: Vec<(Point, f64)> =
        compared(points, all).into_iter().filter_map(|c| Some((c.point, c.value?))).collect();
    if compared.is_empty() {
        return Vec::new();
    }
    let of = |basis| compared.iter().filter(move |(point, _)| point.basis == basis);
    let missed: Vec<String> = of(Basis::Predicted)
        .filter(|(point, value)| !point.is_met(*value))
        .map(|(point, value)| {
            let other = point.otherwise.map_or_else(String::new, |other| format!(" or {other:.1}"));
            format!(
                "{}: {value:.1} {}, published {:.1}{other}",
                point.what, point.unit, point.published.0
            )
        })
        .collect();
    let met = |is_met: fn(&Point, f64) -> bool| {
        of(Basis::Predicted).filter(|(point, value)| is_met(point, *value)).count()
    };
    let mut said = Vec::new();
    if !missed.is_empty() {
        said.push(format!("Predictions that fail: {}.", missed.join("; ")));
    }
    said.push(format!(
        "{} of {} predictions are within 10 % if the source's percentages mean \"of\", {} {OTHERWISE}; \
         its translation leaves that open.",
        met(Point::is_met),
        of(Basis::Predicted).count(),
        met(Point::is_met_otherwise),
    ));
    let holds = |basis| of(basis).filter(|(point, value)| point.is_met(*value)).count();
    let [_, others @ ..] = Basis::ALL;
    let others =
        others.map(|basis| format!("{}: {} of {}", basis.name(), holds(basis), of(basis).count()));
    said.push(format!("Points that prove little, and how many hold: {}.", others.join(", ")));
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;

    fn point(basis: Basis, published: f64, value: f64) -> Point {
        Point {
            what: format!("{} {published}", basis.name()),
            unit: "%",
            basis,
            published: (published, published),
            otherwise: (basis == Basis::Predicted).then_some(100.0 - published),
            of: Box::new(move |_| Some(value)),
        }
    }

    #[test]
    fn only_predictions_count_and_misses_come_first() {
        let points = || {
            vec![
                point(Basis::Fitted, 50.0, 50.0),
                point(Basis::Predicted, 40.0, 41.0),
                point(Basis::Predicted, 40.0, 61.0),
                point(Basis::Predicted, 40.0, 90.0),
                point(Basis::Implied, 50.0, 90.0),
            ]
        };
        let rows = table("m", points(), &[]).rows;
        let shown: Vec<String> = rows.iter().map(|row| format!("{} {}", row[1], row[2])).collect();
        let expected =
            ["predicted 61.0", "predicted 90.0", "predicted 41.0", "implied 90.0", "fitted 50.0"];
        assert_eq!(shown, expected);
        let bar = bar(points(), &[]).unwrap();
        assert_eq!(bar.verdict(false), Verdict::Short);
        assert!(
            bar.explained().starts_with("33.33 %, bar at least 100.00 %"),
            "{}",
            bar.explained()
        );
        assert_eq!(super::bar(vec![point(Basis::Fitted, 50.0, 50.0)], &[]), None);
        let said = agreement(points(), &[]);
        assert!(said[0].contains("61.0 %, published 40.0 or 60.0"), "{said:?}");
        assert!(
            said[1].starts_with("1 of 3 predictions")
                && said[1].contains("1 if they mean \"below\""),
            "{said:?}"
        );
        assert!(said[2].ends_with("range: 0 of 0, implied: 0 of 1, fitted: 1 of 1."), "{said:?}");
    }
}
