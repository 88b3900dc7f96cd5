//! The end of a transaction closes its portals before it runs.

use crate::raw::{Raw, bind, execute, flush, parse, sync};
use clearway_coordinator::{CheckOptions, check};
use clearway_env::{Disk, Open, OsClock};
use clearway_server::{Config, Server, World};
use clearway_testkit::MemDisk;
use std::path::Path;
use std::sync::Arc;

/// More than one part of a result.
const WIDE: &str = "select id, repeat('x', 1000) from t";

fn start(disk: &MemDisk) -> Server {
    let mut config = Config::new("/data");
    config.listen = "127.0.0.1:0".parse().unwrap();
    (config.partitions, config.workers, config.buffer_pool) = (Some(2), 1, 8 << 20);
    (config.log_segment, config.log_buffer) = (1 << 20, 1 << 20);
    Server::start_in(World { disk: Arc::new(disk.clone()), clock: Arc::new(OsClock) }, config)
        .unwrap()
}

/// Returns what `clearway check` finds in a copy of the directory.
fn findings(disk: &MemDisk) -> Vec<String> {
    let scratch = MemDisk::new().open("scratch".as_ref(), Open::Create).unwrap();
    let mut options = CheckOptions::new(scratch);
    options.frames = 256;
    let report =
        check(Arc::new(disk.copy()), Path::new("/data"), options, &mut ()).unwrap().storage;
    report.findings.iter().map(ToString::to_string).collect()
}

/// Suspends a portal on a table, drops the table in another session, and ends the transaction.
fn drops_the_table(begin: impl FnOnce(&mut Raw), end: impl FnOnce(&mut Raw)) {
    let disk = MemDisk::new();
    let server = start(&disk);
    let [mut reader, mut changer] = [(); 2].map(|()| Raw::connect(server.address()));
    changer.query("create table t (id int primary key)");
    changer.query("insert into t select * from generate_series(1, 4000)");
    begin(&mut reader);
    assert_eq!(changer.query("drop table t")[0].text(), "DROP TABLE");
    end(&mut reader);
    changer.query("checkpoint");
    assert_eq!(findings(&disk), Vec::<String>::new());
    server.stop().unwrap();
}

#[test]
fn commit_and_rollback_drop_trees_that_only_a_cursor_saw() {
    for end in ["commit", "rollback"] {
        let declare = |c: &mut Raw| {
            let answers = c.query(&format!("begin; declare c cursor for {WIDE}"));
            assert_eq!(answers[1].text(), "DECLARE CURSOR");
        };
        let finish = |c: &mut Raw| assert_eq!(c.query(end)[0].text(), end.to_uppercase());
        drops_the_table(declare, finish);
    }
}

#[test]
fn sync_drops_trees_that_only_a_portal_saw() {
    let suspend = |c: &mut Raw| {
        c.send_all(&[parse("", WIDE, &[]), bind("", "", &[], false), execute("", 10), flush()]);
        while c.next().tag != 's' {}
    };
    let finish = |c: &mut Raw| {
        c.send(&sync());
        assert_eq!(c.tags(), "ZI");
    };
    drops_the_table(suspend, finish);
}
