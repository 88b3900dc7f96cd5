//! Reads `clearway.contention` from a server: the waits for latches and locks.

use clearway_harness::client::PgClient;
use clearway_harness::{Endpoint, Res};
use std::time::Duration;

/// Maximum time for the server to answer.
const LIMIT: Duration = Duration::from_secs(60);
const QUERY: &str = "SELECT name, requests, contended, total_wait_us FROM clearway.contention";

/// A class of latches or locks, and one of its call sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The class.
    pub name: String,
    /// Requests for the class, over all call sites.
    pub requests: f64,
    /// Requests from this call site that waited.
    pub contended: f64,
    /// Total wait of these requests, in microseconds.
    pub wait_us: f64,
}

/// Resets the server's counters.
pub fn reset(endpoint: &Endpoint) -> Res<()> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    client.query("SELECT clearway.reset_contention()").map(|_| ()).map_err(String::from)
}

/// Returns the counters since the last reset.
pub fn read(endpoint: &Endpoint) -> Res<Vec<Row>> {
    let answer = PgClient::connect(endpoint, LIMIT)?.query(QUERY).map_err(String::from)?;
    answer.rows.iter().map(|row| Row::parse(row)).collect()
}

impl Row {
    fn parse(row: &[Option<String>]) -> Res<Self> {
        let [Some(name), numbers @ ..] = row else {
            return Err(format!("{QUERY}: a row of {row:?}"));
        };
        let number = |at: usize| {
            let text = numbers.get(at).and_then(Option::as_deref).unwrap_or("0");
            text.parse::<f64>().map_err(|_| format!("{QUERY}: `{text}` is not a number"))
        };
        Ok(Self {
            name: name.clone(),
            requests: number(0)?,
            contended: number(1)?,
            wait_us: number(2)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_rows_are_parsed() {
        let row = ["lock.key", "10", "5", "900"].map(|text| Some(text.to_owned()));
        let want = Row { name: "lock.key".into(), requests: 10.0, contended: 5.0, wait_us: 900.0 };
        assert_eq!(Row::parse(&row), Ok(want));
        assert!(Row::parse(&[None]).is_err());
        assert!(Row::parse(&[Some("x".into()), Some("y".into())]).is_err());
    }
}
