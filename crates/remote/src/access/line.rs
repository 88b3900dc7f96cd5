//! Acquires and releases a lock with a line: see [`crate::mailbox`].

use super::{Access, Context, Held, Progress, Step};
use crate::AbortCause;
use crate::mailbox::{LinePlace, Word};
use crate::traps::Trap;
use clearway_fabric::{FabricWorker, ScratchRange, Verb};

impl Access {
    fn line_place<W>(&self, cx: &Context<'_, W>) -> LinePlace {
        LinePlace::new(cx.txn, self.place)
    }

    /// Takes the lock if it is free.
    pub(super) fn take_free<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        self.cas(0, self.line_place(cx).0, cx);
        self.post(Step::TakeLine(0))
    }

    /// Handles the result of a CAS that expected `expected`.
    pub(super) fn took_line<W: FabricWorker>(
        &mut self,
        expected: u64,
        found: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        if found == expected {
            if expected == 0 {
                self.held = Held::Exclusive;
                return self.announce(cx);
            }
            return self.notify(LinePlace(expected), Word::Next, Step::NotifyPredecessor, cx);
        }
        let last = LinePlace(found).start();
        *cx.newest = last.count().max(*cx.newest);
        if found != 0 && last < cx.txn {
            return self.rest(Progress::Refused(AbortCause::Older(last)));
        }
        if expected != 0 {
            cx.stats.atomicity_retries += 1;
        }
        if found != 0 || self.waited {
            self.count_wait(cx);
        }
        self.cas(found, self.line_place(cx).0, cx);
        self.post(Step::TakeLine(found))
    }

    /// Notifies the predecessor of this access, or hands the lock over.
    fn notify<W: FabricWorker>(
        &mut self,
        to: LinePlace,
        word: Word,
        step: Step,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        let from = self.line_place(cx);
        if word == Word::Next {
            cx.stats.wait_retries += 1;
        }
        if to.worker() == from.worker() {
            cx.mailbox().put(to, word, from);
            self.step = step;
            return self.notified(cx);
        }
        let Some(remote) = cx.mailbox().address(to, word) else { return Progress::LockLost };
        if word == Word::Next {
            let crosses = cx.mailbox().node(to) != Some(cx.fabric.address().node);
            cx.stats.remote_wait_verbs += u64::from(crosses && self.is_remote(cx));
        }
        cx.fabric.store(self.scratch, from.0);
        self.push(Verb::Write { local: ScratchRange::new(self.scratch, 1), remote }, cx);
        self.step = step;
        Progress::PostedTo(to)
    }

    pub(super) fn notified<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        match self.step {
            Step::NotifyPredecessor => self.await_word(Word::HandOver, cx),
            _ => self.gone(),
        }
    }

    /// Waits for a word of the worker's own mailbox.
    fn await_word<W: FabricWorker>(&mut self, word: Word, cx: &mut Context<'_, W>) -> Progress {
        self.step = Step::AwaitWord(word);
        self.check_mailbox(word, cx)
    }

    pub(super) fn check_mailbox<W: FabricWorker>(
        &mut self,
        word: Word,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        match (cx.mailbox().take(self.place, word), word) {
            (None, _) => Progress::Parked,
            (Some(_), Word::HandOver) => {
                self.held = Held::Exclusive;
                self.announce(cx)
            }
            (Some(next), Word::Next) => self.notify(next, Word::HandOver, Step::HandOver, cx),
        }
    }

    pub(super) fn release_line<W: FabricWorker>(
        &mut self,
        commit: bool,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        let write = commit && self.dirty;
        let late = cx.planted.has(Trap::PayloadAfterRelease);
        if write && !late {
            self.write_payload(cx);
        }
        if self.entered {
            self.clear_slot(cx);
        }
        self.cas(self.line_place(cx).0, 0, cx);
        if write && late {
            self.write_payload(cx);
        }
        self.post(Step::ReleaseLine)
    }

    pub(super) fn released_line<W: FabricWorker>(
        &mut self,
        found: u64,
        slot: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        if self.entered && slot != cx.txn.0 {
            return Progress::LockLost;
        }
        if found == self.line_place(cx).0 {
            return self.gone();
        }
        if found == 0 {
            return Progress::LockLost;
        }
        self.await_word(Word::Next, cx)
    }
}
