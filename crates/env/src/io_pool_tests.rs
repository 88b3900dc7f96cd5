use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use super::*;

fn pool(threads: usize) -> IoPool {
    IoPool::new(threads, "test-io").expect("threads start")
}

#[test]
fn drop_returns_after_the_last_job() {
    // Invariant 1.
    let done = Arc::new(AtomicUsize::new(0));
    let pool = pool(2);
    for _ in 0..100 {
        let done = Arc::clone(&done);
        // Relaxed: the join in `drop` orders the count.
        pool.submit(Box::new(move || {
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }
    drop(pool);
    assert_eq!(done.load(Ordering::Relaxed), 100); // Relaxed: as above.
}

#[test]
fn jobs_run_in_order_on_named_threads() {
    let (send, receive) = mpsc::channel();
    let pool = pool(0);
    for number in 0..10 {
        let send = send.clone();
        pool.submit(Box::new(move || {
            let name = thread::current().name().map(str::to_owned);
            send.send((number, name)).expect("the test listens");
        }));
    }
    drop((pool, send));
    let ran: Vec<_> = receive.iter().collect();
    assert_eq!(
        ran,
        (0..10).map(|number| (number, Some("test-io-0".to_owned()))).collect::<Vec<_>>()
    );
}

#[test]
fn submit_blocks_only_at_the_bound() {
    // Invariant 2.
    let pool = Arc::new(pool(1));
    let (begin, begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    pool.submit(Box::new(move || {
        begin.send(()).expect("the test listens");
        gate.recv().expect("the test opens the gate");
    }));
    begun.recv().expect("the job sends");
    (0..QUEUE_LIMIT).for_each(|_| pool.submit(Box::new(|| {})));
    assert_eq!(pool.waiting(), QUEUE_LIMIT);
    let refused = pool.try_submit(Box::new(|| {}));
    assert!(refused.is_err() && pool.waiting() == QUEUE_LIMIT);
    let (late, came) = mpsc::channel();
    let submitter = thread::spawn({
        let pool = Arc::clone(&pool);
        move || pool.submit(Box::new(move || late.send(()).expect("the test listens")))
    });
    assert!(came.try_recv().is_err() && pool.waiting() == QUEUE_LIMIT);
    open.send(()).expect("the job listens");
    came.recv().expect("the late job runs");
    submitter.join().expect("no panic");
}

#[test]
fn a_job_may_submit_to_its_own_full_pool() {
    // Invariant 2: the only thread does not wait for itself.
    let pool = Arc::new(pool(1));
    let (send, receive) = mpsc::channel();
    let inner = Arc::clone(&pool);
    pool.submit(Box::new(move || {
        for number in 0..=QUEUE_LIMIT {
            let send = send.clone();
            inner.submit(Box::new(move || send.send(number).expect("the test listens")));
        }
    }));
    assert_eq!(receive.iter().count(), QUEUE_LIMIT + 1);
}

#[test]
fn panic_ends_only_its_job() {
    // Invariant 3.
    let pool = pool(1);
    let (send, receive) = mpsc::channel();
    pool.submit(Box::new(|| panic!("a job's panic")));
    pool.submit(Box::new(move || send.send(1).expect("the test listens")));
    assert_eq!(receive.recv(), Ok(1));
    assert_eq!(pool.failed(), Some("a thread panicked while running an I/O job: a job's panic"));
}

#[test]
fn the_last_job_may_drop_the_pool() {
    let pool = Arc::new(pool(1));
    let (send, receive) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let inner = Arc::clone(&pool);
    pool.submit(Box::new(move || {
        may_go.recv().expect("the test sends");
        drop(inner);
        send.send(()).expect("the test listens");
    }));
    drop(pool);
    go.send(()).expect("the job listens");
    receive.recv().expect("the job ends");
}
