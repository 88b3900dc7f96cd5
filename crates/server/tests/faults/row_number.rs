//! Row numbers: the number of a row whose deletion may still be undone is not given to another row.
//! Directories in which an early release did so can still be opened.
//!
//! `tests/fixtures/row-number-*.pack` (see `pack`) were left by a killed server of commit 52b700a.
//! A transaction had updated and deleted rows 4 and 5 of table `h`, the last ones. Others had
//! committed rows 6, 7 and 8, which got the numbers of 4 and 5. In `open` the transaction was still
//! running; in `failed` its ROLLBACK had been answered with XX001. Current releases cannot produce
//! these directories.

use crate::check::{check, connect};
use crate::pack;
use crate::place::{Place, binary, run};
use clearway_harness::client::PgClient;
use clearway_harness::server::{Kind, PrivateServer};
use std::path::Path;

fn start(data: &Path) -> PrivateServer {
    let args =
        ["--partitions", "1", "--workers", "1", "--buffer-pool", "8MiB", "--log-segment", "1MiB"];
    let more = ["--log-buffer", "1MiB", "--checkpoint-interval-s", "3600", "--log-filter", "warn"];
    let args = args.into_iter().chain(more).map(str::to_owned).collect();
    Kind::Clearway { binary: binary().to_owned(), args }.start(data).unwrap()
}

fn execute(client: &mut PgClient, statements: &[&str]) {
    for sql in statements {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Inserts rows 1 to 5, restarts, deletes rows 4 and 5 in a block that stays open, and inserts rows
/// 6 to 8 in other sessions.
fn delete_and_insert(data: &Path) -> (PrivateServer, PgClient) {
    let server = start(data);
    execute(
        &mut connect(&server),
        &[
            "CREATE TABLE h (u int UNIQUE, v text)",
            "CREATE INDEX h_v ON h (v)",
            "INSERT INTO h SELECT i, 'row ' || i FROM generate_series(1, 5) i",
        ],
    );
    server.stop().unwrap();
    let server = start(data);
    let mut deleting = connect(&server);
    execute(
        &mut deleting,
        &[
            "BEGIN",
            "UPDATE h SET v = 'changed' WHERE u = 5",
            "DELETE FROM h WHERE u = 5",
            "DELETE FROM h WHERE u = 4",
        ],
    );
    for row in ["(6, 'row 6')", "(7, 'row 7')", "(8, 'row 8')"] {
        execute(&mut connect(&server), &[&format!("INSERT INTO h VALUES {row}")]);
    }
    (server, deleting)
}

/// Finds all eight rows, by the table and by each index.
fn verify(server: &PrivateServer) {
    let mut client = connect(server);
    assert_eq!(client.number("SELECT count(*) FROM h WHERE v = 'row ' || u").unwrap(), 8);
    for row in 1..=8 {
        for by in [format!("u = {row}"), format!("v = 'row {row}'")] {
            assert_eq!(client.number(&format!("SELECT u FROM h WHERE {by}")).unwrap(), row, "{by}");
        }
    }
}

fn stop_and_check(server: PrivateServer, data: &Path) {
    server.stop().unwrap();
    let done = run(&mut check(data));
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
}

#[test]
fn uncommitted_delete_keeps_its_row_number() {
    let place = Place::new("row-number-rollback");
    let (server, mut deleting) = delete_and_insert(&place.data());
    execute(&mut deleting, &["ROLLBACK"]);
    verify(&server);
    stop_and_check(server, &place.data());
}

#[test]
fn recovery_restores_the_last_rows() {
    let place = Place::new("row-number-kill");
    let (server, _deleting) = delete_and_insert(&place.data());
    server.kill();
    let server = start(&place.data());
    verify(&server);
    stop_and_check(server, &place.data());
}

#[test]
fn directories_with_reused_row_numbers_open_again() {
    for name in ["open", "failed"] {
        let place = Place::new(&format!("row-number-{name}"));
        let fixture =
            format!("{}/tests/fixtures/row-number-{name}.pack", env!("CARGO_MANIFEST_DIR"));
        pack::unpack(&std::fs::read(fixture).unwrap(), &place.data());
        let server = start(&place.data());
        verify(&server);
        // New rows get higher numbers.
        execute(
            &mut connect(&server),
            &["INSERT INTO h VALUES (9, 'row 9')", "DELETE FROM h WHERE u = 9"],
        );
        verify(&server);
        stop_and_check(server, &place.data());
    }
}
