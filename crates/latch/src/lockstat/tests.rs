use super::histogram::SCALE;
use super::*;
use crate::{Combiner, Latch, Monitor, Submitted};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Counts are global to the process: tests that reset them or turn them off run one after another.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rows(class: &str) -> Vec<Contention> {
    contention().into_iter().filter(|row| row.name == class).collect()
}

fn requests(class: &str) -> u64 {
    rows(class).first().map_or(0, |row| row.requests)
}

#[test]
fn counts_are_summed_and_survive_their_threads() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.summed");
    static TOTAL: Latch<u64> = Latch::new(&CLASS, 0);
    let (told, tell) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..3 {
            let told = told.clone();
            scope.spawn(move || {
                (0..100).for_each(|_| *TOTAL.lock() += 1);
                told.send(()).unwrap();
            });
        }
        (0..3).for_each(|_| tell.recv().unwrap());
        assert_eq!(requests("test.summed"), 300, "while they may live");
    });
    assert_eq!(requests("test.summed"), 300, "when they are gone");
    assert_eq!(*TOTAL.lock(), 300);
    assert_eq!(requests("test.summed"), 301, "and by this one");
}

#[test]
fn waits_are_counted_with_caller_and_time() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.waits");
    let latch = Latch::new(&CLASS, 0);
    let mut rounds = 0;
    // The waiter may be delayed between its request and the latch, and find it free.
    let (line, rows) = loop {
        rounds += 1;
        let line = thread::scope(|scope| {
            let held = latch.lock();
            let waiter = scope.spawn(|| {
                let line = line!() + 1;
                *latch.lock() += 1;
                line
            });
            while requests("test.waits") < 2 * rounds {
                thread::yield_now();
            }
            thread::park_timeout(Duration::from_millis(2));
            drop(held);
            waiter.join().unwrap()
        });
        let rows = rows("test.waits");
        if rows[0].contended > 0 {
            break (line, rows);
        }
    };
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].requests, rows[0].contended, rows[0].waits.count()), (2 * rounds, 1, 1));
    assert_eq!(rows[0].caller, Some(Caller { file: file!(), line }));
    assert_eq!(rows[0].caller.unwrap().to_string(), format!("{}:{line}", file!()));
    assert!(rows[0].waits.sum_ns() > 0, "{rows:?}");
}

#[test]
fn monitor_counts_waits_for_its_mutex_only() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.monitor");
    let monitor = Monitor::new(&CLASS, false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(monitor.wait_while(monitor.lock(), |done| !*done)));
        while requests("test.monitor") < 1 {
            thread::yield_now();
        }
        let (guard, over) =
            monitor.wait_timeout_while(monitor.lock(), Duration::from_millis(1), |done| !*done);
        assert!(over && !*guard);
        drop(guard);
        *monitor.lock() = true;
        monitor.notify_all();
        waiter.join().unwrap();
    });
    let before = rows("test.monitor").iter().map(|row| row.contended).sum::<u64>();
    assert_eq!(requests("test.monitor"), 3, "waiting for the condition is no request");
    let mut rounds = 0;
    // As above.
    while rows("test.monitor").iter().map(|row| row.contended).sum::<u64>() == before {
        rounds += 1;
        thread::scope(|scope| {
            let held = monitor.lock();
            scope.spawn(|| drop(monitor.lock()));
            while requests("test.monitor") < 3 + 2 * rounds {
                thread::yield_now();
            }
            thread::park_timeout(Duration::from_millis(2));
            drop(held);
        });
    }
    assert_eq!(requests("test.monitor"), 3 + 2 * rounds);
}

#[test]
fn a_panic_leaves_no_poison() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.poison");
    let monitor = Monitor::new(&CLASS, 1);
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _held = monitor.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panics.join().is_err());
    });
    assert_eq!(*monitor.lock(), 1);
    assert_eq!(monitor.into_inner(), 1);
}

#[test]
fn reset_starts_counts_from_zero() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.reset");
    CLASS.request();
    CLASS.waited(Location::caller(), 1000);
    assert_eq!((requests("test.reset"), rows("test.reset")[0].contended), (1, 1));
    reset();
    let row = rows("test.reset").remove(0);
    assert_eq!((row.requests, row.contended, row.caller), (0, 0, None));
    // The thread that counted before the reset, and one that starts and ends after it.
    CLASS.request();
    thread::scope(|scope| scope.spawn(|| CLASS.request()).join().unwrap());
    CLASS.waited(Location::caller(), 5000);
    let row = rows("test.reset").remove(0);
    assert_eq!((row.requests, row.contended, row.waits.sum_ns()), (2, 1, 5000));
}

#[test]
fn nothing_is_counted_while_counting_is_off() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.off");
    static NEW_WHEN_OFF: Class = Class::new("test.new_when_off");
    CLASS.request();
    set_counting(false);
    assert!(!counting());
    for class in [&CLASS, &NEW_WHEN_OFF] {
        class.request();
        class.waited(Location::caller(), 1);
        assert_eq!(class.timed(Location::caller(), || 7), 7);
    }
    set_counting(true);
    assert!(counting());
    assert_eq!((requests("test.off"), requests("test.new_when_off")), (1, 0));
    NEW_WHEN_OFF.request();
    assert_eq!(requests("test.new_when_off"), 1);
    assert_eq!(rows("test.off")[0].contended, 0);
}

#[test]
fn classes_of_one_name_are_one() {
    let _alone = alone();
    static ONE: Class = Class::new("test.same");
    static OTHER: Class = Class::new("test.same");
    ONE.request();
    OTHER.request();
    OTHER.waited(Location::caller(), 40);
    let rows = rows("test.same");
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].requests, rows[0].contended), (2, 1));
}

/// A destructor of a thread-local value may run after the thread's counts have been handed over.
#[test]
fn exiting_thread_still_counts() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.late");
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            CLASS.request();
            CLASS.waited(Location::caller(), 100);
        }
    }
    thread_local! {
        static FIRST: Late = const { Late };
        static SECOND: Late = const { Late };
    }
    let run = || {
        // Destructors run in either order; one of these two runs after that of the counters.
        FIRST.with(|_| {});
        CLASS.request();
        SECOND.with(|_| {});
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
    // The scope's join does not wait for destructors; a thread's join does.
    thread::spawn(run).join().unwrap();
    while requests("test.late") < 6 {
        thread::yield_now();
    }
    assert_eq!((requests("test.late"), rows("test.late")[0].contended), (6, 4));
}

#[test]
fn callers_beyond_the_limit_share_the_last_row() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.full");
    /// A thread's table treats each as a separate location, though all are of one place.
    static COPIES: OnceLock<Vec<Location<'static>>> = OnceLock::new();
    reset();
    let copies = COPIES.get_or_init(|| vec![*Location::caller(); ROWS + 10]);
    // A new thread, whose rows are free.
    thread::spawn(|| {
        copies.iter().for_each(|copy| CLASS.waited(copy, 64));
        let others = contention().pop().unwrap();
        assert_eq!((others.name, others.contended), (OTHER_CALLERS, 10));
    })
    .join()
    .unwrap();
    let rows = rows("test.full");
    assert_eq!(
        (rows.len(), rows[0].contended),
        (1, ROWS as u64),
        "copies of a location are one caller in the sum"
    );
    assert_eq!(
        contention().pop().unwrap().contended,
        10,
        "what found no row stays when the thread is gone"
    );
    reset();
}

#[test]
fn buckets_cover_all_times_and_quantiles_lie_in_theirs() {
    let mut last = 0;
    for ns in (0..40)
        .flat_map(|doublings| [1 << doublings, (1 << doublings) + 1, 3 << doublings])
        .chain([u64::MAX])
    {
        let mut one = Histogram::default();
        one.add(ns);
        let (at, (upper, count)) =
            one.buckets().enumerate().find(|(_, (_, count))| *count == 1).unwrap();
        assert_eq!((at, count), (SCALE.bucket(ns), 1));
        assert!(ns < upper || at == BUCKETS - 1, "{ns} is in the bucket below {upper}");
        let lower = one.buckets().nth(at.wrapping_sub(1)).map_or(0, |(upper, _)| upper);
        assert!(lower <= ns && (at == 0 || upper <= lower + lower / 2), "{lower} {ns} {upper}");
        last = last.max(at);
    }
    assert_eq!(last, BUCKETS - 1);
    let mut waits = Histogram::default();
    assert_eq!((waits.mean_ns(), waits.quantile_ns(0.99)), (0.0, 0.0));
    (0..1000).for_each(|n| waits.add(1000 + n * 1000));
    assert_eq!((waits.count(), waits.mean_ns()), (1000, 500_500.0));
    let p99 = waits.quantile_ns(0.99);
    assert!((786_432.0..=1_048_576.0).contains(&p99), "{p99}");
    assert!(waits.quantile_ns(0.0) >= 0.0 && waits.quantile_ns(1.0) >= p99);
}

#[test]
fn baton_counts_messages_left_to_its_holder() {
    let _alone = alone();
    static CLASS: Class = Class::new("test.baton");
    let baton = Combiner::new(&CLASS, 0);
    let add = |sum: &mut u32, n: u32| *sum += n;
    let mut handle = |sum: &mut u32, n: u32| {
        add(sum, n);
        if n == 1 {
            assert_eq!(baton.submit(2, &mut { add }), Submitted::Queued);
        }
    };
    assert_eq!(baton.submit(4, &mut handle), Submitted::Ran { more: false });
    assert_eq!((requests("test.baton"), rows("test.baton")[0].contended), (1, 0));
    assert_eq!(baton.submit(1, &mut handle), Submitted::Ran { more: false });
    assert_eq!((requests("test.baton"), rows("test.baton")[0].contended), (3, 1));
    assert_eq!(baton.into_inner(), 7);
}
