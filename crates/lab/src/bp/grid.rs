//! What was measured or simulated of several systems at several places, and the tables and charts
//! of it.

use crate::number::median;
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{self, Column, FEW, Table};

/// A measure that is shown: its name, its unit, digits that mean something, how it is drawn, and
/// how it is read off.
pub struct Measure<F> {
    /// What it is called.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Digits behind the point that mean something.
    pub digits: u8,
    /// How it is drawn.
    pub axis: fn(&str, &str) -> Axis,
    /// For a rate of events: what an event is called, and how many there were.
    pub events: Option<Events<F>>,
    /// How it is read off.
    pub of: fn(&F) -> f64,
}

/// What events are called, and how they are read off.
pub type Events<F> = (&'static str, fn(&F) -> f64);

/// One system at one place.
#[derive(Debug)]
pub struct Cell<F> {
    /// The system.
    pub system: String,
    /// Where along the x axis.
    pub x: f64,
    /// Every repetition.
    pub figures: Vec<F>,
}

/// Systems by places.
#[derive(Debug)]
pub struct Grid<F> {
    /// What it is of, as titles begin.
    pub title: String,
    /// What the places are.
    pub x: &'static str,
    /// In the order in which they are shown.
    pub cells: Vec<Cell<F>>,
}

impl<F> Grid<F> {
    /// Adds a repetition of a system at a place.
    pub fn record(&mut self, system: &str, x: f64, figure: F) {
        match self.cells.iter_mut().find(|cell| cell.system == system && cell.x == x) {
            Some(cell) => cell.figures.push(figure),
            None => self.cells.push(Cell { system: system.into(), x, figures: vec![figure] }),
        }
    }

    /// The median of a system at a place.
    pub fn at(&self, system: &str, x: f64, of: fn(&F) -> f64) -> Option<f64> {
        median(&self.repetitions(system, x, of))
    }

    /// Every repetition of a system at a place.
    pub fn repetitions(&self, system: &str, x: f64, of: fn(&F) -> f64) -> Vec<f64> {
        let cell = self.cells.iter().find(|cell| cell.system == system && cell.x == x);
        cell.into_iter().flat_map(|cell| &cell.figures).map(of).collect()
    }

    /// How many events there were in all repetitions of a system at a place, where they are too few
    /// for a rate.
    fn few(&self, system: &str, x: f64, measure: &Measure<F>) -> Option<(&'static str, f64)> {
        let (name, of) = measure.events?;
        let events: f64 = self.repetitions(system, x, of).iter().sum();
        (events < FEW).then_some((name, events))
    }

    /// What a table shows of a system at a place.
    pub fn cell(&self, system: &str, x: f64, measure: &Measure<F>) -> table::Cell {
        let repetitions = self.repetitions(system, x, measure.of);
        match self.few(system, x, measure) {
            Some((name, events)) => table::Cell::rate(&repetitions, measure.digits, name, events),
            None => table::Cell::measured(&repetitions, measure.digits),
        }
    }

    fn distinct<T: PartialEq>(&self, of: impl Fn(&Cell<F>) -> T) -> Vec<T> {
        let mut all = Vec::new();
        for value in self.cells.iter().map(of) {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    }

    /// Systems down, places across.
    pub fn table(&self, measure: &Measure<F>) -> Table {
        let places = self.distinct(|cell| cell.x);
        let mut columns = vec![Column::ours("system", "")];
        columns
            .extend(places.iter().map(|x| Column::ours(&format!("{x} {}", self.x), measure.unit)));
        let row = |system: String| {
            let mut row = vec![table::Cell::text(system.clone())];
            row.extend(places.iter().map(|x| self.cell(&system, *x, measure)));
            row
        };
        let rows = self.distinct(|cell| cell.system.clone()).into_iter().map(row).collect();
        Table { title: format!("{}: {}", self.title, measure.name), columns, rows }
    }

    /// A chart with a series a system. A point of too few events is not drawn: see
    /// [`Self::counts`].
    pub fn samples(&self, measure: &Measure<F>) -> Samples {
        let value = |cell: &Cell<F>, figure: &F| match self.few(&cell.system, cell.x, measure) {
            Some(_) => f64::NAN,
            None => (measure.of)(figure),
        };
        let few = measure
            .events
            .map_or(String::new(), |(name, _)| format!(", points of {FEW} {name} or more"));
        Samples {
            title: format!("{}: {}{few}", self.title, measure.name),
            x: Axis::log(self.x, ""),
            y: (measure.axis)(measure.name, measure.unit),
            series: self.series(value),
            drawn: true,
        }
    }

    /// The events that a measure is a rate of, by repetition; they are kept and not drawn.
    pub fn counts(&self, measure: &Measure<F>) -> Option<Samples> {
        let (name, of) = measure.events?;
        let title = format!("{}: {}, {name}", self.title, measure.name);
        let (x, y) = (Axis::log(self.x, ""), Axis::linear(name, ""));
        Some(Samples { title, x, y, series: self.series(|_, figure| of(figure)), drawn: false })
    }

    fn series(&self, value: impl Fn(&Cell<F>, &F) -> f64) -> Vec<Series> {
        let series = |name: String| {
            let cells = self.cells.iter().filter(|cell| cell.system == name);
            let point = |c: &Cell<F>| Point {
                x: c.x,
                y: c.figures.iter().map(|figure| value(c, figure)).collect(),
            };
            let points = cells.map(point).collect();
            Series { name, points }
        };
        self.distinct(|cell| cell.system.clone()).into_iter().map(series).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_in_rows_and_columns() {
        let mut grid = Grid { title: "t".into(), x: "threads", cells: Vec::new() };
        // In turns, as systems are measured.
        for (system, x, figure) in
            [("a", 1.0, 3.0), ("a", 2.0, 5.0), ("b", 2.0, 7.0), ("a", 1.0, 1.0), ("a", 1.0, 2.0)]
        {
            grid.record(system, x, figure);
        }
        let measure = Measure {
            name: "rate",
            unit: "/us",
            digits: 0,
            axis: Axis::linear,
            events: None,
            of: |f: &f64| *f,
        };
        let table = grid.table(&measure).to_string();
        assert!(
            table.contains("1 threads, /us")
                && table.contains("\n  b                    -               7"),
            "{table}"
        );
        assert!(table.contains("2 ±1"), "{table}");
        assert_eq!(grid.at("a", 1.0, measure.of), Some(2.0));
        assert_eq!(grid.samples(&measure).series[0].points.len(), 2);
        assert_eq!(grid.counts(&measure), None);
    }

    #[test]
    fn few_events_are_a_count_and_not_a_rate() {
        let mut grid = Grid { title: "t".into(), x: "threads", cells: Vec::new() };
        // 99 events together, and 100.
        for (system, events) in
            [("few", 49.0), ("few", 50.0), ("many", 50.0), ("many", 50.0), ("none", 0.0)]
        {
            grid.record(system, 1.0, events);
        }
        let events: Option<Events<f64>> = Some(("waits", |events| *events));
        let of = |events: &f64| events * 1e3;
        let measure =
            Measure { name: "contention", unit: "", digits: 0, axis: Axis::log, events, of };
        let shown =
            ["few", "many", "none"].map(|system| grid.cell(system, 1.0, &measure).to_string());
        assert_eq!(shown, ["99 waits in 2 runs", "50,000 ±0", "0 waits in 1 run"]);
        assert_eq!(grid.cell("absent", 1.0, &measure), table::Cell::Empty);
        let drawn = grid.samples(&measure).series;
        assert!(
            drawn[0].points[0].y.iter().all(|y| y.is_nan()) && drawn[1].points[0].y == [5e4, 5e4]
        );
        let counts = grid.counts(&measure).unwrap();
        assert!(!counts.drawn && counts.series[0].points[0].y == [49.0, 50.0]);
    }
}
