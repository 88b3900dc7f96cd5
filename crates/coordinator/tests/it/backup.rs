//! BACKUP during transfers between accounts.

use crate::common::{Bank, Worker, open, plan, transfers};
use clearway_coordinator::{Engine, Step, copy_of};
use clearway_env::{Disk, File, Open};
use clearway_ir::Statement;
use clearway_ir::statement::Backup;
use clearway_testkit::MemDisk;
use clearway_types::{SqlError, SqlState};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ACCOUNTS: i32 = 20;
const BALANCE: i32 = 1000;

fn backup(target: &str, bytes_a_second: Option<u64>) -> Statement {
    Statement::Backup(Backup { target: target.to_owned(), bytes_a_second })
}

fn read(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Opens an engine on a backup's contents, on a disk of its own.
fn restored(disk: &MemDisk, target: &Path) -> Arc<Engine> {
    let fresh = MemDisk::new();
    fresh.create_dir_all(&target.join("data")).unwrap();
    for dir in [target.to_owned(), target.join("data")] {
        for name in disk.list(&dir).unwrap() {
            let path = dir.join(name);
            if let Ok(file) = disk.open(&path, Open::Existing) {
                fresh.open(&path, Open::Create).unwrap().write_all_at(&read(&*file), 0).unwrap();
            }
        }
    }
    let mut continue_always = |_| ControlFlow::Continue(());
    copy_of::restore(Arc::new(fresh.clone()), target, Path::new("/data"), &mut continue_always)
        .unwrap();
    open(&fresh, 4, 1)
}

#[test]
fn backup_has_whole_transactions_only() {
    let disk = MemDisk::new();
    let engine = open(&disk, 4, 4);
    let bank = Arc::new({
        let mut worker = Worker::new(&engine, 0);
        let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
        worker.close();
        bank
    });
    let stop = AtomicBool::new(false);
    // An extra account whose balance counts the payments to it.
    let apart = ACCOUNTS + 1;
    let targets = std::thread::scope(|scope| {
        let backups = scope.spawn(|| {
            let mut worker = Worker::new(&engine, 3);
            bank.insert(&mut worker, apart, 0).unwrap();
            let mut targets = Vec::new();
            // Relaxed: pairs with no other access; only signals when to end.
            while !stop.load(Ordering::Relaxed) || targets.len() < 2 {
                bank.add(&mut worker, apart, 1).unwrap();
                let target = format!("/backup-{}", targets.len());
                let rows = worker.plain(backup(&target, None)).unwrap().rows;
                assert_eq!(rows.len(), 1);
                targets.push(PathBuf::from(target));
            }
            worker.close();
            targets
        });
        let movers: Vec<_> = (0..3)
            .map(|id| {
                let (engine, bank) = (&engine, &bank);
                scope.spawn(move || transfers(engine, bank, id, 4, 150))
            })
            .collect();
        let committed: u64 = movers.into_iter().map(|mover| mover.join().unwrap()).sum();
        assert!(committed > 0);
        stop.store(true, Ordering::Relaxed);
        backups.join().unwrap()
    });
    for (times, target) in (1..).zip(&targets) {
        let copy = restored(&disk, target);
        let mut worker = Worker::new(&copy, 0);
        let bank = Bank::find(&copy);
        assert_eq!(
            bank.balance(&mut worker, apart),
            Some(times),
            "the backup has everything acknowledged before it"
        );
        assert_eq!(
            bank.total(&mut worker),
            i64::from(ACCOUNTS * BALANCE + times),
            "{}",
            target.display()
        );
        worker.close();
        copy.shutdown().unwrap();
    }
    engine.shutdown().unwrap();
}

/// Resumes the statement until it ends.
fn finish(worker: &mut Worker, mut step: Step) -> SqlError {
    let mut events = Vec::new();
    loop {
        match step {
            Step::Done(result) => return result.unwrap_err().error,
            Step::Rows(_) | Step::Replan => panic!("a BACKUP needs no catalog"),
            Step::Pending => {
                worker.port.poll(&mut events);
                std::thread::yield_now();
                step = worker.resume();
            }
        }
    }
}

#[test]
fn backup_can_be_cancelled_and_runs_alone() {
    let disk = MemDisk::new();
    let engine = open(&disk, 4, 2);
    let mut first = Worker::new(&engine, 0);
    Bank::create(&mut first, ACCOUNTS, BALANCE);
    let slow = plan(backup("/slow", Some(1)));
    let step = first.start(&slow);
    assert!(matches!(step, Step::Pending));
    while !disk.exists(Path::new("/slow")).unwrap() {
        std::thread::yield_now();
    }
    let mut second = Worker::new(&engine, 1);
    let refused = second.plain(backup("/second", None)).unwrap_err();
    assert_eq!(refused.state(), SqlState::OBJECT_IN_USE, "{refused}");
    first.cancel(&SqlError::new(
        SqlState::QUERY_CANCELED,
        "canceling statement due to user request",
    ));
    let cancelled = finish(&mut first, step);
    assert_eq!(cancelled.message(), "canceling statement due to user request");
    first.plain(backup("/third", None)).unwrap();
    // Closing a client ends its backup, too.
    let step = first.start(&plan(backup("/fourth", Some(1))));
    assert!(matches!(step, Step::Pending));
    first.close();
    let mut port = engine.port(0);
    while second.plain(backup("/fifth", None)).is_err_and(|e| e.state() == SqlState::OBJECT_IN_USE)
    {
        port.poll(&mut Vec::new());
    }
    engine.shutdown().unwrap();
}

#[test]
fn backup_needs_an_absolute_path_and_no_transaction_block() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    assert_eq!(
        worker.plain(backup("here", None)).unwrap_err().state(),
        SqlState::INVALID_PARAMETER
    );
    worker.begin();
    assert_eq!(
        worker.plain(backup("/there", None)).unwrap_err().state(),
        SqlState::ACTIVE_TRANSACTION
    );
    worker.rollback();
    engine.shutdown().unwrap();
}

/// The session asks for notices while the statement waits. The outcome has the others: a later
/// statement must not report them.
#[test]
fn backup_outcome_has_the_last_notices() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let fast = worker.plain(backup("/fast", None)).unwrap();
    let bytes = fast.rows.get(0).get(0).unwrap().to_owned().as_i64().unwrap() as u64;
    // It takes longer than the interval between notices.
    let slow = worker.plain(backup("/slow", Some(bytes * 2 / 3))).unwrap();
    assert!(slow.notices.iter().any(|(_, text)| text.contains("bytes copied")), "{slow:?}");
    assert_eq!(worker.client().take_notices(), []);
    worker.close();
    engine.shutdown().unwrap();
}
