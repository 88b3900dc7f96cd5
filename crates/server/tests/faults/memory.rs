//! A statement that wants more memory than it may have: 53200, and everything else goes on.

use crate::check::connect;
use crate::place::{Place, binary};
use clearway_harness::server::{Kind, Server};
use std::path::Path;

fn start(data: &Path) -> Server {
    let args = ["--partitions", "4", "--workers", "1", "--buffer-pool", "32MiB", "--log-filter", "warn"];
    let args = args.into_iter().chain(["--query-memory", "1MiB"]).map(str::to_owned).collect();
    Kind::Clearway { binary: binary().to_owned(), args }.start(data).unwrap()
}

/// Rows, groups, sort keys and collected keys are charged wherever they are: at the partitions and where they are gathered.
#[test]
fn statements_over_their_memory_are_refused() {
    let place = Place::new("query-memory");
    let server = start(&place.data());
    let mut client = connect(&server);
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE INDEX t_v ON t (v)",
        // In chunks: what is inserted of a series is not kept.
        "INSERT INTO t SELECT i, 'a text that takes its place: ' || i FROM generate_series(1, 40000) i",
        "CREATE TABLE copy (id int PRIMARY KEY, v text)",
    ] {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for sql in [
        "SELECT * FROM t",
        "SELECT v, count(*) FROM t GROUP BY v",
        "SELECT count(DISTINCT v) FROM t",
        "SELECT max(id) FROM t GROUP BY id % 30000",
        "SELECT DISTINCT v FROM t",
        "SELECT id FROM t ORDER BY v",
        "SELECT i FROM generate_series(1, 100000) i ORDER BY -i",
        "SELECT DISTINCT i FROM generate_series(1, 100000) i",
        "SELECT i, count(*) FROM generate_series(1, 100000) i GROUP BY i",
        "SELECT count(DISTINCT i) FROM generate_series(1, 100000) i",
        "UPDATE t SET v = v || '!' RETURNING *",
        "UPDATE t SET v = v || '!' WHERE v > 'a'",
        "DELETE FROM t RETURNING v",
        "INSERT INTO copy SELECT * FROM t",
        "INSERT INTO copy SELECT i, 'a text' FROM generate_series(1, 100000) i RETURNING *",
        "COPY t TO STDOUT",
    ] {
        let refused = client.query(sql).expect_err(sql).to_string();
        assert!(refused.starts_with("53200: out of memory"), "{sql}: {refused}");
    }
    for (sql, expected) in [
        ("SELECT count(*) FROM t WHERE v LIKE '%: ' || id", 40000),
        ("SELECT count(*) FROM copy", 0),
        ("SELECT sum(id) FROM t WHERE id % 1000 = 0", 820_000),
        ("SELECT id FROM t ORDER BY id DESC LIMIT 1", 40000),
        ("SELECT count(*) FROM generate_series(1, 100000) i WHERE i % 2 = 0", 50000),
    ] {
        // A connection of its own: what was refused has left no lock.
        assert_eq!(connect(&server).number(sql).unwrap(), expected, "{sql}");
    }
    drop(client);
    server.stop().unwrap();
}
