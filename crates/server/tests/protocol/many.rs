//! Many connections, and many cursors, at once.

use crate::raw::{Fixture, Raw, bind, execute, parse, sync};

#[test]
fn thousand_idle_and_two_hundred_busy_connections_work() {
    let server = Fixture::new("many");
    let mut c = server.connect();
    c.query("create table t (a int primary key, b int)");
    c.query("insert into t select g, 0 from generate_series(1, 200) g");
    let idle: Vec<Raw> = (0..1000).map(|_| server.connect()).collect();
    let mut busy: Vec<Raw> = (0..200).map(|_| server.connect()).collect();
    for c in &mut busy {
        c.send_all(&[parse("u", "update t set b = b + 1 where a = $1", &[]), sync()]);
        assert_eq!(c.tags(), "1ZI");
    }
    for _ in 0..5 {
        for (i, c) in busy.iter_mut().enumerate() {
            // All update the same row, and each one its own.
            c.send_all(&[bind("", "u", &["1"], false), execute("", 0), sync()]);
            c.send_all(&[bind("", "u", &[&(i + 1).to_string()], false), execute("", 0), sync()]);
        }
        for c in &mut busy {
            assert_eq!([c.tags(), c.tags()], ["2CZI", "2CZI"]);
        }
    }
    assert_eq!(c.column("select sum(b) from t"), ["2000"]);
    assert_eq!(c.column("select b from t where a = 1"), ["1005"]);
    for mut c in idle {
        assert_eq!(c.column("select 1"), ["1"]);
    }
}

/// The rest of all of them is read without a stack that grows with their number. Each has returned
/// all of its rows, but nothing has told it that they are all.
#[test]
fn fifteen_thousand_suspended_cursors_are_read_before_a_change() {
    const CURSORS: usize = 15_000;
    let server = Fixture::with("many-cursors", |config| config.partitions = Some(1));
    let mut c = server.connect();
    c.query("create table t (a int primary key, b text)");
    // The first six rows fill a part.
    c.query("insert into t select i, repeat('x', 100000) from generate_series(1, 6) i");
    c.query("insert into t values (7, '')");
    c.query("begin; declare whole cursor for select a, b from t");
    for first in (0..CURSORS).step_by(500) {
        let one = |i| format!("declare c{i} cursor for select b from t; move 7 from c{i};");
        let messages = c.query(&(first..first + 500).map(one).collect::<String>());
        assert_eq!((messages.len(), messages[999].text()), (1001, "MOVE 7".to_owned()));
    }
    assert_eq!(c.query("delete from t where a = 7")[0].text(), "DELETE 1");
    assert_eq!(c.query("fetch all from c0")[1].text(), "FETCH 0");
    assert_eq!(c.query("fetch all from whole").iter().filter(|m| m.tag == 'D').count(), 7);
    c.query("rollback");
}
