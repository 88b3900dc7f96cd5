//! Results of several systems at several positions, and their tables and charts.

use crate::number::median;
use crate::place::{self, Cores, Missing, Place, Placed};
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{self, Column, FEW, Table};

/// A measure: its name and unit, how it is drawn, and how it is read from a result.
pub struct Measure<F> {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Significant decimals.
    pub digits: u8,
    /// Its axis.
    pub axis: fn(&str, &str) -> Axis,
    /// For a rate of events: the name of an event, and their number.
    pub events: Option<Events<F>>,
    /// Reads the measure from a result.
    pub of: fn(&F) -> f64,
}

/// The name of an event, and how the count is read from a result.
pub type Events<F> = (&'static str, fn(&F) -> f64);

/// The results of one system at one position.
#[derive(Debug)]
pub struct Cell<F> {
    /// The system.
    pub system: String,
    /// Position along the x axis.
    pub x: f64,
    /// One result per repetition.
    pub figures: Vec<F>,
}

/// Results by system and position.
#[derive(Debug)]
pub struct Grid<F> {
    /// Start of the titles.
    pub title: String,
    /// Name of the x axis.
    pub x: &'static str,
    /// Cells in display order.
    pub cells: Vec<Cell<F>>,
}

impl Placed for f64 {}

impl<F: Placed> Grid<F> {
    /// Adds a repetition of a system at a position.
    pub fn record(&mut self, system: &str, x: f64, figure: F) {
        match self.cells.iter_mut().find(|cell| cell.system == system && cell.x == x) {
            Some(cell) => cell.figures.push(figure),
            None => self.cells.push(Cell { system: system.into(), x, figures: vec![figure] }),
        }
    }

    /// Returns every result, to be marked by its place.
    pub fn results_mut(&mut self) -> impl Iterator<Item = &mut F> {
        self.cells.iter_mut().flat_map(|cell| &mut cell.figures)
    }

    /// Returns the places of all results.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.cells.iter().flat_map(|cell| &cell.figures).filter_map(Placed::place)
    }

    /// Returns the results of a system at a position, if it was run there.
    pub fn results(&self, system: &str, x: f64) -> Option<&[F]> {
        let cell = self.cells.iter().find(|cell| cell.system == system && cell.x == x)?;
        Some(&cell.figures)
    }

    /// Returns the median for a system at a position.
    pub fn at(&self, system: &str, x: f64, of: fn(&F) -> f64) -> Option<f64> {
        median(&self.repetitions(system, x, of))
    }

    /// Returns the repetitions of a system at a position: those with near cores, or all if there
    /// are no others.
    pub fn repetitions(&self, system: &str, x: f64, of: fn(&F) -> f64) -> Vec<f64> {
        let results = self.results(system, x).unwrap_or_default();
        place::near_or_all(results).into_iter().map(of).collect()
    }

    /// Returns all repetitions of a system at a position, wherever the cores were.
    pub fn all_repetitions(&self, system: &str, x: f64, of: fn(&F) -> f64) -> Vec<f64> {
        self.results(system, x).unwrap_or_default().iter().map(of).collect()
    }

    /// Returns the medians of several systems at a position, in a state of the cores that all have.
    pub fn together<const N: usize>(
        &self,
        systems: [&str; N],
        x: f64,
        of: fn(&F) -> f64,
    ) -> Result<[f64; N], Missing> {
        let has = |results: &&[F], cores| results.iter().any(|result| result.is_in(cores));
        let median_in = |results: &&[F], cores: Cores| {
            let results = results.iter().filter(|result| result.is_in(cores));
            median(&results.map(of).collect::<Vec<_>>())
        };
        place::medians(systems.map(|system| self.results(system, x)), has, median_in)
    }

    /// Returns the event name and count if a system at a position has too few events for a rate.
    fn few(&self, system: &str, x: f64, measure: &Measure<F>) -> Option<(&'static str, f64)> {
        let (name, of) = measure.events?;
        let events: f64 = self.repetitions(system, x, of).iter().sum();
        (events < FEW).then_some((name, events))
    }

    /// Returns the table cell of a system at a position.
    pub fn cell(&self, system: &str, x: f64, measure: &Measure<F>) -> table::Cell {
        let repetitions = self.repetitions(system, x, measure.of);
        match self.few(system, x, measure) {
            Some((name, events)) => table::Cell::rate(&repetitions, measure.digits, name, events),
            None => table::Cell::measured(&repetitions, measure.digits),
        }
    }

    /// Returns the positions, in the order of the first results.
    pub fn positions(&self) -> Vec<f64> {
        self.distinct(|cell| cell.x)
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

    /// Renders a table: systems in rows, positions in columns.
    pub fn table(&self, measure: &Measure<F>) -> Table {
        let places = self.positions();
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

    /// Renders a chart with one series per system. A rate of 0 events is drawn at the axis; a rate
    /// of 1 to 99 events is not drawn: see [`Self::counts`].
    pub fn samples(&self, measure: &Measure<F>) -> Samples {
        let value = |cell: &Cell<F>, figure: &F| match self.few(&cell.system, cell.x, measure) {
            Some((_, events)) if events > 0.0 => f64::NAN,
            _ => (measure.of)(figure),
        };
        let few = measure
            .events
            .map_or(String::new(), |(name, _)| format!(", points with 0 or at least {FEW} {name}"));
        Samples {
            title: format!("{}: {}{few}", self.title, measure.name),
            x: Axis::log(self.x, ""),
            y: (measure.axis)(measure.name, measure.unit),
            series: self.series(value),
            drawn: true,
            marked: None,
        }
    }

    /// Returns the event counts behind a rate, per repetition. They are stored and not drawn.
    pub fn counts(&self, measure: &Measure<F>) -> Option<Samples> {
        let (name, of) = measure.events?;
        let title = format!("{}: {}, {name}", self.title, measure.name);
        let (x, y) = (Axis::log(self.x, ""), Axis::linear(name, ""));
        Some(Samples {
            title,
            x,
            y,
            series: self.series(|_, figure| of(figure)),
            drawn: false,
            marked: None,
        })
    }

    /// Returns the places of all results, which are stored and not drawn.
    pub fn place_samples(&self) -> [Samples; 2] {
        let of = |name: &str, unit: &str, of: fn(&Place) -> f64| Samples {
            title: format!("{}: {name}", self.title),
            x: Axis::log(self.x, ""),
            y: Axis::linear(name, unit),
            series: self.series(|_, figure| figure.place().map_or(f64::NAN, of)),
            drawn: false,
            marked: None,
        };
        [
            of(place::LINE, "ns", |place| place.line_ns),
            of("time of work against the start", "", |place| place.slowness),
        ]
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
    use crate::place::tests::{APART, NEAR};

    #[test]
    fn grid_tables_show_medians() {
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
    fn few_events_are_shown_as_counts() {
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
        assert_eq!(drawn[2].points[0].y, [0.0], "no events are a result");
        let counts = grid.counts(&measure).unwrap();
        assert!(!counts.drawn && counts.series[0].points[0].y == [49.0, 50.0]);
    }

    #[test]
    fn results_with_near_cores_count_if_there_are_some() {
        let mut grid = Grid { title: "t".into(), x: "threads", cells: Vec::new() };
        for (system, place) in
            [("a", NEAR), ("a", APART), ("b", APART), ("b", APART), ("c", NEAR), ("d", APART)]
        {
            grid.record(system, 1.0, place);
        }
        let line: fn(&Place) -> f64 = |place| place.line_ns;
        assert_eq!(grid.repetitions("a", 1.0, line), [50.0]);
        assert_eq!(grid.repetitions("b", 1.0, line), [300.0; 2]);
        assert_eq!(grid.all_repetitions("a", 1.0, line), [50.0, 300.0]);
        assert_eq!(grid.at("a", 1.0, line), Some(50.0));
        assert_eq!(grid.together(["a", "c"], 1.0, line), Ok([50.0; 2]));
        assert_eq!(grid.together(["a", "b", "d"], 1.0, line), Ok([300.0; 3]));
        assert_eq!(grid.together(["c", "d"], 1.0, line), Err(Missing::NoCommonState));
        assert_eq!(grid.together(["a", "e"], 1.0, line), Err(Missing::Unmeasured));
        let [lines, slowness] = grid.place_samples();
        assert_eq!(lines.series[0].points[0].y, [50.0, 300.0], "the record keeps all");
        assert_eq!(slowness.series[0].points[0].y, [1.0; 2]);
        grid.results_mut().for_each(|place| place.line_ns = 50.0);
        place::mark_apart(grid.results_mut());
        assert!(grid.places().all(|place| place.cores == Cores::Near));
    }
}
