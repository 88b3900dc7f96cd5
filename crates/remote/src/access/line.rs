//! Taking and releasing a lock that has a line: see [`crate::mailbox`].

use super::{Access, Context, Held, Progress, Step};
use crate::AbortCause;
use crate::mailbox::{Stand, Word};
use crate::traps::Trap;
use clearway_fabric::{FabricWorker, ScratchRange, Verb};

impl Access {
    fn stand<W>(&self, cx: &Context<'_, W>) -> Stand {
        Stand::new(cx.txn, self.place)
    }

    /// Takes the lock if it is free.
    pub(super) fn take_free<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        self.cas(0, self.stand(cx).0, cx);
        self.post(Step::TakeLine(0))
    }

    /// Judges what a CAS that expected `expected` has found.
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
            return self.tell(Stand(expected), Word::Next, Step::TellBefore, cx);
        }
        let last = Stand(found).start();
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
        self.cas(found, self.stand(cx).0, cx);
        self.post(Step::TakeLine(found))
    }

    /// Tells the one before of this access, or hands the lock over.
    fn tell<W: FabricWorker>(
        &mut self,
        to: Stand,
        word: Word,
        step: Step,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        let from = self.stand(cx);
        if word == Word::Next {
            cx.stats.wait_retries += 1;
        }
        if to.worker() == from.worker() {
            cx.mailbox().put(to, word, from);
            self.step = step;
            return self.told(cx);
        }
        let Some(remote) = cx.mailbox().address(to, word) else { return Progress::LockLost };
        cx.stats.wait_verbs += u64::from(word == Word::Next);
        cx.fabric.store(self.scratch, from.0);
        self.push(Verb::Write { local: ScratchRange::new(self.scratch, 1), remote }, cx);
        self.step = step;
        Progress::PostedTo(to)
    }

    pub(super) fn told<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) -> Progress {
        match self.step {
            Step::TellBefore => self.watch(Word::HandOver, cx),
            _ => self.gone(),
        }
    }

    /// Waits for a word of the own mailbox.
    fn watch<W: FabricWorker>(&mut self, word: Word, cx: &mut Context<'_, W>) -> Progress {
        self.step = Step::Watch(word);
        self.look(word, cx)
    }

    pub(super) fn look<W: FabricWorker>(
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
            (Some(next), Word::Next) => self.tell(next, Word::HandOver, Step::HandOver, cx),
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
        self.cas(self.stand(cx).0, 0, cx);
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
        if found == self.stand(cx).0 {
            return self.gone();
        }
        if found == 0 {
            return Progress::LockLost;
        }
        self.watch(Word::Next, cx)
    }
}
