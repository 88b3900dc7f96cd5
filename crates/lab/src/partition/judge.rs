//! The source's published points beside ours, and the bars on them.

use super::driven::{DRIVER, Rates};
use crate::bars::{Bar, Bound, Reading};
use crate::experiment::Part;
use crate::table::{Cell, Column, Table};

/// Something that the source reports.
#[derive(Clone, Copy)]
pub struct PublishedPoint {
    /// What it is. Also the name of its bar.
    pub what: &'static str,
    /// Reads ours; `None` if its cases were not run.
    pub ours: fn(&Rates<'_>) -> Option<f64>,
    /// The source's number, if it gives one.
    pub source: Option<f64>,
    /// The source's words, if it does not.
    pub says: &'static str,
    /// The bound that ours must keep.
    pub bar: Option<Bound>,
    /// What the driver assumes that may differ from the source; empty if the numbers agree.
    pub assumption: &'static str,
}

/// Returns the bars of published points.
pub fn bars(points: &[PublishedPoint], rates: &Rates<'_>, part: &Part) -> Vec<Bar> {
    let judged = |point: &PublishedPoint| {
        let ours = (point.ours)(rates);
        if ours.is_none() && matches!(part, Part::Only(_)) {
            return None;
        }
        let value = ours.unwrap_or(f64::NAN);
        let readings = vec![Reading::new(DRIVER, value, "", 2)];
        Some(Bar::measured(point.what, value, "", point.bar?, readings))
    };
    points.iter().filter_map(judged).collect()
}

/// Tabulates published points beside ours.
pub fn table(points: &[PublishedPoint], rates: &Rates<'_>) -> Table {
    let row = |point: &PublishedPoint| {
        let ours = (point.ours)(rates);
        let difference = ours.zip(point.source).map(|(ours, source)| ours - source);
        let source = match point.source {
            Some(number) => Cell::number(number, 2),
            None => Cell::text(point.says),
        };
        vec![
            Cell::text(point.what),
            Cell::number(ours, 2),
            source,
            Cell::number(difference, 2),
            Cell::text(point.assumption),
        ]
    };
    Table {
        title: "Published points".into(),
        columns: vec![
            Column::ours("point", ""),
            Column::ours(DRIVER, ""),
            Column::published("", ""),
            Column::ours("difference", ""),
            Column::ours("assumption that differs", ""),
        ],
        rows: points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;
    use crate::bp::grid::Grid;

    const POINT: PublishedPoint = PublishedPoint {
        what: "p",
        ours: |_| Some(2.0),
        source: Some(2.5),
        says: "",
        bar: Some(Bound::AtLeast(2.5)),
        assumption: "",
    };

    #[test]
    fn points_with_a_bound_are_bars() {
        let grid = Grid { title: String::new(), x: "", cells: Vec::new() };
        let rates = Rates(&grid);
        let absent = PublishedPoint { ours: |_| None, ..POINT };
        let free = PublishedPoint { bar: None, ..POINT };
        let verdicts = |points: &[PublishedPoint], part| -> Vec<Verdict> {
            bars(points, &rates, &part).iter().map(|bar| bar.verdict(false)).collect()
        };
        assert_eq!(verdicts(&[POINT, free], Part::Whole), [Verdict::Short]);
        let points = [absent];
        assert_eq!(verdicts(&points, Part::Whole), [Verdict::Short]);
        assert_eq!(verdicts(&points, Part::Only("x".into())), []);
        assert!(table(&[POINT], &rates).to_string().contains("-0.50"));
    }
}
