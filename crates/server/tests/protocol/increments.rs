//! Blocks that add to a row and then read, below SERIALIZABLE: as if the row was locked
//! exclusively.

use crate::raw::{Fixture, Raw, query};

/// Blocks that add without reading, after which a plan's additions share their rows' locks.
const MANY: usize = 6 * 16;
const ADD: &str = "update t set n = n + 1 where a = 1";
/// The lock that the additions take.
const LEARNED: &str =
    "select read_lock from clearway.plans where plan like 'UPDATE t SET n = (n + ?)%'";

fn set_up(server: &Fixture) -> Raw {
    let mut c = server.connect();
    c.query("create table t (a int primary key, n int)");
    c.query("create table seat (a int primary key)");
    c.query("insert into t values (1, 0), (2, 0)");
    c
}

/// Runs blocks that add 1 to the row and do not read, until their plan shares the row.
fn learn(c: &mut Raw) {
    for _ in 0..MANY {
        c.query("begin");
        c.query(ADD);
        c.query("commit");
    }
}

/// The statement [`ADD`] with another amount.
fn add(n: i32) -> String {
    ADD.replace("n + 1", &format!("n + {n}"))
}

/// Like [`set_up`], with a plan that has been seen not to read.
fn shared(server: &Fixture) -> Raw {
    let mut c = set_up(server);
    learn(&mut c);
    assert_eq!(c.column(LEARNED), ["increment"]);
    c
}

/// Waits until this session waits for a lock.
#[track_caller]
fn waits(asker: &mut Raw, waiter: &Raw) {
    let sql = format!("select count(*) from clearway.locks where waiter = {}", waiter.pid);
    asker.repeat_until(&sql, &["1"]);
}

/// The answer to a query that was sent: its first column, or the error's SQLSTATE.
fn answer(c: &mut Raw) -> Vec<String> {
    let messages = c.until_ready();
    if let Some(error) = messages.iter().find(|m| m.tag == 'E') {
        return vec![error.code()];
    }
    let text = |m: &crate::raw::Message| {
        String::from_utf8(m.values()[0].clone().unwrap_or_default()).unwrap()
    };
    messages.iter().filter(|m| m.tag == 'D').map(text).collect()
}

#[test]
fn integers_of_each_width_are_shared_up_to_their_bounds() {
    for (ty, most) in [("int2", i16::MAX.into()), ("int4", i32::MAX.into()), ("int8", i64::MAX)] {
        let server = Fixture::new(&format!("increments-{ty}"));
        let mut asker = server.connect();
        asker.query(&format!("create table t (a int primary key, n {ty})"));
        asker.query(&format!("insert into t values (1, {})", most - MANY as i64 - 8));
        learn(&mut asker);
        // The sum has casts if the column is no int4.
        let learned = "select read_lock from clearway.plans where plan like 'UPDATE t SET n = %'";
        assert_eq!(asker.column(learned), ["increment"], "{ty}");
        let (mut one, mut two) = (server.connect(), server.connect());
        for c in [&mut one, &mut two] {
            c.query("begin");
            assert_eq!(c.query(&add(3))[0].text(), "UPDATE 1", "{ty}");
        }
        let mut three = server.connect();
        three.query("begin");
        three.send(&query(&add(3)));
        waits(&mut asker, &three);
        one.query("commit");
        two.query("commit");
        assert_eq!(answer(&mut three), ["22003"], "{ty}");
        assert_eq!(asker.column("select n from t where a = 1"), [(most - 2).to_string()], "{ty}");
    }
}

#[test]
fn first_additions_of_a_plan_wait_for_each_other() {
    let server = Fixture::new("increments-first");
    let mut asker = set_up(&server);
    let (mut one, mut two) = (server.connect(), server.connect());
    one.query("begin");
    one.query(ADD);
    two.query("begin");
    two.send(&query(ADD));
    waits(&mut asker, &two);
    assert_eq!(one.column("select n from t where a = 1"), ["1"]);
    one.query("commit");
    two.until_ready();
    assert_eq!(two.column("select n from t where a = 1"), ["2"]);
    two.query("commit");
}

#[test]
fn reads_after_additions_wait_for_others_that_add() {
    let server = Fixture::new("increments-reads");
    let mut asker = shared(&server);
    let many = MANY as i32;
    // The row by its key, a range with it, rows of another table, and what is inserted or changed.
    for (at, (read, found)) in [
        ("select n from t where a = 1", vec![(many + 2).to_string()]),
        ("select n from t where n > 0", vec![(many + 4).to_string()]),
        ("select count(*) from seat", vec!["0".to_owned()]),
        ("select a from seat where a = 7", vec![]),
        ("insert into seat select n from t where a = 1 returning a", vec![(many + 10).to_string()]),
        ("update t set n = n * 1 where n > 0 returning n", vec![(many + 12).to_string()]),
        ("declare c cursor for select n from t; fetch c", vec![(many + 14).to_string()]),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut one, mut two) = (server.connect(), server.connect());
        for c in [&mut one, &mut two] {
            c.query("begin");
            assert_eq!(c.query(ADD)[0].text(), "UPDATE 1", "{read}");
        }
        one.send(&query(read));
        waits(&mut asker, &one);
        two.query("commit");
        let read_now = answer(&mut one);
        assert!(found.iter().all(|row| read_now.contains(row)), "{read}: {read_now:?}");
        // From now on it has the row to itself.
        two.send(&query(ADD.replace('1', "0").replace("a = 0", "a = 1").as_str()));
        waits(&mut asker, &two);
        one.query("commit");
        two.until_ready();
        let sum = (many + 2 * (at as i32 + 1)).to_string();
        assert_eq!(asker.column("select n from t where a = 1"), [sum], "{read}");
        // Additions are shared again.
        for _ in 0..4 * MANY {
            asker.query("begin; update t set n = n + 1 where a = 2; commit");
        }
        asker.repeat_until(LEARNED, &["increment"]);
    }
}

#[test]
fn two_readers_after_additions_deadlock_and_are_learned() {
    let server = Fixture::new("increments-deadlock");
    let mut asker = shared(&server);
    let (mut one, mut two) = (server.connect(), server.connect());
    for c in [&mut one, &mut two] {
        c.query("begin");
        c.query(ADD);
    }
    let read = query("select n from t where a = 1");
    one.send(&read);
    waits(&mut asker, &one);
    two.send(&read);
    let mut found = [answer(&mut one), answer(&mut two)].concat();
    found.sort_unstable();
    assert_eq!(found, ["40P01".to_owned(), (MANY + 1).to_string()]);
    for c in [&mut one, &mut two] {
        c.query("rollback");
    }
    // Such blocks are learned.
    for _ in 0..32 {
        one.query("begin");
        one.query(ADD);
        one.query("select count(*) from seat");
        one.query("commit");
    }
    assert_eq!(asker.column(LEARNED), ["exclusive"]);
}

#[test]
fn second_additions_beyond_a_bound_deadlock_and_are_learned() {
    let server = Fixture::new("increments-bound");
    let mut asker = server.connect();
    asker.query(&format!("create table t (a int primary key, n int check (n <= {MANY} + 10))"));
    asker.query("insert into t values (1, 0)");
    learn(&mut asker);
    assert_eq!(asker.column(LEARNED), ["increment"]);
    let (mut one, mut two) = (server.connect(), server.connect());
    for c in [&mut one, &mut two] {
        c.query("begin");
        assert_eq!(c.query(&add(4))[0].text(), "UPDATE 1");
    }
    one.send(&query(&add(4)));
    waits(&mut asker, &one);
    two.send(&query(&add(4)));
    let found = [answer(&mut one), answer(&mut two)].concat();
    assert_eq!(found, ["40P01"]);
    for c in [&mut one, &mut two] {
        c.query("rollback");
    }
    // Such blocks are learned: what it has subtracted may come back, so the addition is refused at
    // first.
    for _ in 0..32 {
        one.query("begin");
        one.query(&add(-5));
        assert_eq!(one.query(&add(14))[0].text(), "UPDATE 1");
        one.query("rollback");
    }
    assert_eq!(asker.column(LEARNED), ["exclusive"]);
}

#[test]
fn additions_at_repeatable_read_are_exclusive() {
    let server = Fixture::new("increments-repeatable");
    let mut asker = shared(&server);
    let (mut one, mut two) = (server.connect(), server.connect());
    for level in ["read committed", "repeatable read"] {
        one.query(&format!("begin isolation level {level}"));
        one.query(ADD);
        two.query("begin isolation level repeatable read");
        two.send(&query(ADD));
        waits(&mut asker, &two);
        one.query("commit");
        two.until_ready();
        let sum = asker.column("select n + 1 from t where a = 1");
        assert_eq!(two.column("select n from t where a = 1"), sum);
        two.query("commit");
    }
    assert_eq!(asker.column("select n from t where a = 1"), [(MANY + 4).to_string()]);
}

/// A stock from which several clients take: they share its row as long as what they take is there,
/// however the others end.
#[test]
fn check_constraints_bound_shared_additions() {
    let server = Fixture::new("increments-check");
    let mut asker = server.connect();
    asker.query("create table t (a int primary key, n int check (n >= 0))");
    asker.query("insert into t values (1, 0)");
    learn(&mut asker);
    assert_eq!(asker.column(LEARNED), ["increment"]);
    let take = |n: usize| ADD.replace("n + 1", &format!("n - {n}"));
    for ends in ["commit", "rollback"] {
        asker.query(&format!("update t set n = {MANY} where a = 1"));
        let (mut one, mut two, mut three) = (server.connect(), server.connect(), server.connect());
        for (c, n) in [(&mut one, MANY - 10), (&mut two, 10)] {
            c.query("begin");
            assert_eq!(c.query(&ADD.replace("n + 1", &format!("n + -{n}")))[0].text(), "UPDATE 1");
        }
        three.query("begin");
        three.send(&query(&take(1)));
        waits(&mut asker, &three);
        one.query("commit");
        two.query(ends);
        let (found, left) = if ends == "commit" { (vec!["23514"], "0") } else { (vec![], "9") };
        assert_eq!(answer(&mut three), found);
        three.query("commit");
        assert_eq!(asker.column("select n from t where a = 1"), [left]);
    }
}
