//! Releases a lock, and writes the payload if the transaction commits.

use super::{Access, Context, Progress, Step};
use crate::mode::{HOLDERS, READER, holders, is_exclusive};
use crate::traps::Trap;
use clearway_fabric::{FabricWorker, ScratchRange, Verb};

impl Access {
    pub(super) fn release_exclusive<W: FabricWorker>(
        &mut self,
        commit: bool,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        let mode = cx.table.mode;
        if self.plant_release(commit, cx) {
            return self.post(Step::ReleaseExclusive);
        }
        if commit && self.dirty {
            self.write_payload(cx);
        }
        if self.entered {
            self.clear_slot(cx);
        }
        if mode.is_one_round() {
            // The word may count readers that will back out.
            self.faa(self.exclusive_word(cx).wrapping_neg(), cx);
        } else {
            self.cas(self.exclusive_word(cx), 0, cx);
        }
        self.post(Step::ReleaseExclusive)
    }

    pub(super) fn released_exclusive<W: FabricWorker>(
        &mut self,
        found: u64,
        slot: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        let unverified =
            cx.planted.has(Trap::UnlockWithPayload) || cx.planted.has(Trap::ReleaseByWrite);
        // A planted word is not the table's.
        let own_word = found == self.exclusive_word(cx) || cx.table.says_exclusive(found, cx.txn);
        if !unverified && !(own_word && (!self.entered || slot == cx.txn.0)) {
            return Progress::LockLost;
        }
        self.gone()
    }

    pub(super) fn release_shared<W: FabricWorker>(
        &mut self,
        word: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        if holders(word) == 0 || is_exclusive(word) {
            return Progress::LockLost;
        }
        if cx.table.mode.has_array() {
            self.clear_slot(cx);
        }
        if cx.planted.has(Trap::ReleaseByWrite) {
            cx.fabric.store(self.scratch, word - READER);
            let local = ScratchRange::new(self.scratch, 1);
            self.push(Verb::Write { local, remote: cx.table.word(self.row, 0) }, cx);
            return self.post(Step::ReleaseShared(word - READER));
        }
        self.cas(word, word - READER, cx);
        self.post(Step::ReleaseShared(word))
    }

    pub(super) fn released_shared<W: FabricWorker>(
        &mut self,
        seen: u64,
        found: u64,
        slot: u64,
        cx: &mut Context<'_, W>,
    ) -> Progress {
        if cx.table.mode.has_array() && slot != cx.txn.0 {
            return Progress::LockLost;
        }
        if found == seen {
            return self.gone();
        }
        cx.stats.atomicity_retries += 1;
        if !cx.table.mode.has_array() {
            return self.read_word(Step::ReadForRelease, cx);
        }
        self.set_slot(cx);
        self.post(Step::PutSlotBack)
    }

    /// Pushes a release that the source lists as a trap.
    pub(super) fn plant_release<W: FabricWorker>(
        &mut self,
        commit: bool,
        cx: &mut Context<'_, W>,
    ) -> bool {
        let header = cx.table.mode.header_words();
        let payload = ScratchRange::new(self.payload(), cx.table.payload_words_of(self.row));
        let word = cx.table.word(self.row, 0);
        let write = commit && self.dirty;
        if cx.planted.has(Trap::UnlockWithPayload) && write {
            let start = self.payload() - header;
            cx.fabric.store_range(start, &[0; 1 + HOLDERS][..header]);
            let local = ScratchRange::new(start, header + payload.words);
            self.push(Verb::Write { local, remote: word }, cx);
            return true;
        }
        if !cx.planted.has(Trap::ReleaseByWrite) {
            return false;
        }
        if write {
            self.push(Verb::Write { local: payload, remote: cx.table.word(self.row, header) }, cx);
        }
        if cx.table.mode.has_array() {
            self.clear_slot(cx);
        }
        cx.fabric.store(self.scratch, 0);
        self.push(Verb::Write { local: ScratchRange::new(self.scratch, 1), remote: word }, cx);
        true
    }

    pub(super) fn write_payload<W: FabricWorker>(&mut self, cx: &mut Context<'_, W>) {
        let local = ScratchRange::new(self.payload(), cx.table.payload_words_of(self.row));
        let remote = cx.table.word(self.row, cx.table.mode.header_words());
        self.push(Verb::Write { local, remote }, cx);
    }
}
