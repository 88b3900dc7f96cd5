//! A table: what is read off the samples, with a column for published numbers beside ours.

use crate::json::number_or_null;
use crate::number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Fewer events than this, in all repetitions, are shown as a count: a rate of so few means little.
pub const FEW: f64 = 100.0;

/// A table with a title.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// From left to right; the first one names the rows.
    pub columns: Vec<Column>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// Unit of its numbers; empty where there is none.
    pub unit: String,
    /// Whether its numbers are the source's and not ours.
    pub published: bool,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, shown with so many digits behind the point.
    Number {
        /// The value.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// Digits behind the point.
        digits: u8,
    },
    /// The median of several repetitions, with their median absolute deviation.
    Median {
        /// The median.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// The median absolute deviation.
        #[serde(deserialize_with = "number_or_null")]
        deviation: f64,
        /// Digits behind the point.
        digits: u8,
    },
    /// There is none: not measured, or not published.
    Empty,
}

impl Column {
    /// A column of ours.
    pub fn ours(name: &str, unit: &str) -> Self {
        Self { name: name.into(), unit: unit.into(), published: false }
    }

    /// A column of the source's numbers.
    pub fn published(name: &str, unit: &str) -> Self {
        Self { published: true, ..Self::ours(name, unit) }
    }

    /// The heading as it is shown: a published column says so.
    pub fn heading(&self) -> String {
        let name = match (self.published, self.name.is_empty()) {
            (false, _) => self.name.clone(),
            (true, true) => "published".into(),
            (true, false) => format!("{} (published)", self.name),
        };
        match (name.is_empty(), self.unit.is_empty()) {
            (_, true) => name,
            (true, false) => self.unit.clone(),
            (false, false) => format!("{name}, {}", self.unit),
        }
    }
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number with so many digits behind the point; none is an empty cell.
    pub fn number(value: impl Into<Option<f64>>, digits: u8) -> Self {
        value.into().map_or(Self::Empty, |value| Self::Number { value, digits })
    }
}

impl Cell {
    /// A rate that repetitions measured of so many events, all together; of fewer than [`FEW`]
    /// their count.
    pub fn rate(values: &[f64], digits: u8, name: &str, events: f64) -> Self {
        if events >= FEW || values.is_empty() {
            return Self::measured(values, digits);
        }
        let plural = if values.len() == 1 { "" } else { "s" };
        Self::text(format!("{} {name} in {} run{plural}", number::shown(events, 0), values.len()))
    }

    /// What repetitions measured: their median and, of two or more, how far they deviate from it.
    pub fn measured(values: &[f64], digits: u8) -> Self {
        match (number::median(values), number::deviation(values)) {
            (Some(value), Some(deviation)) => Self::Median { value, deviation, digits },
            (value, _) => Self::number(value, digits),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number { value, digits } => f.write_str(&number::shown(*value, *digits)),
            Self::Median { value, deviation, digits } => {
                write!(
                    f,
                    "{} ±{}",
                    number::shown(*value, *digits),
                    number::shown(*deviation, *digits)
                )
            }
            Self::Empty => f.write_str("-"),
        }
    }
}

/// For a terminal: columns as wide as they must be, numbers at the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<String> = self.columns.iter().map(Column::heading).collect();
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|r| r.iter().map(Cell::to_string).collect()).collect();
        let width = |at: usize| {
            let cells = shown.iter().filter_map(|row| row.get(at)).chain([&headings[at]]);
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let line = |row: &[String]| {
            let mut line = String::new();
            for (at, (text, width)) in row.iter().zip(&widths).enumerate() {
                line +=
                    &if at == 0 { format!("{text:<width$}") } else { format!("  {text:>width$}") };
            }
            line.trim_end().to_owned()
        };
        writeln!(f, "{}", self.title)?;
        writeln!(f, "  {}", line(&headings))?;
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        writeln!(f, "  {}", line(&rule))?;
        shown.iter().try_for_each(|row| writeln!(f, "  {}", line(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_published_ones_say_so() {
        let table = Table {
            title: "Rates".into(),
            columns: vec![
                Column::ours("latch", ""),
                Column::ours("ours", "TPS"),
                Column::published("source", "TPS"),
                Column::ours("ratio", ""),
            ],
            rows: vec![
                vec![
                    Cell::text("cas"),
                    Cell::number(3_652_000.4, 0),
                    Cell::number(3652.0, 0),
                    Cell::number(2.5, 2),
                ],
                vec![
                    Cell::text("größer"),
                    Cell::number(f64::NAN, 0),
                    Cell::Empty,
                    Cell::number(None, 2),
                ],
            ],
        };
        let want = "Rates\n\
                    \x20 latch   ours, TPS  source (published), TPS  ratio\n\
                    \x20 ------  ---------  -----------------------  -----\n\
                    \x20 cas     3,652,000                    3,652   2.50\n\
                    \x20 größer   no value                        -      -\n";
        assert_eq!(table.to_string(), want);
    }

    #[test]
    fn repetitions_are_shown_with_their_deviation_and_a_single_run_without() {
        assert_eq!(Cell::measured(&[1000.0, 1010.0, 3000.0], 0).to_string(), "1,010 ±10");
        assert_eq!(Cell::measured(&[1000.0, f64::NAN], 0), Cell::number(1000.0, 0));
        assert_eq!(Cell::measured(&[], 0), Cell::Empty);
    }

    #[test]
    fn a_table_without_rows_is_its_headings() {
        let table =
            Table { title: "t".into(), columns: vec![Column::ours("a", "")], rows: Vec::new() };
        assert_eq!(table.to_string(), "t\n  a\n  -\n");
    }
}
