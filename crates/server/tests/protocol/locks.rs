//! `clearway.locks`: waits for locks and their blockers.

use crate::raw::{Fixture, LIMIT, Raw, query};
use std::time::Instant;

/// The rows of a query, each as one text value.
fn rows(asker: &mut Raw, columns: &str, rest: &str) -> Vec<String> {
    asker.column(&rows_of(columns, rest))
}

fn rows_of(columns: &str, rest: &str) -> String {
    format!("select concat({columns}) from clearway.locks {rest}")
}

/// Repeats the query until it returns these rows.
#[track_caller]
fn becomes(asker: &mut Raw, columns: &str, rest: &str, wanted: &[&str]) {
    asker.repeat_until(&rows_of(columns, rest), wanted);
}

#[test]
fn chain_of_waits_is_shown_with_its_holder() {
    let server = Fixture::new("locks");
    let mut c: Vec<Raw> = (0..5).map(|_| server.connect()).collect();
    let pids: Vec<i32> = c.iter().map(|c| c.pid).collect();
    let mut asker = server.connect();
    asker.query("create table t (a int, b text, n int, primary key (a, b))");
    asker.query("insert into t values (1, 'one', 0), (2, 'two', 0)");
    assert_eq!(asker.column("select count(*) from clearway.locks"), ["0"]);
    // 1 waits for 0; 2 and 3 wait for 1's other row; 4 wants the table.
    c[0].query("begin; update t set n = 1 where a = 1 and b = 'one'");
    c[1].query("begin; update t set n = 1 where a = 2 and b = 'two'");
    c[1].send(&query("update t set n = 2 where a = 1 and b = 'one'"));
    becomes(&mut asker, "waiter", "", &[&pids[1].to_string()]);
    for waiter in &mut c[2..4] {
        waiter.send(&query("select n from t where a = 2 and b = 'two' for update"));
    }
    let row = |waiter: usize, on: usize, rest: &str| {
        format!("{}>{}>{} {rest}", pids[waiter], pids[on], pids[0])
    };
    let (first, second) = (row(1, 0, "t|(1, one)|no key update"), row(2, 1, "t|(2, two)|update"));
    let third = row(3, 1, "t|(2, two)|update");
    let chain =
        "waiter, '>', blocked_by, '>', holder, ' ', table_name, '|', key, '|', mode, index_name";
    becomes(&mut asker, chain, "order by waiter", &[&first, &second, &third]);
    // The waiter's statement, and the last statement of its blocker.
    let texts = rows(
        &mut asker,
        "since <= now(), '|', statement, '|', blocker_statement",
        "order by waiter limit 1",
    );
    let own = "update t set n = 2 where a = 1 and b = 'one'";
    assert_eq!(texts, [format!("t|{own}|begin; update t set n = 1 where a = 1 and b = 'one'")]);
    c[4].send(&query("truncate t"));
    let table = format!("where waiter = {}", pids[4]);
    let began = Instant::now();
    // TRUNCATE asks for the table at all partitions, and waits where one of the others holds it.
    loop {
        let found = rows(&mut asker, "table_name, key, mode, blocked_by", &table);
        let names =
            |row: &String| pids[..4].iter().any(|pid| *row == format!("taccess exclusive{pid}"));
        if !found.is_empty() && found.iter().all(names) {
            break;
        }
        assert!(began.elapsed() < LIMIT, "{found:?}");
    }
    assert_eq!(asker.column(&format!("select pg_cancel_backend({})", pids[4])), ["t"]);
    assert_eq!(c[4].until_ready()[0].code(), "57014");
    c[0].query("commit");
    c[1].until_ready();
    let (second, third) = (
        second.replace(&format!(">{} ", pids[0]), &format!(">{} ", pids[1])),
        third.replace(&format!(">{} ", pids[0]), &format!(">{} ", pids[1])),
    );
    becomes(&mut asker, chain, "order by waiter", &[&second, &third]);
    c[1].query("commit");
    c[2].until_ready();
    c[3].until_ready();
    becomes(&mut asker, chain, "", &[]);
}

#[test]
fn keys_ranges_and_tables_are_described() {
    let server = Fixture::with("lock-words", |config| config.partitions = Some(1));
    let (mut holder, mut waiter, mut asker) =
        (server.connect(), server.connect(), server.connect());
    asker.query("create table t (a int primary key, k int)");
    asker.query("create index t_k on t (k)");
    asker.query("insert into t values (1, 10), (5, 50)");
    holder.query("set default_transaction_isolation = serializable");
    let cases = [
        (
            "insert into t values (7, 70)",
            "select k from t where a > 2 and a < 9 for share",
            "t||(3) .. (9)|share",
        ),
        ("select k from t where a > 2 and a < 9", "insert into t values (8, 80)", "t||(8)|update"),
        (
            "update t set k = 11 where a = 1",
            "select a from t where k = 11 for share",
            "t|t_k|(11) .. (12)|share",
        ),
        ("select count(*) from t", "insert into t values (9, 90)", "t|||intent exclusive"),
    ];
    for (holds, waits, wanted) in cases {
        holder.query(&format!("begin; {holds}"));
        waiter.send(&query(waits));
        becomes(&mut asker, "table_name, '|', index_name, '|', key, '|', mode", "", &[wanted]);
        holder.query("rollback");
        waiter.until_ready();
        waiter.query("delete from t where a > 5");
    }
}
