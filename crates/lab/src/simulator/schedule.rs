//! The scheduler: cores, threads, latches, memory, and the clock.
//!
//! A thread works, then accesses a page, and so on until its transaction ends. It then moves to the
//! end of the run queue, like a server process that waits for its client. A latch works like
//! PostgreSQL's and ours: the first thread to find it free gets it, so a woken thread may find it
//! held again. A waiter spins for [`Costs::spin_ns`] and then sleeps. The end of a critical section
//! wakes one waiter, spinning ones first. A thread that has run for [`Costs::slice_ns`] in total
//! loses its core if another is runnable, even in its critical section; it then keeps the latch. It
//! runs again when no runnable thread has slice left, as in the two-array scheduler of Linux 2.6.
//!
//! All cores share one memory. It serves accesses one after the other, each for
//! [`Costs::memory_ns`], in parallel to the work before the next access.

use super::costs::Costs;
use super::{Blocks, Machine, Outcome, System, Transactions};
use clearway_testkit::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Clock ticks per nanosecond.
const TICKS: f64 = 1000.0;
/// Marks a core without a thread.
const NOBODY: u32 = u32::MAX;

/// Sequence number of an event that precedes all others at its time.
const FIRST: u64 = 0;

/// A scheduled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The thread's critical section ends.
    Ends(u32),
    /// The thread regains the core that it lost in its critical section.
    Resumes(u32),
    /// The thread, which is on a core, accesses its next page.
    Access(u32),
    /// The thread's spin limit expires, if it is still in this wait.
    SpinExpired(u32, u64),
}

struct Thread {
    core: u32,
    transaction: usize,
    /// Index of the transaction's next access.
    at: usize,
    began: u64,
    /// Hits since the thread's last critical section.
    queued: u32,
    /// When the thread acquired its latch.
    holding_since: Option<u64>,
    /// When the thread began to wait for its latch.
    waiting_since: Option<u64>,
    spins: bool,
    /// Number of the wait.
    wait: u64,
    /// Whether the thread yields its core at the end of the transaction.
    yields: bool,
    /// The remaining time slice, which it keeps while it sleeps, and when it began to run.
    slice: u64,
    runs_since: u64,
    /// The event that happens when it gets a core.
    resumes: Event,
}

/// A simulated latch.
struct Latch {
    held: bool,
    last_holder_core: u32,
    /// Waiting threads, in order of arrival.
    spinning: VecDeque<u32>,
    sleeping: VecDeque<u32>,
}

/// A call into the wrapper that has not returned.
#[derive(Clone, Copy)]
struct Call {
    thread: u32,
    now: u64,
    /// Whether it waited for the latch.
    waited: bool,
}

/// State of a simulated machine.
pub struct Schedule {
    costs: Costs,
    blocks: Blocks,
    prefetches: bool,
    transactions: Transactions,
    accesses: u64,
    rng: Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    threads: Vec<Thread>,
    idle: Vec<u32>,
    ready: VecDeque<u32>,
    /// Runnable threads that have used up their slices.
    expired: VecDeque<u32>,
    latches: Vec<Latch>,
    /// The latch that the hits of each frame take.
    latch_of: Vec<u32>,
    /// The core that last touched each frame's entry in the policy.
    touched_by: Vec<u32>,
    /// End of the memory's current access.
    memory_busy: u64,
    calls: Vec<Call>,
    clock: u64,
    response: u64,
    waited: u64,
    held_for: u64,
    outcome: Outcome,
}

fn ticks(ns: f64) -> u64 {
    (ns * TICKS) as u64
}

impl Schedule {
    /// Creates the machine with all threads at the start of a transaction, and as many on cores as
    /// possible. `latch_of` is the latch that the hits of each frame take.
    pub fn new(
        system: &System,
        machine: &Machine,
        transactions: Transactions,
        latch_of: Vec<u32>,
    ) -> Self {
        let latch = |_| Latch {
            held: false,
            last_holder_core: NOBODY,
            spinning: VecDeque::new(),
            sleeping: VecDeque::new(),
        };
        let thread = |id| Thread {
            core: NOBODY,
            transaction: 0,
            at: 0,
            began: 0,
            queued: 0,
            holding_since: None,
            waiting_since: None,
            spins: false,
            wait: 0,
            yields: false,
            slice: 0,
            runs_since: 0,
            resumes: Event::Access(id),
        };
        let mut this = Self {
            costs: machine.costs,
            blocks: system.blocks,
            prefetches: system.prefetches,
            transactions,
            accesses: machine.accesses,
            rng: Rng::new(machine.seed),
            events: BinaryHeap::new(),
            sequence: 0,
            threads: (0..machine.threads as u32).map(thread).collect(),
            idle: (0..machine.cores as u32).rev().collect(),
            ready: (0..machine.threads as u32).collect(),
            expired: VecDeque::new(),
            latches: (0..=latch_of.iter().copied().max().unwrap_or(0)).map(latch).collect(),
            touched_by: vec![NOBODY; latch_of.len()],
            latch_of,
            memory_busy: 0,
            calls: Vec::new(),
            clock: 0,
            response: 0,
            waited: 0,
            held_for: 0,
            outcome: Outcome::default(),
        };
        for thread in 0..machine.threads {
            this.threads[thread].transaction = this.drawn_transaction();
            // Random, so that the threads do not all lose their cores at the same time.
            this.threads[thread].slice = ticks(machine.costs.slice_ns * this.rng.unit());
        }
        this.dispatch(0);
        this
    }

    /// Returns the result up to the last access.
    pub fn outcome(&self) -> Outcome {
        let ns = |ticks: u64| ticks as f64 / TICKS;
        Outcome {
            elapsed_ns: ns(self.clock),
            response_ns: ns(self.response) / self.outcome.transactions as f64,
            waited_ns: ns(self.waited),
            held_ns: ns(self.held_for),
            ..self.outcome
        }
    }

    /// Returns thread and frame of the next access before `limit` that calls the wrapper; handles
    /// all other events itself. Also returns `None` when the innermost call regains its core.
    pub fn next_call(&mut self, limit: u64) -> Option<(u32, u32)> {
        loop {
            let Reverse((time, _, event)) = *self.events.peek()?;
            if time >= limit || self.is_over() {
                return None;
            }
            self.events.pop();
            // Invariant 1. A returned call may have ended after this event: only its own core was
            // busy meanwhile.
            self.clock = self.clock.max(time);
            match event {
                Event::SpinExpired(thread, wait) => self.spin_expired(thread, wait, time),
                Event::Resumes(_) => {
                    self.calls.last_mut().into_iter().for_each(|call| call.now = time);
                    return None;
                }
                Event::Ends(thread) | Event::Access(thread)
                    if self.preempted(thread, time, event) => {}
                Event::Ends(thread) => self.section_ended(thread, time),
                Event::Access(thread) if self.yielded(thread, time) => {}
                Event::Access(thread) if self.would_block(thread) => self.wait(thread, time),
                Event::Access(thread) => return Some(self.call(thread, time)),
            }
        }
    }

    /// Returns true if the last access has been simulated.
    fn is_over(&self) -> bool {
        self.outcome.accesses >= self.accesses
    }

    fn call(&mut self, id: u32, time: u64) -> (u32, u32) {
        let waiting_since = self.threads[id as usize].waiting_since.take();
        self.waited += waiting_since.map_or(0, |since| time - since);
        // Checking a held latch also transfers its cache line.
        let looks = self.latch(id).held && self.may_commit(id);
        let now = time + if looks { ticks(self.costs.transfer_ns) } else { 0 };
        self.calls.push(Call { thread: id, now, waited: waiting_since.is_some() });
        self.outcome.accesses += 1;
        (id, self.next_frame(id))
    }

    /// Returns the frame that the thread accesses now or next.
    fn next_frame(&self, id: u32) -> u32 {
        let thread = &self.threads[id as usize];
        self.transactions[thread.transaction][thread.at]
    }

    /// Returns the latch of that access.
    fn latch(&mut self, id: u32) -> &mut Latch {
        let latch = self.latch_of[self.next_frame(id) as usize];
        &mut self.latches[latch as usize]
    }

    /// Runs one operation of the policy for the innermost call and returns when it ends. The first
    /// operation begins the critical section.
    pub fn operation(&mut self, frame: u32) -> u64 {
        let Some(Call { thread: id, now, waited }) = self.calls.last().copied() else { return 0 };
        let core = self.threads[id as usize].core;
        let mut ns = self.costs.policy_ns;
        if self.threads[id as usize].holding_since.is_none() {
            self.threads[id as usize].holding_since = Some(now);
            self.outcome.acquisitions += 1;
            let latch = self.latch(id);
            latch.held = true;
            let waiters = latch.spinning.len() + latch.sleeping.len();
            let last = std::mem::replace(&mut latch.last_holder_core, core);
            ns += self.costs.latch_ns + self.costs.waiter_ns * waiters as f64;
            if last != core {
                // The latch's own line is always transferred. The lists' ends may have been
                // prefetched, but the threads it waited for have changed them since.
                let has_ends = self.prefetches && !waited;
                ns += self.costs.transfer_ns + if has_ends { 0.0 } else { self.costs.cold_ns };
            }
        }
        let touched_by = std::mem::replace(&mut self.touched_by[frame as usize], core);
        if touched_by != core && !self.prefetches {
            ns += self.costs.cold_ns;
        }
        let ends = now + ticks(ns);
        self.calls.last_mut().into_iter().for_each(|call| call.now = ends);
        ends
    }

    /// Returns true if the innermost call loses its core after its operation.
    pub fn loses_core(&mut self) -> bool {
        let Some(Call { thread, now, .. }) = self.calls.last().copied() else { return false };
        self.preempted(thread, now, Event::Resumes(thread))
    }

    /// Ends the innermost call. Its critical section, if it had one, ends when its operations have
    /// consumed their time.
    pub fn call_ended(&mut self) {
        let Some(Call { thread: id, now, .. }) = self.calls.pop() else { return };
        let thread = &mut self.threads[id as usize];
        thread.queued += 1;
        if thread.holding_since.is_some() {
            thread.queued = 0;
            self.events.push(Reverse((now, FIRST, Event::Ends(id))));
        } else {
            self.next_access(id, now);
        }
    }

    fn section_ended(&mut self, id: u32, now: u64) {
        let since = self.threads[id as usize].holding_since.take();
        self.held_for += since.map_or(0, |since| now - since);
        self.latch(id).held = false;
        self.wake_one(id, now);
        self.next_access(id, now);
    }

    /// Schedules the thread's next access, possibly of the next transaction.
    fn next_access(&mut self, id: u32, now: u64) {
        let drawn = self.drawn_transaction();
        let thread = &mut self.threads[id as usize];
        thread.at += 1;
        if thread.at == self.transactions[thread.transaction].len() {
            self.response += now - thread.began;
            self.outcome.transactions += 1;
            (thread.transaction, thread.at, thread.began, thread.yields) = (drawn, 0, now, true);
        }
        let until = (now + self.work() + self.prefetch_time(id)).max(self.served(now));
        self.push(until, Event::Access(id));
    }

    /// Returns when the memory, requested now, has served an access.
    fn served(&mut self, now: u64) -> u64 {
        let memory = ticks(self.costs.memory_ns);
        if memory == 0 {
            return now;
        }
        self.memory_busy = self.memory_busy.max(now) + memory;
        self.memory_busy
    }

    fn drawn_transaction(&mut self) -> usize {
        self.rng.below(self.transactions.len() as u64) as usize
    }

    /// Draws the work uniformly around the mean: threads in lockstep would never collide.
    fn work(&mut self) -> u64 {
        ticks(self.costs.work_ns * (0.5 + self.rng.unit()))
    }

    /// Returns the time a thread spends on an access before it requests the latch.
    fn prefetch_time(&self, id: u32) -> u64 {
        let prefetch =
            if self.prefetches && self.may_commit(id) { self.costs.prefetch_ns } else { 0.0 };
        ticks(self.costs.note_ns + prefetch)
    }

    fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Returns true if the thread's next hit may take the latch.
    fn may_commit(&self, id: u32) -> bool {
        match self.blocks {
            Blocks::Full { threshold, .. } => self.threads[id as usize].queued + 1 >= threshold,
            Blocks::Always | Blocks::Never => true,
        }
    }

    /// Returns true if the thread's next hit would wait (invariant 2).
    fn would_block(&mut self, id: u32) -> bool {
        self.latch(id).held
            && match self.blocks {
                Blocks::Always => true,
                Blocks::Full { queue, .. } => self.threads[id as usize].queued + 1 >= queue,
                Blocks::Never => false,
            }
    }

    fn wait(&mut self, id: u32, time: u64) {
        let spin = ticks(self.costs.spin_ns);
        let thread = &mut self.threads[id as usize];
        let first = thread.waiting_since.is_none();
        if first {
            thread.waiting_since = Some(time);
            thread.wait += 1;
            thread.spins = spin > 0;
            self.outcome.waits += 1;
        }
        let (wait, spins) = (thread.wait, thread.spins);
        if first && spins {
            self.push(time + spin, Event::SpinExpired(id, wait));
            self.latch(id).spinning.push_back(id);
        } else if spins {
            // It was woken, but another thread acquired the latch first.
            self.latch(id).spinning.push_front(id);
        } else {
            // A woken thread that finds the latch held sleeps again without spinning.
            self.latch(id).sleeping.push_back(id);
            self.leave_core(id, time);
        }
    }

    fn spin_expired(&mut self, id: u32, wait: u64, time: u64) {
        let thread = &mut self.threads[id as usize];
        if thread.wait != wait || thread.waiting_since.is_none() || !thread.spins {
            return;
        }
        thread.spins = false;
        let latch = self.latch(id);
        if let Some(at) = latch.spinning.iter().position(|waiter| *waiter == id) {
            latch.spinning.remove(at);
            latch.sleeping.push_back(id);
            self.leave_core(id, time);
        }
    }

    /// Wakes one thread that waits for the latch that this thread held.
    fn wake_one(&mut self, had: u32, now: u64) {
        let latch = self.latch(had);
        if let Some(id) = latch.spinning.pop_front() {
            self.push(now + ticks(self.costs.transfer_ns), Event::Access(id));
        } else if let Some(id) = latch.sleeping.pop_front() {
            self.ready.push_back(id);
            self.dispatch(now);
        }
    }

    fn leave_core(&mut self, id: u32, now: u64) {
        let thread = &mut self.threads[id as usize];
        thread.slice = thread.slice.saturating_sub(now - thread.runs_since);
        let core = std::mem::replace(&mut thread.core, NOBODY);
        self.idle.push(core);
        self.dispatch(now);
    }

    /// At the end of a time slice, gives the core to a runnable thread if there is one, and starts
    /// a new slice. `resumes` happens when the thread gets a core again.
    fn preempted(&mut self, id: u32, now: u64, resumes: Event) -> bool {
        // Calls that are still open after the last access return without another event: one whose
        // thread regained a core continues at its old time.
        let over = self.is_over();
        let thread = &mut self.threads[id as usize];
        if over || now - thread.runs_since < thread.slice {
            return false;
        }
        (thread.slice, thread.runs_since) = (ticks(self.costs.slice_ns), now);
        if !self.anyone_ready() {
            return false;
        }
        self.threads[id as usize].resumes = resumes;
        self.expired.push_back(id);
        self.leave_core(id, now);
        true
    }

    /// Yields the core at the start of a transaction if a thread is runnable.
    fn yielded(&mut self, id: u32, now: u64) -> bool {
        if !std::mem::take(&mut self.threads[id as usize].yields) || !self.anyone_ready() {
            return false;
        }
        self.leave_core(id, now);
        self.ready.push_back(id);
        true
    }

    /// Returns true if a thread waits for a core.
    fn anyone_ready(&mut self) -> bool {
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.expired);
        }
        !self.ready.is_empty()
    }

    /// Assigns runnable threads to idle cores.
    fn dispatch(&mut self, now: u64) {
        while !self.idle.is_empty() && self.anyone_ready() {
            let (Some(core), Some(id)) = (self.idle.pop(), self.ready.pop_front()) else { return };
            let on_core = now + ticks(self.costs.switch_ns);
            let thread = &mut self.threads[id as usize];
            (thread.core, thread.yields, thread.runs_since) = (core, false, on_core);
            let event = std::mem::replace(&mut thread.resumes, Event::Access(id));
            self.push(on_core, event);
        }
    }
}
