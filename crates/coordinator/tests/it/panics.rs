//! A panic of an engine thread fails the engine with the reason, and threads that wait for it get
//! an answer.

use crate::common::{Bank, Worker, open};
use clearway_ir::Statement;
use clearway_ir::statement::{Backup, Maintain};
use clearway_testkit::{MemDisk, OpKind};
use std::sync::Arc;

/// Panics at each write to a file whose path contains this.
fn plant(disk: &MemDisk, at: &'static str) {
    disk.set_hook(Some(Arc::new(move |operation| {
        let hit = operation.kind == OpKind::Write && operation.path.to_string_lossy().contains(at);
        assert!(!hit, "planted at {at}");
    })));
}

fn checkpoint() -> Statement {
    Statement::Maintain { kind: Maintain::Checkpoint, skipped: Vec::new() }
}

/// Neither the panicking checkpoint nor a later one truncates the log; a start recovers from it.
#[test]
fn panic_in_a_checkpoint_fails_the_engine() {
    for at in ["/control", "/data/p0"] {
        let disk = MemDisk::new();
        let engine = open(&disk, 2, 1);
        let mut worker = Worker::new(&engine, 0);
        // Completes the checkpoint that follows the start. No other one writes the bank's pages
        // before the planted panic.
        worker.plain(checkpoint()).unwrap();
        let bank = Bank::create(&mut worker, 20, 100);
        plant(&disk, at);
        for _ in 0..2 {
            let refused = worker.plain(checkpoint()).unwrap_err();
            assert!(refused.to_string().contains(&format!("planted at {at}")), "{refused}");
        }
        assert!(engine.failed().is_some_and(|why| why.contains(&format!("planted at {at}"))));
        disk.set_hook(None);
        assert!(engine.shutdown().is_err(), "there is no last checkpoint");
        worker.close();
        drop(engine);
        let engine = open(&disk.crash(1), 2, 1);
        let mut worker = Worker::new(&engine, 0);
        assert_eq!(bank.total(&mut worker), 20 * 100);
        worker.close();
        engine.shutdown().unwrap();
    }
}

#[test]
fn panic_in_a_backup_fails_the_engine() {
    let disk = MemDisk::new();
    let engine = open(&disk, 2, 1);
    let mut worker = Worker::new(&engine, 0);
    plant(&disk, "/copy/");
    let backup = Statement::Backup(Backup { target: "/copy".to_owned(), bytes_a_second: None });
    let refused = worker.plain(backup).unwrap_err();
    assert!(refused.to_string().contains("planted at /copy/"), "{refused}");
    assert!(
        engine
            .failed()
            .is_some_and(|why| why.contains("thread backup panicked: planted at /copy/"))
    );
    disk.set_hook(None);
    worker.close();
    assert!(engine.shutdown().is_err());
}
