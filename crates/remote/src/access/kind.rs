//! A reader's choice between a mutual and a shared lock: see [`crate::kinds`].

use super::{Access, Context, Held, Progress, Step};
use crate::Protocol;
use crate::traps::Trap;
use clearway_fabric::FabricWorker;

impl Access {
    /// Returns true if a reader should take a mutual lock.
    pub(super) fn reads_alone<W>(&self, cx: &Context<'_, W>) -> bool {
        cx.table.mode.is_adaptive() && self.held == Held::Not && !cx.kinds.shares(self.row)
    }

    /// Records whether a reader found other holders in this lock word, or that a writer did.
    pub(super) fn note<W>(&self, word: u64, cx: &mut Context<'_, W>) {
        if cx.table.mode.is_adaptive() {
            cx.kinds.note(self.row, word != 0);
        }
    }

    /// Switches to a shared lock: a reader that wanted a mutual lock found sharing readers.
    pub(super) fn join<W: FabricWorker>(&mut self, word: u64, cx: &mut Context<'_, W>) -> Progress {
        self.reads = false;
        if cx.table.mode.protocol == Protocol::WaitDie {
            // The holders' timestamps are in the array.
            return self.read_word(Step::ReadWord, cx);
        }
        self.share(word, cx)
    }

    /// Returns the lock word while this access holds the row exclusively.
    pub(super) fn exclusive_word<W>(&self, cx: &Context<'_, W>) -> u64 {
        if self.reads && cx.planted.has(Trap::MutualWord) {
            return cx.txn.0;
        }
        cx.table.exclusive_word(cx.txn)
    }

    /// Returns true if an exclusive lock must be released. The trap uses the present choice
    /// instead.
    pub(super) fn releases_exclusive<W>(&self, cx: &Context<'_, W>) -> bool {
        if cx.planted.has(Trap::ReleaseByChoice) && !self.exclusive {
            return !cx.kinds.shares(self.row);
        }
        self.held == Held::Exclusive
    }

    /// Counts a reader's lock by its kind.
    pub(super) fn count_read<W>(&self, cx: &mut Context<'_, W>) {
        match self.held {
            _ if !cx.table.mode.is_adaptive() || self.exclusive => {}
            Held::Exclusive => cx.stats.reads_alone += 1,
            _ => cx.stats.reads_shared += 1,
        }
    }
}
