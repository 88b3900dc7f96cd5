//! One transaction's lock on one row: a state machine that consumes the results of one batch and
//! produces the next.
//!
//! # Invariants
//! 1. A lock word and a slot of the array change only by CAS and FAA, which exclude one another on
//!    every fabric.
//! 2. A holder sets its array slot after it has acquired the lock and clears the slot before it
//!    releases the lock. So a free lock word implies an empty array. A word whose count differs
//!    from the array's is being changed, and is read again.
//! 3. A payload is read while the lock is held. It is written before the atomic that releases the
//!    lock, on the same queue pair, which orders a WRITE before a later atomic.
//! 4. Every release verifies the word it finds. A lock that another transaction has changed is an
//!    error.

mod kind;
mod line;
mod log;
mod release;

pub(crate) use log::Interrupted;

use crate::kinds::Kinds;
use crate::mailbox::{Connected, LinePlace, Word};
use crate::mode::{HOLDERS, READER, holders, is_exclusive};
use crate::traps::{Planted, Trap};
use crate::{AbortCause, Protocol, RemoteStats, RowId, StartTimestamp, Table};
use clearway_fabric::{FabricWorker, Request, ScratchRange, Verb};

/// Scratch words of an access before its payload: the lock word and the array, as last read or
/// found, and then the old value of a slot.
pub(crate) const SCRATCH_HEADER: usize = 2 + HOLDERS;

/// The scratch word that receives a slot's old value; adjoins the payload.
const SLOT_OLD: usize = SCRATCH_HEADER - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Not,
    Shared,
    Exclusive,
}

/// The batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// None: the lock is held, or released.
    Rest,
    /// CAS of the lock word by an exclusive requester; with one-round locks also the READ of the
    /// payload.
    TakeExclusive,
    /// READ of the metadata by an exclusive requester that found the row locked.
    ReadHolders,
    /// READ of the metadata by a reader.
    ReadWord,
    /// CAS of the lock word by a reader that found this value.
    TakeShared(u64),
    /// FAA of the lock word by a reader, with the READ of the payload.
    AddReader,
    /// FAA that reverts the one of `AddReader`.
    BackOut,
    /// READ of the payload, with the CAS of a slot if there is an array.
    ReadPayload,
    /// CAS of another slot.
    SetSlot,
    /// The whole release of an exclusive holder.
    ReleaseExclusive,
    /// READ of the lock word by a reader that releases.
    ReadForRelease,
    /// CAS of the lock word by a reader that found this value, after the CAS of its slot.
    ReleaseShared(u64),
    /// CAS that restores the slot, because the lock word had changed. A READ of the word follows.
    PutSlotBack,
    /// FAA that releases a reader's one-round lock.
    SubtractReader,
    /// READ of the payload without a lock.
    Peek,
    /// CAS of the lock word of a line; the requester expects this value.
    TakeLine(u64),
    /// WRITE to the predecessor's mailbox.
    NotifyPredecessor,
    /// None: waits for a word of the worker's own mailbox.
    AwaitWord(Word),
    /// The holder's release in a mode with lines.
    ReleaseLine,
    /// WRITE to the successor's mailbox.
    HandOver,
    /// WRITE of the changed row to the owner's log.
    Log,
    /// WRITE of a record's header, and CAS of its mark, which had this value.
    Seal(u64),
}

/// The state of an access after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A batch must be posted.
    Posted,
    /// A batch must be posted to the node of another worker's mailbox.
    PostedTo(LinePlace),
    /// There is nothing to post: the access waits for its worker's mailbox.
    Parked,
    /// The lock is held, and the payload is in the scratch area.
    Locked,
    /// The lock was refused and is not held.
    Refused(AbortCause),
    /// The lock has been released.
    Released,
    /// The payload is in the scratch area, read without a lock.
    Peeked,
    /// The WRITE or CAS to the owner's log has completed.
    Logged,
    /// The lock word or array does not have the expected value.
    LockLost,
}

/// The environment of a step.
pub(crate) struct Context<'a, W> {
    pub table: &'a Table,
    pub txn: StartTimestamp,
    pub fabric: &'a mut W,
    /// The verbs to post next, in this order.
    pub batch: &'a mut Vec<Request>,
    pub stats: &'a mut RemoteStats,
    /// The newest logical time seen in a lock word.
    pub newest: &'a mut u64,
    pub planted: Planted,
    pub kinds: &'a mut Kinds,
    pub mailbox: Option<&'a Connected<'a>>,
}

impl<'a, W> Context<'a, W> {
    fn mailbox(&self) -> &'a Connected<'a> {
        self.mailbox.expect("a worker of a table with lines has a mailbox")
    }
}

#[derive(Debug)]
pub(crate) struct Access {
    pub row: RowId,
    /// Whether the requested or held lock is for update.
    pub exclusive: bool,
    pub held: Held,
    /// Adaptive mode: a reader requests or holds an exclusive lock.
    reads: bool,
    pub dirty: bool,
    /// First word of its scratch range.
    scratch: usize,
    step: Step,
    /// The holder's slot in the array, if `entered`.
    slot: usize,
    entered: bool,
    /// Verbs of the last batch that have not completed.
    pub pending: usize,
    /// Its place among all accesses of its worker.
    place: usize,
    /// It has waited for the lock.
    waited: bool,
    /// The call that a pause for recovery has interrupted.
    pub interrupted: Option<Interrupted>,
}

impl Access {
    pub fn new(row: RowId, place: usize, scratch: usize) -> Self {
        let (held, step, waited) = (Held::Not, Step::Rest, false);
        Self {
            row,
            exclusive: false,
            held,
            reads: false,
            dirty: false,
            scratch,
            step,
            slot: 0,
            entered: false,
            pending: 0,
            place,
            waited,
            interrupted: None,
        }
    }

    /// Returns the payload's first scratch word.
    pub fn payload(&self) -> usize {
        self.scratch + SCRATCH_HEADER
    }

    /// Starts to acquire the lock. A held shared lock is upgraded.
    pub fn lock<W: FabricWorker>(&mut self, exclusive: bool, cx: &mut Context<'_, W>) -> Progress {
        self.exclusive = exclusive;
        let mode = cx.table.mode;
        if mode.has_line() {
            self.take_free(cx)
        } else if exclusive || !mode.shares() || self.reads_alone(cx) {
            self.take_exclusive(cx)
        } else if mode.is_one_round() {
            self.faa(READER, cx);
            self.read_payload(cx);
            self.post(Step::AddReader)
        } else {
            self.read_word(Step::ReadWord, cx)
        }
    }

    /// Starts to read the payload without a lock.
    pub fn peek<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        cx.batch.push(self.payload_read(cx));
        self.post(Step::Peek)
    }

    /// Starts to release the lock, with the new payload if `commit`.
    pub fn release<W: FabricWorker>(&mut self, commit: bool, cx: &mut Context<'_, W>) -> Progress {
        match self.held {
            Held::Not => Progress::Released,
            Held::Exclusive if cx.table.mode.has_line() => self.release_line(commit, cx),
            _ if self.releases_exclusive(cx) => self.release_exclusive(commit, cx),
            Held::Shared if cx.table.mode.is_one_round() => {
                self.faa(READER.wrapping_neg(), cx);
                self.post(Step::SubtractReader)
            }
            Held::Shared | Held::Exclusive => self.read_word(Step::ReadForRelease, cx),
        }
    }

    /// Continues after the batch has completed.
    pub fn advance<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        let found = cx.fabric.load(self.scratch);
        let slot_found = cx.fabric.load(self.scratch + SLOT_OLD);
        match self.step {
            Step::Rest => unreachable!("no batch is in flight"),
            Step::TakeExclusive => self.took_exclusive(found, cx),
            Step::ReadHolders => self.judge_holders(found, cx),
            Step::ReadWord => self.judge_word(found, cx),
            Step::TakeShared(seen) if found == seen => {
                self.held = Held::Shared;
                self.slot = if cx.table.mode.has_array() { self.free_slot(cx) } else { 0 };
                self.announce(cx)
            }
            Step::TakeShared(_) => {
                cx.stats.atomicity_retries += 1;
                self.read_word(Step::ReadWord, cx)
            }
            Step::AddReader if is_exclusive(found) => {
                self.faa(READER.wrapping_neg(), cx);
                self.post(Step::BackOut)
            }
            Step::AddReader => {
                self.held = Held::Shared;
                self.rest(Progress::Locked)
            }
            Step::BackOut => self.rest(Progress::Refused(AbortCause::Conflict)),
            Step::ReadPayload | Step::SetSlot if self.entered && slot_found != 0 => {
                self.try_next_slot(Step::SetSlot, cx)
            }
            Step::ReadPayload | Step::SetSlot => {
                self.count_read(cx);
                self.rest(Progress::Locked)
            }
            Step::ReleaseExclusive => self.released_exclusive(found, slot_found, cx),
            Step::ReadForRelease => self.release_shared(found, cx),
            Step::ReleaseShared(seen) => self.released_shared(seen, found, slot_found, cx),
            Step::PutSlotBack if slot_found != 0 => self.try_next_slot(Step::PutSlotBack, cx),
            Step::PutSlotBack => self.read_word(Step::ReadForRelease, cx),
            Step::SubtractReader if holders(found) == 0 => Progress::LockLost,
            Step::SubtractReader => self.gone(),
            Step::Peek => self.rest(Progress::Peeked),
            Step::TakeLine(expected) => self.took_line(expected, found, cx),
            Step::NotifyPredecessor | Step::HandOver => self.notified(cx),
            Step::AwaitWord(word) => self.check_mailbox(word, cx),
            Step::Log => self.rest(Progress::Logged),
            Step::Seal(mark) if found == mark => self.rest(Progress::Logged),
            Step::Seal(_) => Progress::LockLost,
            Step::ReleaseLine => self.released_line(found, slot_found, cx),
        }
    }

    // Acquiring a lock.

    fn take_exclusive<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        let free = self.word_to_upgrade();
        self.reads = cx.table.mode.is_adaptive() && !self.exclusive;
        self.cas(free, self.exclusive_word(cx), cx);
        if cx.table.mode.is_one_round() && self.held == Held::Not {
            self.read_payload(cx);
        }
        self.post(Step::TakeExclusive)
    }

    /// Returns the lock word that an exclusive requester may replace: free, or held by itself
    /// alone.
    fn word_to_upgrade(&self) -> u64 {
        if self.held == Held::Shared { READER } else { 0 }
    }

    fn took_exclusive<W: FabricWorker>(&mut self, found: u64, cx: &mut Context<'_, W>) -> Progress {
        let mode = cx.table.mode;
        if self.reads || found != self.word_to_upgrade() {
            self.note(found, cx);
        }
        if found == self.word_to_upgrade() {
            let upgraded = self.held == Held::Shared;
            self.held = Held::Exclusive;
            if upgraded || mode.is_one_round() {
                return self.rest(Progress::Locked);
            }
            self.slot = 0;
            return self.announce(cx);
        }
        if self.reads && !is_exclusive(found) {
            return self.join(found, cx);
        }
        match (mode.protocol, mode.exclusive_holder(found)) {
            (Protocol::NoWait, _) => self.rest(Progress::Refused(AbortCause::Conflict)),
            (Protocol::WaitDie, Some(holder)) => match self.older_than_me(&[holder.0], cx) {
                Some(holder) => self.rest(Progress::Refused(AbortCause::Older(holder))),
                None => {
                    cx.stats.wait_retries += 1;
                    self.count_wait(cx);
                    // Adaptive mode: a reader may prefer a shared lock by now.
                    self.lock(self.exclusive, cx)
                }
            },
            (Protocol::WaitDie, None) => self.read_word(Step::ReadHolders, cx),
        }
    }

    fn judge_holders<W: FabricWorker>(&mut self, word: u64, cx: &mut Context<'_, W>) -> Progress {
        let Some(named) = self.named(word, cx) else { return self.reread(Step::ReadHolders, cx) };
        if word == self.word_to_upgrade() {
            cx.stats.atomicity_retries += 1;
            return self.take_exclusive(cx);
        }
        self.wait_or_die(&named, Step::ReadHolders, cx)
    }

    fn judge_word<W: FabricWorker>(&mut self, word: u64, cx: &mut Context<'_, W>) -> Progress {
        self.note(word, cx);
        if !cx.table.mode.has_array() {
            if is_exclusive(word) {
                return self.rest(Progress::Refused(AbortCause::Conflict));
            }
            return self.share(word, cx);
        }
        let Some(named) = self.named(word, cx) else { return self.reread(Step::ReadWord, cx) };
        if is_exclusive(word) {
            return self.wait_or_die(&named, Step::ReadWord, cx);
        }
        if holders(word) >= HOLDERS as u64 {
            return self.rest(Progress::Refused(AbortCause::TooManyReaders));
        }
        self.share(word, cx)
    }

    /// Adds a reader to a lock word without an exclusive holder.
    fn share<W: FabricWorker>(&mut self, word: u64, cx: &mut Context<'_, W>) -> Progress {
        self.cas(word, word + READER, cx);
        self.post(Step::TakeShared(word))
    }

    /// Returns the holders in word and array, or `None` if the two are inconsistent.
    fn named<W: FabricWorker>(&self, word: u64, cx: &Context<'_, W>) -> Option<[u64; HOLDERS]> {
        if let Some(holder) = cx.table.mode.exclusive_holder(word) {
            return Some([holder.0, 0, 0, 0]);
        }
        let array = self.array(cx);
        (holders(word) == array.iter().filter(|holder| **holder != 0).count() as u64)
            .then_some(array)
    }

    /// Reads the metadata again because word and array are inconsistent. That is not a conflict and
    /// no reason to abort.
    fn reread<W: FabricWorker>(&mut self, step: Step, cx: &mut Context<'_, W>) -> Progress {
        if cx.planted.has(Trap::AbortOnBusyMetadata) {
            return self.rest(Progress::Refused(AbortCause::Conflict));
        }
        cx.stats.rereads += 1;
        self.read_word(step, cx)
    }

    fn wait_or_die<W: FabricWorker>(
        &mut self,
        array: &[u64; HOLDERS],
        step: Step,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        if let Some(holder) = self.older_than_me(array, cx) {
            return self.rest(Progress::Refused(AbortCause::Older(holder)));
        }
        cx.stats.wait_retries += 1;
        self.count_wait(cx);
        self.read_word(step, cx)
    }

    /// Counts a verb of a wait, and the wait itself once.
    fn count_wait<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) {
        let first = u64::from(!std::mem::replace(&mut self.waited, true));
        cx.stats.waits += first;
        if self.is_remote(cx) {
            cx.stats.remote_wait_verbs += 1;
            cx.stats.remote_waits += first;
        }
    }

    /// Returns true if the row belongs to another node.
    fn is_remote<W: FabricWorker>(&self, cx: &Context<'_, W>) -> bool {
        cx.table.owners[self.row.owner as usize].address.node != cx.fabric.address().node
    }

    /// Returns a holder that is older than the transaction. Records the logical time of all
    /// holders.
    fn older_than_me<W>(&self, found: &[u64], cx: &mut Context<'_, W>) -> Option<StartTimestamp> {
        let others = found.iter().map(|word| StartTimestamp(*word)).filter(|other| other.0 != 0);
        for other in others.clone() {
            *cx.newest = other.count().max(*cx.newest);
        }
        others.min().filter(|other| *other < cx.txn)
    }

    fn array<W: FabricWorker>(&self, cx: &Context<'_, W>) -> [u64; HOLDERS] {
        let mut array = [0; HOLDERS];
        cx.fabric.load_range(self.scratch + 1, &mut array);
        array
    }

    fn free_slot<W: FabricWorker>(&self, cx: &Context<'_, W>) -> usize {
        self.array(cx).iter().position(|holder| *holder == 0).unwrap_or(0)
    }

    /// Enters the new holder into the array, if there is one, and reads the payload.
    fn announce<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        let mode = cx.table.mode;
        // In adaptive mode the word itself names an exclusive holder. In a line it names the last
        // transaction, and recovery must know the first.
        self.entered = (mode.has_array() && !(mode.is_adaptive() && self.held == Held::Exclusive))
            || (mode.has_line() && cx.table.is_logged());
        if self.entered {
            self.set_slot(cx);
        }
        self.read_payload(cx);
        self.post(Step::ReadPayload)
    }

    /// Tries the next slot, because another reader took this one. At most 4 readers hold the row,
    /// so another slot is free.
    fn try_next_slot<W: FabricWorker>(&mut self, step: Step, cx: &mut Context<'_, W>) -> Progress {
        if cx.table.mode.has_line() {
            return Progress::LockLost;
        }
        cx.stats.atomicity_retries += 1;
        self.slot = (self.slot + 1) % HOLDERS;
        self.set_slot(cx);
        self.post(step)
    }

    // Verbs.

    fn push<W>(&self, verb: Verb, cx: &mut Context<'_, W>) {
        cx.batch.push(Request::new(0, verb));
    }

    fn cas<W>(&self, expected: u64, new: u64, cx: &mut Context<'_, W>) {
        self.push(
            Verb::Cas { remote: cx.table.word(self.row, 0), expected, new, old: self.scratch },
            cx,
        );
    }

    fn faa<W>(&self, add: u64, cx: &mut Context<'_, W>) {
        self.push(Verb::Faa { remote: cx.table.word(self.row, 0), add, old: self.scratch }, cx);
    }

    fn set_slot<W>(&self, cx: &mut Context<'_, W>) {
        // The trap compares the slot with 0 where it should assign.
        let new = if cx.planted.has(Trap::CompareOwner) { 0 } else { cx.txn.0 };
        self.cas_slot(0, new, cx);
    }

    fn clear_slot<W>(&self, cx: &mut Context<'_, W>) {
        self.cas_slot(cx.txn.0, 0, cx);
    }

    fn cas_slot<W>(&self, expected: u64, new: u64, cx: &mut Context<'_, W>) {
        let remote = cx.table.word(self.row, 1 + self.slot);
        self.push(Verb::Cas { remote, expected, new, old: self.scratch + SLOT_OLD }, cx);
    }

    /// Reads the metadata, or only the word for a reader's release.
    fn read_word<W>(&mut self, step: Step, cx: &mut Context<'_, W>) -> Progress {
        let words = if step == Step::ReadForRelease { 1 } else { cx.table.mode.header_words() };
        let local = ScratchRange::new(self.scratch, words);
        self.push(Verb::Read { remote: cx.table.word(self.row, 0), local }, cx);
        self.post(step)
    }

    /// Reads the payload after the verbs that are in the batch.
    fn read_payload<W: FabricWorker>(&self, cx: &mut Context<'_, W>) {
        let read = self.payload_read(cx);
        // Only a one-round lock's atomic must take effect first. Other atomics have already
        // completed.
        let fence = cx.table.mode.is_one_round() && !cx.fabric.guarantees().reads_follow_atomics;
        cx.batch.push(if fence { read.fenced() } else { read });
    }

    fn payload_read<W>(&self, cx: &Context<'_, W>) -> Request {
        let local = ScratchRange::new(self.payload(), cx.table.payload_words_of(self.row));
        Request::new(
            0,
            Verb::Read { remote: cx.table.word(self.row, cx.table.mode.header_words()), local },
        )
    }

    fn post(&mut self, step: Step) -> Progress {
        self.step = step;
        Progress::Posted
    }

    fn rest(&mut self, progress: Progress) -> Progress {
        self.step = Step::Rest;
        progress
    }

    fn gone(&mut self) -> Progress {
        self.held = Held::Not;
        self.rest(Progress::Released)
    }
}
