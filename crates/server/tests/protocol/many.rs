//! Many connections at once.

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
