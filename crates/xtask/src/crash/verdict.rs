//! Compares the state after a crash with what the clients know.

use super::load::Outcome;
use clearway_harness::client::{PgClient, Rows};
use clearway_harness::{Endpoint, Res};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Longest time for a statement of the checks.
const LIMIT: Duration = Duration::from_secs(120);

/// Checks the promises (numbers: see the parent module) and resolves unanswered transactions: from
/// now on they must stay as found. Returns the number of transactions.
pub fn check(endpoint: &Endpoint, seen: &mut Outcome) -> Res<usize> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    let mut rows = |sql: &str| client.query(sql).map(|a| a.rows).map_err(|e| format!("{sql}: {e}"));
    tags(&rows("select filler from pgbench_history")?, seen)?;
    for (table, id, balance) in [
        ("accounts", "aid", "abalance"),
        ("tellers", "tid", "tbalance"),
        ("branches", "bid", "bbalance"),
    ] {
        let kept =
            rows(&format!("select {id}, {balance} from pgbench_{table} where {balance} <> 0"))?;
        let told = rows(&format!("select {id}, sum(delta) from pgbench_history group by {id}"))?;
        same_balances(table, &numbers(&kept)?, &numbers(&told)?)?;
    }
    counters(&numbers(&rows("select id, n from crash_counter")?)?, seen)?;
    Ok(seen.committed.len())
}

/// Checks promises 1 and 2.
fn tags(rows: &Rows, seen: &mut Outcome) -> Res<()> {
    let mut there = HashSet::new();
    for row in rows {
        let tag = row.first().and_then(Option::as_deref).unwrap_or_default().trim_end();
        if !there.insert(tag) {
            return Err(format!("transaction {tag} is there twice"));
        }
        if !seen.committed.contains(tag) && !seen.in_doubt.contains(tag) {
            return Err(format!("transaction {tag} is there, but was rolled back or never was"));
        }
    }
    let lost: Vec<&String> =
        seen.committed.iter().filter(|tag| !there.contains(tag.as_str())).collect();
    if let Some(example) = lost.first() {
        return Err(format!(
            "{} acknowledged transactions are lost, {example} for example",
            lost.len()
        ));
    }
    let settled =
        std::mem::take(&mut seen.in_doubt).into_iter().filter(|tag| there.contains(tag.as_str()));
    seen.committed.extend(settled);
    Ok(())
}

/// Checks promise 3.
fn same_balances(table: &str, kept: &BTreeMap<i64, i64>, told: &BTreeMap<i64, i64>) -> Res<()> {
    for id in kept.keys().chain(told.keys()) {
        let (kept, told) = (kept.get(id).unwrap_or(&0), told.get(id).unwrap_or(&0));
        if kept != told {
            return Err(format!(
                "pgbench_{table} {id}: balance {kept}, but its history sums to {told}"
            ));
        }
    }
    Ok(())
}

/// Checks promise 4.
fn counters(found: &BTreeMap<i64, i64>, seen: &mut Outcome) -> Res<()> {
    for (id, n) in found {
        let id = u32::try_from(*id).map_err(|e| e.to_string())?;
        let counted = seen.counted.entry(id).or_default();
        let most = *counted + i64::from(seen.counting.remove(&id));
        if !(*counted..=most).contains(n) {
            return Err(format!(
                "counter {id} is {n}; acknowledged were {counted}, at most {most} possible"
            ));
        }
        *counted = *n;
    }
    if found.len() == super::load::COUNTERS as usize {
        Ok(())
    } else {
        Err(format!("counters left: {found:?}"))
    }
}

fn numbers(rows: &Rows) -> Res<BTreeMap<i64, i64>> {
    let number = |value: &Option<String>| {
        let text = value.as_deref().unwrap_or("0");
        text.parse::<i64>().map_err(|_| format!("`{text}` is not a number"))
    };
    rows.iter()
        .map(|row| match row.as_slice() {
            [id, value] => Ok((number(id)?, number(value)?)),
            _ => Err(format!("a row of {} columns", row.len())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let set = |tags: &[&str]| tags.iter().map(|t| (*t).to_owned()).collect();
        Outcome { committed: set(&["a", "b"]), in_doubt: set(&["c", "d"]), ..Outcome::default() }
    }

    fn rows(tags: &[&str]) -> Rows {
        tags.iter().map(|t| vec![Some(format!("{t}   "))]).collect()
    }

    #[test]
    fn unanswered_transactions_are_resolved_by_the_state() {
        let mut seen = outcome();
        tags(&rows(&["a", "b", "c"]), &mut seen).unwrap();
        assert!(seen.committed.contains("c") && seen.in_doubt.is_empty());
        assert!(tags(&rows(&["a", "b"]), &mut seen).unwrap_err().contains("lost"));
        assert!(tags(&rows(&["a", "b", "c", "d"]), &mut seen).unwrap_err().contains("never was"));
    }

    #[test]
    fn lost_doubled_and_invented_transactions_are_found() {
        assert!(tags(&rows(&["a"]), &mut outcome()).unwrap_err().contains("lost"));
        assert!(tags(&rows(&["a", "b", "b"]), &mut outcome()).unwrap_err().contains("twice"));
        assert!(tags(&rows(&["a", "b", "x"]), &mut outcome()).unwrap_err().contains("never was"));
    }

    #[test]
    fn half_a_transaction_is_found() {
        let kept = BTreeMap::from([(1, 5), (2, -3)]);
        same_balances("accounts", &kept, &kept.clone()).unwrap();
        assert!(same_balances("accounts", &kept, &BTreeMap::from([(1, 5)])).is_err());
        assert!(same_balances("accounts", &BTreeMap::from([(1, 5)]), &kept).is_err());
    }

    #[test]
    fn a_counter_may_be_ahead_by_its_unanswered_statement() {
        let at = |n: i64| BTreeMap::from([(0, n), (1, 0), (2, 0), (3, 0)]);
        let seen = || Outcome {
            counted: [(0, 10)].into(),
            counting: HashSet::from([0]),
            ..Outcome::default()
        };
        counters(&at(10), &mut seen()).unwrap();
        counters(&at(11), &mut seen()).unwrap();
        assert!(counters(&at(12), &mut seen()).is_err());
        assert!(counters(&at(9), &mut seen()).is_err());
        assert!(counters(&BTreeMap::from([(0, 10)]), &mut seen()).is_err());
    }
}
