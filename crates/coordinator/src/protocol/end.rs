//! The end of a transaction: waiting for those ahead, the decision, and its announcement.

use super::{Control, Coordination, Outgoing, Phase};
use clearway_partition::{Failure, Reply};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId};
use std::cmp::Reverse;

/// A wait for the transactions ahead in progress.
#[derive(Debug)]
pub(super) struct Settling {
    /// Where it is still behind others. The last one has been asked.
    behind: Vec<PartitionId>,
    /// Whether increment locks are converted afterwards.
    converts: bool,
}

/// The announcement of the end in progress.
#[derive(Debug)]
pub(super) struct Ending {
    unanswered: usize,
    failed: Option<Failure>,
}

impl Ending {
    /// Returns the result if this is the last answer.
    pub(super) fn answered(
        &mut self,
        answer: &Result<Reply, Failure>,
    ) -> Option<Result<bool, Failure>> {
        if let Err(failure) = answer {
            self.failed = Some(failure.clone());
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        (self.unanswered == 0).then(|| self.failed.take().map_or(Ok(true), Err))
    }
}

impl Coordination {
    /// Waits for the transactions that this one is behind.
    pub fn settle(&mut self, out: &mut Vec<Outgoing>) {
        self.start_settling(false, out);
    }

    /// Prepares for a statement that reads without locks. Under exclusive locks, it would see the
    /// changes of everyone who has changed the transaction's rows before it, and nobody would read
    /// after changing them before it ends. So it waits for the transactions that it is behind, and
    /// converts its increment locks.
    pub fn prepare_to_read(&mut self, out: &mut Vec<Outgoing>) {
        self.start_settling(true, out);
    }

    fn start_settling(&mut self, converts: bool, out: &mut Vec<Outgoing>) {
        if self.undone {
            return self.done(Err(Failure::Undone), out);
        }
        let mut behind = match canary::on(Bug::SkippedDependency) {
            true => Vec::new(),
            false => self.behind.clone(),
        };
        // Descending: they are asked from the end.
        behind.sort_unstable_by_key(|partition| Reverse(*partition));
        behind.dedup();
        self.phase = Phase::Settling(Box::new(Settling { behind, converts }));
        self.settle_next(out);
    }

    fn settle_next(&mut self, out: &mut Vec<Outgoing>) {
        let Phase::Settling(settling) = &self.phase else { return };
        if let Some(next) = settling.behind.last() {
            return out.push(Outgoing::Send(*next, Control::Settle));
        }
        match self.increments.first().filter(|_| settling.converts) {
            Some(next) => out.push(Outgoing::Send(*next, Control::ConvertIncrements)),
            None => self.done(Ok(true), out),
        }
    }

    pub(super) fn settled_at(&mut self, from: PartitionId, out: &mut Vec<Outgoing>) {
        let Phase::Settling(settling) = &mut self.phase else { return };
        let behind = &mut settling.behind;
        if behind.pop().is_none() {
            self.increments.retain(|at| *at != from);
        } else if behind.is_empty() {
            // Not earlier: after an error, ROLLBACK TO may restore the block, which is then still
            // behind them. Only another UPDATE of its own can put it behind others again.
            self.behind.clear();
        }
        self.settle_next(out);
    }

    /// Sorts the participants so that those with the largest key are told the end first.
    pub fn order_end<K: Ord>(&mut self, key: impl Fn(PartitionId) -> K) {
        // Usually nothing waits anywhere, and sorting would allocate.
        if !self.participants.is_sorted_by_key(|partition| Reverse(key(*partition))) {
            self.participants.sort_by_cached_key(|partition| Reverse(key(*partition)));
        }
    }

    /// Commits a transaction that is behind no other.
    pub fn commit(&mut self, out: &mut Vec<Outgoing>) {
        debug_assert!(
            !self.is_behind() || canary::on(Bug::SkippedDependency),
            "invariant 5: {} has not settled",
            self.id
        );
        if self.wrote {
            out.push(Outgoing::Log);
        } else {
            self.finish(Some(Lsn(0)), out);
        }
    }

    /// Records that a participant has promised to await the decision, with the answer of its last
    /// fragment.
    pub fn voted(&mut self, from: PartitionId) {
        if !self.voted.contains(&from) {
            self.voted.push(from);
        }
    }

    /// Commits in two phases a transaction that is behind no other: asks the participants that have
    /// not voted yet. If one votes against the commit, the step fails, and the transaction is to be
    /// [aborted](Self::abort).
    pub fn prepare(&mut self, out: &mut Vec<Outgoing>) {
        let before = out.len();
        let missing = self.participants.iter().filter(|partition| !self.voted.contains(partition));
        out.extend(missing.map(|partition| Outgoing::Prepare(*partition)));
        match out.len() - before {
            0 => self.commit(out),
            missing => self.phase = Phase::Preparing(missing),
        }
    }

    pub(super) fn vote_answered(&mut self, from: PartitionId, out: &mut Vec<Outgoing>) {
        self.voted(from);
        let Phase::Preparing(missing) = &mut self.phase else { return };
        *missing -= 1;
        if *missing == 0 {
            self.phase = Phase::Working;
            self.commit(out);
        }
    }

    /// Announces the commit, whose record ends here in the log.
    pub fn logged(&mut self, commit: Lsn, out: &mut Vec<Outgoing>) {
        self.finish(Some(commit), out);
    }

    /// Aborts: every participant undoes its part. It may interrupt another step.
    pub fn abort(&mut self, out: &mut Vec<Outgoing>) {
        self.finish(None, out);
    }

    fn finish(&mut self, commit: Option<Lsn>, out: &mut Vec<Outgoing>) {
        let unanswered = self.participants.len();
        if unanswered == 0 {
            return self.done(Ok(true), out);
        }
        self.phase = Phase::Ending(Ending { unanswered, failed: None });
        let finish = Control::Finish { commit };
        out.extend(self.participants.iter().map(|partition| Outgoing::Send(*partition, finish)));
    }
}
