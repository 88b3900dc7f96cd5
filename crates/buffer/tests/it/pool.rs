//! The pool's guarantees, one by one.

use crate::common::*;
use clearway_buffer::*;
use clearway_env::IoPool;
use clearway_replacement::{PolicyKind, ReplacementKind, WrapperKind};
use clearway_testkit::MemDisk;
use clearway_types::Lsn;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};

/// Starts a fetch whose result arrives through the channel.
fn start(pool: &Pool, missing: MissingPage) -> mpsc::Receiver<Result<Pin, PageError>> {
    let (sender, receiver) = mpsc::channel();
    pool.fetch(missing, Box::new(move |result| drop(sender.send(result))));
    receiver
}

#[test]
fn missing_page_is_reported_and_new_page_is_zero() {
    let f = pool(16);
    let id = page(2, 5);
    assert_eq!(f.pool.read(id).err(), Some(MissingPage::Page(id)));
    assert_eq!(f.pool.write(id).err(), Some(MissingPage::Page(id)));
    let _pin = f.pool.fetch_blocking(MissingPage::Page(id)).unwrap();
    let read = f.pool.read(id).unwrap();
    let also = f.pool.read(id).unwrap();
    assert!(read.iter().chain(also.iter()).all(|&b| b == 0));
    assert_eq!((read.id(), read.lsn()), (id, Lsn(0)));
    assert!(matches!(
        f.pool.fetch_blocking(MissingPage::Page(page(PARTITIONS, 0))),
        Err(PageError::NoFile(_))
    ));
}

/// An engine without a log ([`NoLog`]): every changed page can be written, and is read again.
#[test]
fn pool_without_a_log_writes_and_rereads_pages() {
    let disk = MemDisk::new();
    let io_pool = Arc::new(IoPool::new(1, "test-io").unwrap());
    let open = || {
        Pool::new(unhurried(16), Arc::new(files(&disk)), Arc::new(NoLog), io_pool.clone()).unwrap()
    };
    let pool = open();
    for no in 0..100 {
        let missing = MissingPage::Page(page(0, no));
        let _pin = pool.fetch_blocking(missing).unwrap();
        let mut page = pool.write(page(0, no)).unwrap();
        page.mark_dirty_begin();
        page[HEADER] = no as u8;
    }
    pool.flush_before(Lsn(1)).unwrap();
    assert_eq!((pool.stats().dirty, pool.min_rec_lsn()), (0, None));
    drop(pool);
    let pool = open();
    for no in 0..100 {
        let _pin = pool.fetch_blocking(MissingPage::Page(page(0, no))).unwrap();
        assert_eq!(pool.read(page(0, no)).unwrap()[HEADER], no as u8);
    }
}

#[test]
fn many_fetches_of_one_page_read_it_once() {
    let f = pool(16);
    f.io.hold_reads.store(true, SeqCst);
    let waiting: Vec<_> = (0..50).map(|_| start(&f.pool, MissingPage::Page(page(0, 3)))).collect();
    assert!(waiting.iter().all(|w| w.try_recv().is_err()));
    f.io.hold_reads.store(false, SeqCst);
    let pins: Vec<_> = waiting.into_iter().map(|w| w.recv().unwrap().unwrap()).collect();
    assert_eq!((f.io.reads.load(SeqCst), pins.len()), (1, 50));
    drop(f.pool.write(page(0, 3)).unwrap());
}

#[test]
fn damaged_page_fails_its_waiters_only() {
    use clearway_env::{Disk, Open};
    let f = pool(16);
    (0..2).for_each(|no| put(&f, page(0, no), 7));
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    let file = f.disk.open("/data/p0000.data".as_ref(), Open::Existing).unwrap();
    file.write_all_at(&[99], 5000).unwrap();
    let after = pool_on(&f.disk, 16, ReplacementKind::default());
    // The start has restored it from the double-write file: damage it again.
    file.write_all_at(&[99], 5000).unwrap();
    let error = after.pool.fetch_blocking(MissingPage::Page(page(0, 1))).unwrap_err().to_string();
    assert!(
        error.ends_with("is damaged: an LSN up to the log's end, 0x0 expected, 0x14 found"),
        "{error}"
    );
    after.wal.continue_after(&f.wal);
    let error = after.pool.fetch_blocking(MissingPage::Page(page(0, 0))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("partition 0 page 0 in /data/p0000.data is damaged: checksum"),
        "{text}"
    );
    assert_eq!(get(&after, page(0, 1)), 7);
    assert_eq!(after.pool.stats().free, 15, "the frame of the failed read is free again");
}

#[test]
fn creation_overrides_a_concurrent_read() {
    let f = pool(16);
    let id = page(1, 1);
    put(&f, id, 1);
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    let after = pool_on(&f.disk, 16, ReplacementKind::default());
    after.io.hold_reads.store(true, SeqCst);
    let waiting = start(&after.pool, MissingPage::Page(id));
    while after.io.reads.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    stamp(&mut after.pool.create(id, FileSpace::Usual).unwrap(), &after.wal, 2);
    after.io.hold_reads.store(false, SeqCst);
    let _pin = waiting.recv().unwrap().unwrap();
    assert_eq!(get(&after, id), 2);
    assert_eq!(after.pool.stats().free, 15);
    // Creating it again while it is resident clears it, in the same frame.
    assert!(after.pool.create(id, FileSpace::Usual).unwrap().iter().all(|&b| b == 0));
    assert_eq!(after.pool.stats().free, 15);
}

#[test]
fn fetch_waits_until_a_frame_is_unpinned() {
    let f = pool(16);
    let mut pins: Vec<_> =
        (0..16).map(|no| f.pool.fetch_blocking(MissingPage::Page(page(0, no))).unwrap()).collect();
    assert_eq!(f.pool.create(page(1, 0), FileSpace::Usual).err(), Some(MissingPage::Frames(1)));
    assert_eq!(f.pool.reserve_frames(2).err(), Some(MissingPage::Frames(2)));
    assert!(
        matches!(f.pool.fetch_blocking(MissingPage::Frames(9)), Err(PageError::NoFrames)),
        "more than half the pool"
    );
    let waiting = start(&f.pool, MissingPage::Page(page(0, 99)));
    let frames = start(&f.pool, MissingPage::Frames(3));
    assert!(waiting.try_recv().is_err() && frames.try_recv().is_err());
    pins.truncate(8);
    waiting.recv().unwrap().unwrap();
    let promise = frames.recv().unwrap().unwrap();
    let mut reserved = f.pool.reserve_frames(3).unwrap();
    drop(promise);
    stamp(&mut f.pool.create_in(&mut reserved, page(1, 7)), &f.wal, 5);
    assert_eq!(reserved.len(), 2);
    drop(reserved);
    assert_eq!(get(&f, page(1, 7)), 5);
}

#[test]
fn optimistic_read_returns_bytes_of_the_page_only() {
    let f = pool(16);
    let id = page(0, 3);
    let whole = |page: &OptimisticPage<'_>| page.array::<PAGE_SIZE>(0);
    assert_eq!(f.pool.read_optimistic(id, whole), Err(MissingPage::Page(id)));
    put(&f, id, 0x0102_0304_0506_0708);
    let expected = f.pool.read(id).unwrap().to_vec();
    assert_eq!(f.pool.read_optimistic(id, whole).unwrap().unwrap()[..], expected);
    for (at, len) in (0..40).flat_map(|len| [0, 1, 30, 8190 - len, 8192 - len].map(|at| (at, len)))
    {
        let look = |page: &OptimisticPage<'_>| {
            let mut copy = vec![0; len];
            page.copy(at, &mut copy).map(|()| copy)
        };
        assert_eq!(
            f.pool.read_optimistic(id, look).unwrap().as_deref(),
            Some(&expected[at..at + len]),
            "{len} at {at}"
        );
    }
    for at in [8193, usize::MAX, 8189] {
        assert_eq!(f.pool.read_optimistic(id, |page| page.array::<4>(at)), Ok(None));
    }
    assert_eq!(f.pool.read_optimistic(id, |page| page.lsn()), Ok(Lsn(10)));
    // It waits for the holder of an exclusive latch, as a latched reader does, and sees the change.
    std::thread::scope(|scope| {
        let mut held = f.pool.write(id).unwrap();
        let reader = scope.spawn(|| read_optimistic(&f, id));
        stamp(&mut held, &f.wal, 7);
        drop(held);
        assert_eq!(reader.join().unwrap(), 7);
    });
}

/// A pool of which twelve frames are pinned and four are promised, for at least `promise_rounds`
/// rounds of its cooler.
fn promised(promise_rounds: u32) -> (Fixture, Vec<Pin>) {
    let io_pool = Arc::new(IoPool::new(2, "test-io").unwrap());
    let config = unhurried(16);
    let config = PoolConfig { waits: FrameWaits { promise_rounds, ..config.waits }, ..config };
    let f = pool_of(files(&MemDisk::new()), io_pool, config, None);
    let missing = (0..12).map(|no| MissingPage::Page(page(0, no))).chain([MissingPage::Frames(4)]);
    let pins = missing.map(|missing| f.pool.fetch_blocking(missing).unwrap()).collect();
    (f, pins)
}

#[test]
fn reads_do_not_get_promised_frames() {
    let (f, _keeps) = promised(u32::MAX);
    let starved = start(&f.pool, MissingPage::Page(page(0, 50)));
    assert_eq!(f.pool.reserve_frames(4).unwrap().len(), 4);
    assert!(starved.try_recv().is_err());
}

#[test]
fn reads_get_a_promised_frame_after_some_rounds() {
    let (f, _keeps) = promised(FrameWaits::default().promise_rounds);
    let starved = start(&f.pool, MissingPage::Page(page(0, 50)));
    let _pin = starved.recv().unwrap().unwrap();
}

#[test]
fn checkpoint_writes_earlier_changes_only() {
    let f = pool(64);
    for no in 0..10 {
        put(&f, page(0, no), 1);
    }
    assert_eq!(f.pool.min_rec_lsn(), Some(Lsn(0)));
    assert_eq!(f.pool.stats().dirty, 10);
    f.pool.flush_before(Lsn(50)).unwrap();
    // Pages 0 to 4 had rec-LSNs 0, 10, .. 40.
    assert_eq!((f.pool.stats().dirty, f.pool.min_rec_lsn()), (5, Some(Lsn(50))));
    put(&f, page(0, 0), 2);
    put(&f, page(0, 9), 2);
    f.pool.flush_before(Lsn(100)).unwrap();
    assert_eq!((f.pool.stats().dirty, f.pool.min_rec_lsn()), (1, Some(Lsn(100))));
    drop(f.pool.write(page(0, 1)).unwrap());
    assert_eq!(f.pool.stats().dirty, 1, "latched but not marked");
}

#[test]
fn nothing_is_written_after_a_failed_write() {
    let f = pool(16);
    put(&f, page(0, 0), 1);
    f.disk.fail_after(0);
    let error = f.pool.flush_before(Lsn(u64::MAX)).unwrap_err();
    assert!(matches!(error, PageError::Io { .. }), "{error}");
    assert_eq!((f.pool.stats().dirty, f.pool.min_rec_lsn()), (1, Some(Lsn(0))));
    f.disk.fail_after(u64::MAX / 2);
    assert!(f.pool.flush_before(Lsn(u64::MAX)).is_err(), "the failure is remembered");
    assert_eq!(get(&f, page(0, 0)), 1);
    // All pages are dirty and cannot be written: a fetch fails instead of waiting forever.
    let mut error = None;
    for no in 1..40 {
        match f.pool.fetch_blocking(MissingPage::Page(page(0, no))) {
            Ok(_) => stamp(&mut f.pool.write(page(0, no)).unwrap(), &f.wal, 3),
            Err(e) => error = Some(e),
        }
    }
    assert!(matches!(error, Some(PageError::Io { .. })), "{error:?}");
}

#[test]
fn pages_are_not_written_before_their_log() {
    let f = pool(16);
    put(&f, page(0, 0), 1);
    f.wal.broken.store(true, SeqCst);
    assert!(matches!(f.pool.flush_before(Lsn(u64::MAX)), Err(PageError::Log(_))));
    assert_eq!((f.pool.stats().writes, f.pool.min_rec_lsn()), (0, Some(Lsn(0))));
}

#[test]
fn shutdown_fails_waits_and_drop_ends_the_thread() {
    let f = pool(16);
    let pins: Vec<_> =
        (0..16).map(|no| f.pool.fetch_blocking(MissingPage::Page(page(0, no))).unwrap()).collect();
    let waiting = start(&f.pool, MissingPage::Page(page(1, 0)));
    f.pool.shutdown();
    f.pool.shutdown();
    assert!(matches!(waiting.recv().unwrap(), Err(PageError::Closed)));
    assert!(matches!(f.pool.fetch_blocking(MissingPage::Page(page(1, 1))), Err(PageError::Closed)));
    drop(f.pool);
    drop(pins); // Pins may outlive the pool.
    // All shared state is dropped once the I/O threads' last jobs have ended.
    while Arc::strong_count(&f.io) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn data_larger_than_the_pool_is_read_back() {
    let f = pool_on(
        &MemDisk::new(),
        32,
        ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::Locked),
    );
    for no in 0..256 {
        with(&f.pool, |pool| {
            pool.create(page(3, no), FileSpace::Usual)
                .map(|mut p| stamp(&mut p, &f.wal, u64::from(no) + 1))
        });
    }
    assert_eq!(
        f.pool.min_rec_lsn(),
        Some(Lsn(0)),
        "the first pages were written, but never synced"
    );
    for no in 0..256 {
        assert_eq!(get(&f, page(3, no)), u64::from(no) + 1);
    }
    assert_eq!(f.io.violations.load(SeqCst), 0);
}

#[test]
fn panic_of_the_cooler_fails_waits() {
    let f = pool(16);
    let mut last = None;
    for no in 0..40 {
        match f.pool.fetch_blocking(MissingPage::Page(page(0, no))) {
            Ok(_) => {
                let mut page = f.pool.write(page(0, no)).unwrap();
                page.mark_dirty_begin();
                // Beyond the log's end: the fake log panics in the cooler.
                page.set_lsn(Lsn(1 << 40));
            }
            Err(error) => last = Some(error),
        }
    }
    assert!(matches!(last, Some(PageError::Panicked { .. })), "{last:?}");
}

/// Invariant 7 of `frame`: if more clients pin a page than its pin count permits, some fail, and
/// the pool continues.
#[test]
fn pins_beyond_the_maximum_are_refused() {
    const MANY: usize = 1 << 18;
    let f = pool(16);
    f.io.hold_reads.store(true, SeqCst);
    let (sender, answers) = mpsc::channel();
    let fetch_all = || {
        for _ in 0..MANY {
            let sender = sender.clone();
            f.pool.fetch(
                MissingPage::Page(page(0, 1)),
                Box::new(move |result| sender.send(result).unwrap()),
            );
        }
    };
    // While it is being read, and while it is resident.
    fetch_all();
    f.io.hold_reads.store(false, SeqCst);
    let of_read: Vec<_> = answers.iter().take(MANY).collect();
    let kept = of_read.iter().filter(|answer| answer.is_ok()).count();
    assert!(kept > 250_000 && kept < MANY, "{kept}");
    fetch_all();
    let refused = |answer: &Result<Pin, PageError>| matches!(answer, Err(PageError::NoFrames));
    assert!(answers.iter().take(MANY).all(|answer| refused(&answer)), "the maximum is reached");
    put(&f, page(0, 1), 7);
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    assert!(of_read.iter().all(|answer| answer.is_ok() || refused(answer)));
    drop(of_read);
    assert_eq!((get(&f, page(0, 1)), f.pool.stats().pinned), (7, 0));
    assert!(f.pool.failed().is_none());
}
