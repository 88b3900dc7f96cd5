//! Counts the cascades of a run: the server undoes a transaction with all that are behind it.
//!
//! Only early retire makes them. The server counts them by size since its start
//! (`clearway.cascades`), so the counts before a run are subtracted from those after it.

use super::chains::LIMIT;
use clearway_harness::client::{Answer, PgClient};
use clearway_harness::{Endpoint, Res};
use std::collections::BTreeMap;

const QUERY: &str = "SELECT undone, sum(count) FROM clearway.cascades GROUP BY undone";

/// Cascades since the server's start: their number by size, in undone transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BySize(BTreeMap<u64, u64>);

/// The cascades of a run. Cascades at several partitions count separately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cascades {
    /// Their number.
    pub number: f64,
    /// The mean number of transactions that one has undone; NaN without cascades.
    pub mean: f64,
    /// The largest number of transactions that one has undone; NaN without cascades.
    pub largest: f64,
}

impl BySize {
    /// Reads the counts of a server.
    pub fn read(endpoint: &Endpoint) -> Res<Self> {
        Self::of(&PgClient::connect(endpoint, LIMIT)?.query(QUERY).map_err(String::from)?)
    }

    fn of(answer: &Answer) -> Res<Self> {
        let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        let counted = answer.rows.iter().map(|row| match row.as_slice() {
            [size, count] => number(size).zip(number(count)),
            _ => None,
        });
        let counted: Option<BTreeMap<u64, u64>> = counted.collect();
        counted.map(Self).ok_or_else(|| format!("{QUERY}: unexpected rows: {:?}", answer.rows))
    }
}

impl Cascades {
    /// The server does not report cascades.
    pub const UNKNOWN: Self = Self { number: f64::NAN, mean: f64::NAN, largest: f64::NAN };

    /// Returns the cascades of a run from the counts before and after it.
    pub fn between(before: &BySize, after: &BySize) -> Self {
        let new = |(size, count): (&u64, &u64)| {
            let known = before.0.get(size).copied().unwrap_or_default();
            (*size, count.saturating_sub(known))
        };
        let new = || after.0.iter().map(new).filter(|(_, count)| *count > 0);
        let number: u64 = new().map(|(_, count)| count).sum();
        let undone: u64 = new().map(|(size, count)| size * count).sum();
        let largest = new().map(|(size, _)| size).max();
        Self {
            number: number as f64,
            mean: undone as f64 / number as f64,
            largest: largest.map_or(f64::NAN, |largest| largest as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_size<const N: usize>(counts: [(u64, u64); N]) -> BySize {
        BySize(counts.into())
    }

    #[test]
    fn only_cascades_of_the_run_count() {
        let before = by_size([(1, 10), (7, 1)]);
        let after = by_size([(1, 12), (4, 1), (5, 1), (7, 1)]);
        let want = Cascades { number: 4.0, mean: 2.75, largest: 5.0 };
        assert_eq!(Cascades::between(&before, &after), want);
        let none = Cascades::between(&after, &after);
        assert!(none.number == 0.0 && none.mean.is_nan() && none.largest.is_nan(), "{none:?}");
    }

    #[test]
    fn rows_of_the_view_are_parsed() {
        let text = |text: &str| Some(text.to_owned());
        let answer = |rows: Vec<Vec<Option<String>>>| Answer { rows, ..Answer::default() };
        let rows = vec![vec![text("3"), text("20")], vec![text("128"), text("1")]];
        assert_eq!(BySize::of(&answer(rows)), Ok(by_size([(3, 20), (128, 1)])));
        assert_eq!(BySize::of(&answer(Vec::new())), Ok(BySize::default()));
        for row in [vec![text("3")], vec![text("3"), None], vec![text("x"), text("1")]] {
            assert!(BySize::of(&answer(vec![row])).is_err());
        }
    }
}
