//! Directories left by earlier format versions are opened, recovered and checked.
//!
//! `tests/fixtures/v1.pack` (see `pack`) is what a killed server of version 1 left: two tables with
//! primary keys, one of which does not contain the distribution column; an index, a unique key, a
//! table without a key, long values, free pages; a checkpoint, and after it a log that needs
//! recovery, with an unfinished transaction. In `v2.pack` two transactions have added to the same
//! row, and one of them is not finished; `v3.pack` is the same with a CHECK constraint.
//!
//! A fixture is made by `CLEARWAY_MAKE_FIXTURE=1 cargo test -p clearway-server --test faults
//! upgrade`, only for a new version and under a new name: old fixtures stay.

use crate::check::{check, connect, kind};
use crate::pack;
use crate::place::{Place, run};
use std::path::{Path, PathBuf};

/// The format version that servers write now.
const VERSION: u32 = 3;

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}.pack"))
}

fn make(data: &Path) {
    let server = kind().start(data).unwrap();
    let mut client = connect(&server);
    for sql in [
        "CREATE TABLE account (id int PRIMARY KEY, owner text NOT NULL, balance int8 CHECK (balance > -1000), opened timestamptz, rate float8, open bool)",
        "CREATE INDEX account_owner ON account (owner)",
        "CREATE TABLE city (code text PRIMARY KEY, name varchar(40) UNIQUE, n int NOT NULL) DISTRIBUTED BY (n)",
        "CREATE TABLE event (at timestamp, what text)",
        "INSERT INTO account SELECT i, 'owner ' || i, i * 10, '2024-02-29 12:00:00+00', i / 4.0, i % 2 = 0 FROM generate_series(1, 240) i",
        "INSERT INTO city SELECT 'c' || i, 'city ' || i, i % 5 FROM generate_series(1, 60) i",
        "INSERT INTO event SELECT '2001-01-01 00:00:00', 'event ' || i FROM generate_series(1, 50) i",
        "INSERT INTO event VALUES (NULL, repeat('long ', 2000))",
        "DELETE FROM account WHERE id > 150",
        "CHECKPOINT",
        "UPDATE account SET balance = balance + 1 WHERE id <= 100",
        "UPDATE city SET name = 'town' WHERE code = 'c7'",
        "INSERT INTO event VALUES (NULL, repeat('longer ', 1500))",
        "DELETE FROM city WHERE n = 4",
    ] {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    // Transactions that use this plan have not read afterwards: from now on they share the row.
    for _ in 0..200 {
        let add = "UPDATE account SET balance = balance + 0 WHERE id = 121";
        client.query(&format!("BEGIN; {add}; COMMIT")).unwrap();
    }
    for sql in [
        "BEGIN",
        "INSERT INTO account SELECT i, 'nobody', 0, NULL, NULL, NULL FROM generate_series(1000, 1010) i",
        "UPDATE account SET balance = -1 WHERE id < 50",
        "UPDATE account SET balance = balance + 1000 WHERE id = 120",
    ] {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    // Adds to the same row as the open transaction.
    let mut other = connect(&server);
    for sql in ["BEGIN", "UPDATE account SET balance = balance + 7 WHERE id = 120", "COMMIT"] {
        other.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    // Makes the unfinished transaction's records durable.
    connect(&server).query("INSERT INTO event VALUES ('2002-02-02 00:00:00', 'last')").unwrap();
    server.kill();
}

fn verify(data: &Path, version: u32) {
    let server = kind().start(data).unwrap();
    let mut client = connect(&server);
    for (sql, expected) in [
        ("SELECT count(*) FROM account", 150),
        (
            "SELECT sum(balance) FROM account",
            150 * 151 / 2 * 10 + 100 + if version > 1 { 7 } else { 0 },
        ),
        (
            "SELECT count(*) FROM account WHERE opened = '2024-02-29 12:00:00+00' AND rate = id / 4.0 AND open = (id % 2 = 0)",
            150,
        ),
        ("SELECT id FROM account WHERE owner = 'owner 123'", 123),
        ("SELECT count(*) FROM city", 48),
        ("SELECT n FROM city WHERE code = 'c7'", 2),
        ("SELECT n FROM city WHERE name = 'town'", 2),
        ("SELECT count(*) FROM city WHERE name = 'city 7'", 0),
        ("SELECT count(*) FROM event", 53),
        ("SELECT count(*) FROM event WHERE what = repeat('long ', 2000)", 1),
        ("SELECT count(*) FROM event WHERE what = repeat('longer ', 1500)", 1),
    ] {
        assert_eq!(client.number(sql).unwrap(), expected, "{sql}");
    }
    let taken =
        client.query("INSERT INTO city VALUES ('c8', 'another', 1)").unwrap_err().to_string();
    assert!(taken.starts_with("23505"), "{taken}");
    let poor = client.query("INSERT INTO account VALUES (4000, 'poor', -1000, NULL, NULL, NULL)");
    match poor {
        Ok(_) => assert!(version < 3, "version {version} has the constraint"),
        Err(e) => assert!(version > 2 && e.to_string().starts_with("23514"), "{version}: {e}"),
    }
    client.query("INSERT INTO account VALUES (5000, 'new', 1, NULL, NULL, NULL)").unwrap();
    drop(client);
    server.stop().unwrap();
}

/// Recovery reads only what it needs. The tests named `the_format_stays` check what is written:
/// pages, control file, log, double-write file and backup manifest.
#[test]
fn directories_of_all_versions_are_recovered() {
    if std::env::var_os("CLEARWAY_MAKE_FIXTURE").is_some() {
        let place = Place::new("upgrade-make");
        make(&place.data());
        std::fs::create_dir_all(fixture(VERSION).parent().unwrap()).unwrap();
        std::fs::write(fixture(VERSION), pack::pack(&place.data())).unwrap();
    }
    for version in 1..=VERSION {
        let place = Place::new(&format!("upgrade-{version}"));
        pack::unpack(&std::fs::read(fixture(version)).unwrap(), &place.data());
        let done = run(&mut check(&place.data()));
        assert_eq!(done.status.code(), Some(0), "version {version}: {}", done.output);
        assert!(
            done.output.contains("not shut down cleanly"),
            "version {version}: {}",
            done.output
        );
        verify(&place.data(), version);
        // The format versions in the two slots.
        let control = std::fs::read(place.data().join("control")).unwrap();
        assert_eq!([control[8], control[4096 + 8]], [VERSION as u8; 2], "version {version}");
        let done = run(&mut check(&place.data()));
        assert_eq!(done.status.code(), Some(0), "version {version}: {}", done.output);
    }
}
