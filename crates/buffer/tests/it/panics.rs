//! A panic anywhere in the pool fails the pool with its message, and no page that the thread held
//! is written.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;

use crate::common::*;
use clearway_buffer::*;
use clearway_types::Lsn;

fn plant(f: &Fixture, method: &'static str) {
    *f.io.panics.lock().unwrap() = Some(method);
}

/// Runs an operation of the pool, whether it panics or not.
fn tried<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Asserts that the pool has failed with the planted panic's message, and writes nothing more.
fn assert_failed(f: &Fixture, message: &str) {
    let failed = f.pool.failed().map(ToString::to_string).unwrap_or_default();
    assert!(failed.contains(message), "failed: {failed:?}");
    let writes = f.io.writes.load(SeqCst);
    assert!(f.pool.flush_before(Lsn(u64::MAX)).is_err());
    assert_eq!(f.io.writes.load(SeqCst), writes);
}

/// Invariants 3 and 4 of `write_back`: the page stays dirty, so that no checkpoint releases the log
/// record of its change.
#[test]
fn panic_in_a_write_keeps_the_change_dirty() {
    for method in ["write", "sync"] {
        let f = pool(32);
        let rec_lsn = f.wal.append();
        put(&f, page(0, 1), 7);
        plant(&f, method);
        let flushed = tried(|| f.pool.flush_before(Lsn(u64::MAX)));
        assert!(!matches!(flushed, Some(Ok(()))));
        assert_eq!(f.pool.min_rec_lsn(), Some(rec_lsn), "{method}");
        assert_failed(&f, &format!("planted in {method}"));
        assert_eq!(get(&f, page(0, 1)), 7, "the page can be read");
    }
}

/// The same in the cooler's thread: waits for a frame fail.
#[test]
fn panic_in_a_write_of_the_cooler_fails_the_pool() {
    let f = pool(16);
    plant(&f, "write");
    let mut refused = None;
    for no in 0..64 {
        match f.pool.fetch_blocking(MissingPage::Page(page(0, no))) {
            Ok(_pin) => {
                if let Ok(mut page) = f.pool.write(page(0, no)) {
                    stamp(&mut page, &f.wal, 1);
                }
            }
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    assert!(refused.is_some_and(|error| error.contains("planted in write")));
    assert_failed(&f, "planted in write");
}

/// A page that was being changed is never visible again, and never written.
#[test]
fn page_of_a_panicking_writer_is_lost() {
    let f = pool(32);
    put(&f, page(0, 1), 7);
    put(&f, page(0, 2), 8);
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    put(&f, page(0, 2), 9);
    let changed = tried(|| {
        let mut page = f.pool.write(page(0, 1)).unwrap();
        page.mark_dirty_begin();
        f.wal.append();
        page[HEADER] = 99;
        panic!("planted in a change");
    });
    assert_eq!(changed, None::<()>);
    assert_failed(&f, "panicked while changing a page");
    assert!(f.pool.read(page(0, 1)).is_err() && f.pool.write(page(0, 1)).is_err());
    assert!(f.pool.create(page(0, 1), FileSpace::Usual).is_err());
    assert!(f.pool.read_optimistic(page(0, 1), |_| ()).is_err());
    let refused = f.pool.fetch_blocking(MissingPage::Page(page(0, 1)));
    assert!(refused.is_err_and(|error| error.to_string().contains("changing a page")));
    assert_eq!(get(&f, page(0, 2)), 9, "other pages are unchanged");
    let mut bytes = [0; PAGE_SIZE];
    files(&f.disk).read_run(page(0, 1), &mut bytes).unwrap();
    assert_eq!(check_content(&bytes), Ok(7), "the disk has the last complete version");
}

/// A thread that waits for the page when its holder panics continues.
#[test]
fn waits_for_a_lost_page_fail() {
    let f = pool(32);
    put(&f, page(0, 1), 7);
    let (held, holds) = mpsc::channel();
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _page = f.pool.write(page(0, 1)).unwrap();
            held.send(()).unwrap();
            panic!("planted with a page held");
        });
        holds.recv().unwrap();
        assert!(f.pool.read(page(0, 1)).is_err());
        assert!(holder.join().is_err());
    });
    assert_failed(&f, "panicked while changing a page");
}

/// Each waiter gets its page, whatever the other callbacks do, and no pin is left.
#[test]
fn panicking_callback_leaves_no_pins() {
    let f = pool(16);
    f.io.hold_reads.store(true, SeqCst);
    let (sender, answers) = mpsc::channel();
    f.pool.fetch(MissingPage::Page(page(0, 1)), Box::new(|_| panic!("planted in a callback")));
    for _ in 0..2 {
        let sender = sender.clone();
        f.pool.fetch(
            MissingPage::Page(page(0, 1)),
            Box::new(move |result| sender.send(result.map(drop)).unwrap()),
        );
    }
    drop(sender);
    f.io.hold_reads.store(false, SeqCst);
    assert_eq!(answers.iter().filter(Result::is_ok).count(), 2);
    assert_failed(&f, "planted in a callback");
    assert_eq!(f.pool.stats().pinned, 0);
}

/// A wait for a page fails if the I/O thread or the fetching thread panics.
#[test]
fn panic_during_a_fetch_fails_its_waiters() {
    for (method, missing) in [
        ("place", MissingPage::Page(page(0, 1))),
        ("accept", MissingPage::Page(page(0, 1))),
        ("make_space", MissingPage::Space { page: page(0, 1), space: FileSpace::Usual }),
    ] {
        let f = pool(16);
        plant(&f, method);
        let (sender, answer) = mpsc::channel();
        let fetched = || {
            f.pool.fetch(missing, Box::new(move |result| sender.send(result.map(drop)).unwrap()))
        };
        tried(fetched);
        let error = answer.recv().expect("an answer").expect_err("it panicked").to_string();
        assert!(error.contains(&format!("planted in {method}")), "{error}");
        assert_failed(&f, &format!("planted in {method}"));
    }
}
