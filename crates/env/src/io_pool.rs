//! Threads that block so that workers need not.
//!
//! A worker hands a blocking job here and goes on; the job sends its result wherever the worker will find it.
//!
//! # Invariants
//! 1. A job that was submitted runs once, also when the pool is dropped: `drop` returns after the last of them.
//! 2. At most [`QUEUE_LIMIT`] jobs wait. At the bound, `submit` blocks until one has left the queue; a job that submits
//!    another job to its own pool does not block (its thread may be the only one that empties the queue), so that the
//!    bound can be exceeded by what the running jobs submit.
//! 3. A job that panics ends alone: its thread takes the next job. The panic hook has reported it.
//!
//! # Locking
//! One mutex over the queue, never held while a job runs. A panic cannot occur under it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

/// The most jobs that wait in one pool.
pub const QUEUE_LIMIT: usize = 4096;

/// Blocking work.
pub type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A job has come, or the pool closes.
    work: Condvar,
    /// A job has left a full queue.
    room: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics under this mutex, so that a poisoned one has a sound queue all the same.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.closed {
                    return;
                }
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            self.room.notify_one();
            // Unwind safe: the job is consumed, and what it shares with others guards itself (invariant 3).
            let _reported_by_the_panic_hook = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

/// A fixed number of threads that run blocking jobs in the order in which they came.
pub struct IoPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
}

impl IoPool {
    /// Starts `threads` threads (at least one), named `name-0`, `name-1` and so on. An error if the operating system
    /// refuses a thread.
    pub fn new(threads: usize, name: &str) -> io::Result<Self> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new(), ids: Vec::new() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new().name(format!("{name}-{number}")).spawn(move || shared.serve())?;
            pool.ids.push(thread.thread().id());
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Hands over a job. Blocks while [`QUEUE_LIMIT`] jobs wait, except in a job of this pool.
    pub fn submit(&self, job: Job) {
        let mut queue = self.shared.queue();
        if queue.jobs.len() >= QUEUE_LIMIT && !self.ids.contains(&thread::current().id()) {
            let full = |queue: &mut Queue| queue.jobs.len() >= QUEUE_LIMIT;
            queue = self.shared.room.wait_while(queue, full).unwrap_or_else(PoisonError::into_inner);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.work.notify_one();
    }

    /// How many jobs wait for a thread.
    pub fn waiting(&self) -> usize {
        self.shared.queue().jobs.len()
    }
}

impl Drop for IoPool {
    /// Returns after every job has run. In a job of this pool it does not wait for that job's own thread, which ends
    /// after the job and those that still wait.
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                // A thread cannot have panicked: it catches its jobs' panics, and runs nothing else that can.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
#[path = "io_pool_tests.rs"]
mod tests;
