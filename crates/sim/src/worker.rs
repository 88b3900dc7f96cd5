//! A worker: a thread with an event loop and several sessions, as in the server, but without
//! sockets.

use crate::session::{Session, Shared};
use clearway_coordinator::{Client, Engine, Event, Outcome, Port, RunOptions, Step, Waker};
use clearway_ir::Env;
use clearway_sync::{Condvar, Mutex, PoisonError};
use clearway_types::RowBatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Wakes a worker.
#[derive(Default)]
pub struct Doorbell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    /// Wakes the worker, or keeps it from parking next time.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rung =
            self.changed.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}

/// Creates a doorbell for each worker, and the wakers that ring them.
pub fn doorbells(workers: u16) -> (Vec<Arc<Doorbell>>, Vec<Waker>) {
    let bells: Vec<Arc<Doorbell>> = (0..workers).map(|_| Arc::default()).collect();
    let wakers = bells.iter().cloned().map(|bell| Arc::new(move || bell.ring()) as Waker).collect();
    (bells, wakers)
}

/// State shared by the workers of a life.
pub struct Crew {
    /// The doorbell of each worker.
    pub bells: Vec<Arc<Doorbell>>,
    /// Number of workers that still have sessions or unfinished work of closed ones.
    pub busy: AtomicU32,
    /// The process is killed, or there is a finding: whatever still runs is abandoned.
    pub killed: AtomicBool,
    /// State shared by the sessions.
    pub shared: Arc<Shared>,
}

/// Runs the sessions that `make` creates to their ends. Every worker continues until all are done:
/// the work of a closed session may need it.
pub fn work(
    engine: &Arc<Engine>,
    worker: u16,
    crew: &Crew,
    make: impl FnOnce(&mut Port) -> Vec<Session>,
) -> Result<(), String> {
    let mut port = engine.port(worker);
    let mut sessions = make(&mut port);
    let worked = work_with(&mut port, worker, crew, &mut sessions);
    if worked.is_err() {
        // Its sessions keep their locks, and the others would wait until that counts as the
        // finding.
        crew.kill();
    }
    sessions.iter_mut().for_each(Session::leave);
    worked
}

fn work_with(
    port: &mut Port,
    worker: u16,
    crew: &Crew,
    sessions: &mut [Session],
) -> Result<(), String> {
    let mut events = Vec::new();
    let mut busy = true;
    loop {
        events.clear();
        port.poll(&mut events);
        if crew.killed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut moved = false;
        for session in &mut *sessions {
            moved |= session.advance(port)?;
        }
        if busy && sessions.iter().all(Session::is_over) && !port.has_orphans() {
            busy = false;
            // Relaxed: there is one OS thread.
            crew.busy.fetch_sub(1, Ordering::Relaxed);
            crew.bells.iter().for_each(|bell| bell.ring());
        }
        if crew.busy.load(Ordering::Relaxed) == 0 {
            // The rest of the work of closed clients.
            port.poll(&mut events);
            return Ok(());
        }
        if !moved && !port.has_work() {
            crew.bells[usize::from(worker)].wait();
        }
    }
}

impl Crew {
    /// Stops all workers at once.
    pub fn kill(&self) {
        if !self.killed.swap(true, Ordering::Relaxed) {
            self.bells.iter().for_each(|bell| bell.ring());
        }
    }

    /// Stops new statements.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::Relaxed) {
            self.bells.iter().for_each(|bell| bell.ring());
        }
    }
}

/// One session in the calling thread, to inspect the database.
pub struct Reader {
    port: Port,
    client: Client,
    bell: Arc<Doorbell>,
}

impl Reader {
    /// Creates a session at the engine's only worker, whose doorbell is `bell`.
    pub fn new(engine: &Arc<Engine>, bell: Arc<Doorbell>) -> Self {
        let mut port = engine.port(0);
        let client = Client::new(&mut port, 0);
        Self { port, client, bell }
    }

    /// Ends the session.
    pub fn close(mut self) {
        self.client.close();
        self.port.poll(&mut Vec::new());
    }

    /// Returns the client, for its catalog.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a statement to its end.
    pub fn run(&mut self, sql: &str) -> Result<RowBatch, String> {
        self.outcome(sql).map(|outcome| outcome.rows)
    }

    /// Runs a statement like [`Reader::run`] and returns the complete outcome.
    pub fn outcome(&mut self, sql: &str) -> Result<Outcome, String> {
        let failed =
            |e: clearway_types::SqlError| format!("{sql}: {} {}", e.state().as_str(), e.message());
        let plan = crate::session::plan(sql, &self.client).map_err(failed)?;
        let mut step = self.client.start(&plan, &Arc::new(Env::default()), RunOptions::default());
        let mut events: Vec<Event> = Vec::new();
        let mut rows = RowBatch::new();
        loop {
            match step {
                Step::Done(result) => {
                    let outcome = result.map_err(|refusal| failed(refusal.error))?;
                    rows.append(&outcome.rows);
                    return Ok(Outcome { rows, ..outcome });
                }
                Step::Rows(part) => {
                    rows.append(&part.rows);
                    step = self.client.resume();
                }
                Step::Replan => {
                    return Err(format!(
                        "{sql}: to be planned again, though nobody changes the catalog"
                    ));
                }
                Step::Pending => {
                    events.clear();
                    self.port.poll(&mut events);
                    step = self.client.resume();
                    if matches!(step, Step::Pending) && !self.port.has_work() {
                        self.bell.wait();
                    }
                }
            }
        }
    }
}
