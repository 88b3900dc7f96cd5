//! `clearway.hot_rows`: rows that several transactions hold or want, and how they are locked.

use crate::raw::{Fixture, Raw, query};
use clearway_server::config::HotRows;

const ROWS: &str = "select concat(table_name, '|', index_name, '|', key, '|', locked, '|', holders, '|', waiters, \
                    '|', behind, '|', learned) from clearway.hot_rows";

/// The sizes of the cascades, each with its number.
const CASCADES: &str = "select concat(undone, ' ', count) from clearway.cascades order by 1";

/// Repeats the query until it returns these rows.
#[track_caller]
fn becomes(asker: &mut Raw, wanted: &[&str]) {
    asker.repeat_until(ROWS, wanted);
}

fn set_up(server: &Fixture) -> Raw {
    let mut asker = server.connect();
    asker.query("create table t (a int primary key, k int unique, n int)");
    asker.query("insert into t select i, 10 * i, 0 from generate_series(1, 9) i");
    asker
}

#[test]
fn hot_rows_show_holders_and_waiters() {
    let server = Fixture::new("hot-rows");
    let mut asker = set_up(&server);
    let mut c: Vec<Raw> = (0..6).map(|_| server.connect()).collect();
    // Afterwards additions share their rows.
    for _ in 0..6 * 16 {
        asker.query("begin");
        asker.query("update t set n = n + 1 where a = 1");
        asker.query("commit");
    }
    becomes(&mut asker, &[]);
    c[0].query("begin; update t set n = n + 1 where a = 1");
    becomes(&mut asker, &[]);
    c[1].query("begin; update t set n = n + 1 where a = 1");
    becomes(&mut asker, &["t||(1)|increment|2|0|0|f"]);
    for waiter in &mut c[2..4] {
        waiter.send(&query("begin; select n from t where a = 1 for update"));
    }
    becomes(&mut asker, &["t||(1)|increment|2|2|0|f"]);
    c[4].query("begin; insert into t values (10, 100, 0); update t set n = 5 where a = 2");
    becomes(&mut asker, &["t||(1)|increment|2|2|0|f"]);
    c[5].send(&query("insert into t values (11, 100, 0)"));
    becomes(&mut asker, &["t||(1)|increment|2|2|0|f", "t|t_k_key|(100)|update|1|1|0|f"]);
    c[4].query("rollback");
    c[5].until_ready();
    c[0].query("commit");
    c[1].query("commit");
    becomes(&mut asker, &["t||(1)|update|1|1|0|f"]);
    // The two sessions may run on different workers: either may hold the row.
    for waiter in &mut c[2..4] {
        waiter.send(&query("commit"));
    }
    for waiter in &mut c[2..4] {
        waiter.until_ready();
        waiter.until_ready();
    }
    becomes(&mut asker, &[]);
}

#[test]
fn learned_exclusive_addition_is_shown() {
    let server = Fixture::new("hot-rows-learned");
    let mut asker = set_up(&server);
    let (mut first, mut second) = (server.connect(), server.connect());
    let add = "update t set n = n + 1 where a = 5";
    for _ in 0..48 {
        first.query("begin");
        first.query(add);
        first.query("select n from t where a = 5 for update");
        first.query("commit");
    }
    first.query(&format!("begin; {add}"));
    second.send(&query(add));
    becomes(&mut asker, &["t||(5)|no key update|1|1|0|t"]);
    first.query("rollback");
    second.until_ready();
    // `learned` describes the lock, not the row.
    first.query("begin; update t set n = 55 where a = 5");
    second.send(&query(add));
    becomes(&mut asker, &["t||(5)|no key update|1|1|0|f"]);
    first.query("commit");
    second.until_ready();
    assert_eq!(asker.column("select n from t where a = 5"), ["56"]);
}

/// Returns a server with early retirement.
fn retiring(name: &str) -> Fixture {
    let retire = HotRows { increments: true, whole: false, retire: true };
    Fixture::with(name, |config| config.hot_rows = retire)
}

/// Returns three transactions that set `n` of row 3 to 1, 2 and 3, each behind the previous one.
fn chain(server: &Fixture, asker: &mut Raw) -> [Raw; 3] {
    let mut c = [0; 3].map(|_| server.connect());
    let set = |n: usize| format!("update t set n = {n} where a = 3");
    let mut first = server.connect();
    first.query(&format!("begin; {}", set(0)));
    c[0].query("begin");
    c[0].send(&query(&set(1)));
    becomes(asker, &["t||(3)|no key update|1|1|0|f"]);
    first.query("commit");
    c[0].until_ready();
    // A transaction has waited for the row: from now on its lock is retired early.
    becomes(asker, &["t||(3)|retired|1|0|0|f"]);
    for (n, next) in (2..).zip(&mut c[1..]) {
        next.query("begin");
        next.query(&set(n));
    }
    becomes(asker, &["t||(3)|retired|3|0|2|f"]);
    c
}

#[test]
fn retired_row_shows_dependent_holders() {
    let server = retiring("hot-rows-retired");
    let mut asker = set_up(&server);
    let [mut first, mut second, mut third] = chain(&server, &mut asker);
    // It waits for the transactions ahead of it, not for the row.
    third.send(&query("commit"));
    first.query("commit");
    becomes(&mut asker, &["t||(3)|retired|2|0|1|f"]);
    second.query("commit");
    third.until_ready();
    becomes(&mut asker, &[]);
    assert_eq!(asker.column("select n from t where a = 3"), ["3"]);
    assert_eq!(asker.column(CASCADES), [""; 0], "no transaction was undone");
}

#[test]
fn transactions_undone_with_one_ahead_are_a_cascade() {
    let server = retiring("hot-rows-cascade");
    let mut asker = set_up(&server);
    let [mut first, mut second, mut third] = chain(&server, &mut asker);
    first.query("rollback");
    asker.repeat_until(CASCADES, &["2 1"]);
    // Their blocks run again.
    assert_eq!(second.column("commit"), [""; 0]);
    assert_eq!(third.column("commit"), [""; 0]);
    assert_eq!(asker.column("select n from t where a = 3"), ["3"]);
    assert_eq!(asker.column(CASCADES), ["2 1"]);
}
