//! Logs a change before it is made, and interrupts an access for recovery.

use super::{Access, Context, Held, Progress, SLOT_OLD, Step};
use crate::StartTimestamp;
use crate::mailbox::Word;
use crate::recovery::HeldLock;
use crate::table::RECORD_HEADER;
use clearway_fabric::{FabricWorker, RemoteAddr, ScratchRange, Verb};

/// A call that a pause has interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    Lock,
    Peek,
    Release,
}

impl Access {
    fn record<W>(&self, word: usize, cx: &Context<'_, W>) -> RemoteAddr {
        let slot = self.place / cx.table.log.rows as usize;
        let word = cx.table.record(cx.txn.worker(), slot) + word;
        RemoteAddr { word: word as u64, ..cx.table.word(self.row, 0) }
    }

    /// Starts to write row and payload into the owner's log.
    pub fn log<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        let entry = self.place % cx.table.log.rows as usize;
        let remote = self.record(RECORD_HEADER + entry * cx.table.entry_words(), cx);
        let start = self.scratch + SLOT_OLD;
        cx.fabric.store(start, self.row.index.into());
        let local = ScratchRange::new(start, 1 + cx.table.payload_words_of(self.row));
        self.push(Verb::Write { local, remote }, cx);
        self.post(Step::Log)
    }

    /// Starts to validate the record at this access's owner. `owners` is the bit set of owners that
    /// have a record, and `entries` that of the entries of this owner's record.
    pub fn seal<W: FabricWorker>(
        &mut self,
        (owners, entries): (u64, u64),
        mark: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        cx.fabric.store(self.scratch + 1, owners);
        cx.fabric.store(self.scratch + 2, entries);
        let local = ScratchRange::new(self.scratch + 1, RECORD_HEADER - 1);
        self.push(Verb::Write { local, remote: self.record(1, cx) }, cx);
        // Ordered after the WRITE. The WRITEs of the entries have completed on the same queue pair.
        let remote = self.record(0, cx);
        self.push(Verb::Cas { remote, expected: mark, new: cx.txn.0, old: self.scratch }, cx);
        self.post(Step::Seal(mark))
    }

    /// Discards what is in flight. A lock whose call has not finished is not held. Returns the
    /// interrupted call, if any.
    pub fn pause(&mut self) -> Option<Interrupted> {
        self.pending = 0;
        let call = match std::mem::replace(&mut self.step, Step::Rest) {
            Step::Rest => return None,
            Step::Peek => Interrupted::Peek,
            Step::ReadPayload | Step::SetSlot => {
                self.held = Held::Not;
                self.entered = false;
                Interrupted::Lock
            }
            Step::TakeExclusive
            | Step::ReadHolders
            | Step::ReadWord
            | Step::TakeShared(_)
            | Step::AddReader
            | Step::BackOut
            | Step::TakeLine(_)
            | Step::NotifyPredecessor
            | Step::AwaitWord(Word::HandOver) => Interrupted::Lock,
            _ => Interrupted::Release,
        };
        Some(call)
    }

    /// Describes this lock, which a survivor holds.
    pub fn held_lock(&self, holder: StartTimestamp) -> HeldLock {
        let (exclusive, slot) = (self.held == Held::Exclusive, self.entered.then_some(self.slot));
        HeldLock { row: self.row, holder, exclusive, slot, place: self.place }
    }
}
