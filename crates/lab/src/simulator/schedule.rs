//! Who runs when: cores, threads, latches, memory, and the clock.
//!
//! A thread works, then accesses a page, and so on to the end of its transaction; then it goes to
//! the back of the ready ones, as a server's process that waits for its client. A latch is like
//! PostgreSQL's and ours: whoever finds it free has it, so that who was woken may find it held
//! again. A waiter spins for [`Costs::spin_ns`] and then sleeps; the end of a section wakes one:
//! who spins before who sleeps. A thread that has run for [`Costs::slice_ns`] in all loses its core
//! if another is ready for it, also in its section: then it keeps the latch. It runs again when no
//! one is ready who has not used up a slice, as in Linux 2.6's scheduler of two arrays.
//!
//! Memory is one for all cores: it serves accesses one after the other, each for
//! [`Costs::memory_ns`], beside the work before the next access.

use super::costs::Costs;
use super::{Blocks, Machine, Outcome, System, Transactions};
use clearway_traces::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Ticks of the clock in a nanosecond.
const TICKS: f64 = 1000.0;
/// A core that nobody was on.
const NOBODY: u32 = u32::MAX;

/// The sequence of what comes before all else at its time.
const FIRST: u64 = 0;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The thread's section ends.
    Ends(u32),
    /// The thread has a core again, which it had lost in its section.
    Resumes(u32),
    /// The thread, which is on a core, accesses its next page.
    Access(u32),
    /// The thread has spun for so long, if it is still the same wait.
    SpunOut(u32, u64),
}

struct Thread {
    core: u32,
    transaction: usize,
    /// The next access of the transaction.
    at: usize,
    began: u64,
    /// Hits since the thread's last section.
    queued: u32,
    /// Since when the thread has its latch.
    holds_since: Option<u64>,
    /// Since when the thread waits for its latch.
    waits_since: Option<u64>,
    spins: bool,
    /// Counts waits.
    wait: u64,
    /// The transaction's end gives others the core.
    yields: bool,
    /// What is left of its time slice, which it does not lose when it sleeps, and since when it
    /// runs.
    slice: u64,
    runs_since: u64,
    /// What happens when it has a core.
    resumes: Event,
}

/// A latch, as the machine's threads find it.
struct Latch {
    held: bool,
    last_holder_core: u32,
    /// Who waits, those who came first in front.
    spinning: VecDeque<u32>,
    sleeping: VecDeque<u32>,
}

/// A call into the wrapper that has not returned.
#[derive(Clone, Copy)]
struct Call {
    thread: u32,
    now: u64,
    /// It had to wait for the latch.
    waited: bool,
}

/// The state of a machine.
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
    /// Those that are ready and have used up their slices.
    expired: VecDeque<u32>,
    latches: Vec<Latch>,
    /// By frame: the latch that its hits take.
    latch_of: Vec<u32>,
    /// The core that last touched a frame's place in the policy.
    touched_by: Vec<u32>,
    /// Until when the memory is busy.
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
    /// All threads at the beginning of a transaction, as many on cores as there are. `latch_of` has
    /// for each frame the latch that its hits take.
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
            holds_since: None,
            waits_since: None,
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
            // Or all would lose their cores at one time.
            this.threads[thread].slice = ticks(machine.costs.slice_ns * this.rng.unit());
        }
        this.dispatch(0);
        this
    }

    /// What came of it, until the last access.
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

    /// The thread and the frame of the next access before `limit` that calls the wrapper; what does
    /// not is done here. Nothing, too, when the innermost call, which had lost its core, goes on.
    pub fn next_call(&mut self, limit: u64) -> Option<(u32, u32)> {
        loop {
            let Reverse((time, _, event)) = *self.events.peek()?;
            if time >= limit || self.is_over() {
                return None;
            }
            self.events.pop();
            // Invariant 1. A call that returned may have ended after this event: its core was busy,
            // no other's.
            self.clock = self.clock.max(time);
            match event {
                Event::SpunOut(thread, wait) => self.spun_out(thread, wait, time),
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

    /// Whether the last access has been played.
    fn is_over(&self) -> bool {
        self.outcome.accesses >= self.accesses
    }

    fn call(&mut self, id: u32, time: u64) -> (u32, u32) {
        let waits_since = self.threads[id as usize].waits_since.take();
        self.waited += waits_since.map_or(0, |since| time - since);
        // To look at a held latch brings its line, too.
        let looks = self.latch(id).held && self.may_commit(id);
        let now = time + if looks { ticks(self.costs.transfer_ns) } else { 0 };
        self.calls.push(Call { thread: id, now, waited: waits_since.is_some() });
        self.outcome.accesses += 1;
        (id, self.next_frame(id))
    }

    /// What the thread accesses next, or is accessing.
    fn next_frame(&self, id: u32) -> u32 {
        let thread = &self.threads[id as usize];
        self.transactions[thread.transaction][thread.at]
    }

    /// The latch that the hit of it takes.
    fn latch(&mut self, id: u32) -> &mut Latch {
        let latch = self.latch_of[self.next_frame(id) as usize];
        &mut self.latches[latch as usize]
    }

    /// An operation of the policy on behalf of the innermost call: until when it takes. The first
    /// begins a section.
    pub fn operation(&mut self, frame: u32) -> u64 {
        let Some(Call { thread: id, now, waited }) = self.calls.last().copied() else { return 0 };
        let core = self.threads[id as usize].core;
        let mut ns = self.costs.policy_ns;
        if self.threads[id as usize].holds_since.is_none() {
            self.threads[id as usize].holds_since = Some(now);
            self.outcome.acquisitions += 1;
            let latch = self.latch(id);
            latch.held = true;
            let waiters = latch.spinning.len() + latch.sleeping.len();
            let last = std::mem::replace(&mut latch.last_holder_core, core);
            ns += self.costs.latch_ns + self.costs.crowd_ns * waiters as f64;
            if last != core {
                // The latch's own line comes in any case; the lists' ends may have been asked for.
                // But those for whom it waited have changed them since.
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

    /// Whether the innermost call loses its core when its operation has ended.
    pub fn loses_core(&mut self) -> bool {
        let Some(Call { thread, now, .. }) = self.calls.last().copied() else { return false };
        self.preempted(thread, now, Event::Resumes(thread))
    }

    /// The innermost call has returned. Its section, if it had one, ends when its operations have
    /// taken their time.
    pub fn call_ended(&mut self) {
        let Some(Call { thread: id, now, .. }) = self.calls.pop() else { return };
        let thread = &mut self.threads[id as usize];
        thread.queued += 1;
        if thread.holds_since.is_some() {
            thread.queued = 0;
            self.events.push(Reverse((now, FIRST, Event::Ends(id))));
        } else {
            self.next_access(id, now);
        }
    }

    fn section_ended(&mut self, id: u32, now: u64) {
        let since = self.threads[id as usize].holds_since.take();
        self.held_for += since.map_or(0, |since| now - since);
        self.latch(id).held = false;
        self.wake_one(id, now);
        self.next_access(id, now);
    }

    /// The thread goes on to its next access, maybe of the next transaction.
    fn next_access(&mut self, id: u32, now: u64) {
        let drawn = self.drawn_transaction();
        let thread = &mut self.threads[id as usize];
        thread.at += 1;
        if thread.at == self.transactions[thread.transaction].len() {
            self.response += now - thread.began;
            self.outcome.transactions += 1;
            (thread.transaction, thread.at, thread.began, thread.yields) = (drawn, 0, now, true);
        }
        let until = (now + self.work() + self.ahead(id)).max(self.served(now));
        self.push(until, Event::Access(id));
    }

    /// When the memory, asked now, has done what an access needs of it.
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

    /// Drawn evenly around the mean: threads that do the same in lock-step would never meet.
    fn work(&mut self) -> u64 {
        ticks(self.costs.work_ns * (0.5 + self.rng.unit()))
    }

    /// What a thread does of an access before it asks for the latch.
    fn ahead(&self, id: u32) -> u64 {
        let prefetch =
            if self.prefetches && self.may_commit(id) { self.costs.prefetch_ns } else { 0.0 };
        ticks(self.costs.note_ns + prefetch)
    }

    fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Whether the thread's next hit may take the latch.
    fn may_commit(&self, id: u32) -> bool {
        match self.blocks {
            Blocks::Full { threshold, .. } => self.threads[id as usize].queued + 1 >= threshold,
            Blocks::Always | Blocks::Never => true,
        }
    }

    /// Invariant 2.
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
        let first = thread.waits_since.is_none();
        if first {
            thread.waits_since = Some(time);
            thread.wait += 1;
            thread.spins = spin > 0;
            self.outcome.waits += 1;
        }
        let (wait, spins) = (thread.wait, thread.spins);
        if first && spins {
            self.push(time + spin, Event::SpunOut(id, wait));
            self.latch(id).spinning.push_back(id);
        } else if spins {
            // It was the next, and found that another had come first.
            self.latch(id).spinning.push_front(id);
        } else {
            // Who was woken and finds the latch held sleeps again without another spin.
            self.latch(id).sleeping.push_back(id);
            self.leave_core(id, time);
        }
    }

    fn spun_out(&mut self, id: u32, wait: u64, time: u64) {
        let thread = &mut self.threads[id as usize];
        if thread.wait != wait || thread.waits_since.is_none() || !thread.spins {
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

    /// Wakes one that waits for the latch that the thread had.
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

    /// At the end of its time slice the core goes to who is ready, if somebody is; and a new slice
    /// begins. `resumes` happens when the thread has a core again.
    fn preempted(&mut self, id: u32, now: u64, resumes: Event) -> bool {
        // Calls that had not returned at the last access do so without another event: one whose
        // thread has a core again goes on at its old time.
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

    /// At the beginning of a transaction the core goes to who is ready, if somebody is.
    fn yielded(&mut self, id: u32, now: u64) -> bool {
        if !std::mem::take(&mut self.threads[id as usize].yields) || !self.anyone_ready() {
            return false;
        }
        self.leave_core(id, now);
        self.ready.push_back(id);
        true
    }

    /// Whether a thread waits for a core.
    fn anyone_ready(&mut self) -> bool {
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.expired);
        }
        !self.ready.is_empty()
    }

    /// Idle cores take ready threads.
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
