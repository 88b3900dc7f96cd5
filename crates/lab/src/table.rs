//! Tables: results derived from the samples, with published numbers beside ours.

use crate::json::number_or_null;
use crate::number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Fewer events than this, over all repetitions, are shown as a count: a rate would be too
/// imprecise.
pub const FEW: f64 = 100.0;

/// A table with a title.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Title.
    pub title: String,
    /// From left to right; the first column names the rows.
    pub columns: Vec<Column>,
    /// Each row is as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// Unit of its numbers; may be empty.
    pub unit: String,
    /// Whether the numbers are the source's.
    pub published: bool,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number with this many decimals.
    Number {
        /// The value.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// Decimals.
        digits: u8,
    },
    /// The median of several repetitions and their median absolute deviation.
    Median {
        /// The median.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// The median absolute deviation.
        #[serde(deserialize_with = "number_or_null")]
        deviation: f64,
        /// Decimals.
        digits: u8,
    },
    /// Not measured, or not published.
    Empty,
}

impl Column {
    /// Creates a column of ours.
    pub fn ours(name: &str, unit: &str) -> Self {
        Self { name: name.into(), unit: unit.into(), published: false }
    }

    /// Creates a column of the source's numbers.
    pub fn published(name: &str, unit: &str) -> Self {
        Self { published: true, ..Self::ours(name, unit) }
    }

    /// Returns the displayed heading; published columns are marked.
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
    /// Creates a text cell.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a number with this many decimals; `None` is an empty cell.
    pub fn number(value: impl Into<Option<f64>>, digits: u8) -> Self {
        value.into().map_or(Self::Empty, |value| Self::Number { value, digits })
    }
}

impl Cell {
    /// Creates a rate measured in repetitions with this many events in total; fewer than [`FEW`]
    /// events are shown as a count, and a rate that its decimals would show as 0 has more.
    pub fn rate(values: &[f64], digits: u8, name: &str, events: f64) -> Self {
        if events >= FEW || values.is_empty() {
            let first = number::median(values).filter(|rate| *rate > 0.0);
            let first = first.map_or(0, |rate| (-rate.log10()).ceil().clamp(0.0, 9.0) as u8);
            return Self::measured(values, digits.max(first));
        }
        let plural = if values.len() == 1 { "" } else { "s" };
        Self::text(format!("{} {name} in {} run{plural}", number::shown(events, 0), values.len()))
    }

    /// Creates a median of repetitions; with two or more, also their deviation.
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

/// Formats for a terminal: minimal column widths, numbers right-aligned.
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
    fn tables_align_columns_and_mark_published_ones() {
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
    fn repetitions_have_a_deviation_single_runs_none() {
        assert_eq!(Cell::measured(&[1000.0, 1010.0, 3000.0], 0).to_string(), "1,010 ±10");
        assert_eq!(Cell::measured(&[1000.0, f64::NAN], 0), Cell::number(1000.0, 0));
        assert_eq!(Cell::measured(&[], 0), Cell::Empty);
    }

    #[test]
    fn rates_of_many_events_are_not_shown_as_0() {
        let shown = |rate: f64, events| Cell::rate(&[rate; 2], 2, "waits", events).to_string();
        assert_eq!(shown(0.0031, 200.0), "0.003 ±0.000");
        assert_eq!(shown(0.25, 200.0), "0.25 ±0.00");
        assert_eq!(shown(0.0, 200.0), "0.00 ±0.00");
        assert_eq!(shown(0.0031, 54.0), "54 waits in 2 runs");
    }

    #[test]
    fn tables_without_rows_show_headings() {
        let table =
            Table { title: "t".into(), columns: vec![Column::ours("a", "")], rows: Vec::new() };
        assert_eq!(table.to_string(), "t\n  a\n  -\n");
    }
}
