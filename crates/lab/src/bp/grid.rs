//! What was measured or simulated of several systems at several places, and the tables and charts of it.

use crate::number::median;
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{self, Column, Table};

/// A measure that is shown: its name, its unit, digits that mean something, how it is drawn, and how it is read off.
pub struct Measure<F> {
    /// What it is called.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Digits behind the point that mean something.
    pub digits: u8,
    /// How it is drawn.
    pub axis: fn(&str, &str) -> Axis,
    /// How it is read off.
    pub of: fn(&F) -> f64,
}

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
        columns.extend(places.iter().map(|x| Column::ours(&format!("{x} {}", self.x), measure.unit)));
        let row = |system: String| {
            let mut row = vec![table::Cell::text(system.clone())];
            let repetitions = |x: &f64| self.repetitions(&system, *x, measure.of);
            row.extend(places.iter().map(|x| table::Cell::measured(&repetitions(x), measure.digits)));
            row
        };
        let rows = self.distinct(|cell| cell.system.clone()).into_iter().map(row).collect();
        Table { title: format!("{}: {}", self.title, measure.name), columns, rows }
    }

    /// A chart with a series a system.
    pub fn samples(&self, measure: &Measure<F>) -> Samples {
        let series = self.distinct(|cell| cell.system.clone()).into_iter().map(|name| {
            let cells = self.cells.iter().filter(|cell| cell.system == name);
            let points = cells.map(|c| Point { x: c.x, y: c.figures.iter().map(measure.of).collect() }).collect();
            Series { name, points }
        });
        Samples {
            title: format!("{}: {}", self.title, measure.name),
            x: Axis::log(self.x, ""),
            y: (measure.axis)(measure.name, measure.unit),
            series: series.collect(),
            drawn: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_in_rows_and_columns() {
        let mut grid = Grid { title: "t".into(), x: "threads", cells: Vec::new() };
        // In turns, as systems are measured.
        for (system, x, figure) in [("a", 1.0, 3.0), ("a", 2.0, 5.0), ("b", 2.0, 7.0), ("a", 1.0, 1.0), ("a", 1.0, 2.0)]
        {
            grid.record(system, x, figure);
        }
        let measure = Measure { name: "rate", unit: "/us", digits: 0, axis: Axis::linear, of: |f: &f64| *f };
        let table = grid.table(&measure).to_string();
        assert!(
            table.contains("1 threads, /us") && table.contains("\n  b                    -               7"),
            "{table}"
        );
        assert!(table.contains("2 ±1"), "{table}");
        assert_eq!(grid.at("a", 1.0, measure.of), Some(2.0));
        assert_eq!(grid.samples(&measure).series[0].points.len(), 2);
    }
}
