//! The counts of a worker.

/// Why a transaction was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCause {
    /// NO_WAIT: another transaction holds the row.
    Conflict,
    /// WAIT_DIE: an older transaction holds the row.
    Older(crate::StartTimestamp),
    /// WAIT_DIE with M/S locks: the row's array of readers is full.
    TooManyReaders,
    /// The caller requested the abort.
    Requested,
}

/// The part of a transaction to which a verb belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Acquiring a lock and reading the payload.
    Lock,
    /// Logging what the commit will change.
    Log,
    /// Writing payloads and releasing locks at commit.
    Commit,
    /// Releasing locks at abort.
    Abort,
}

/// Verbs and batches of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseCount {
    /// Verbs posted.
    pub verbs: u64,
    /// Batches posted and awaited, each for one row.
    pub rounds: u64,
}

/// A worker's counts since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that aborted, including restarts.
    pub aborts: u64,
    /// Aborts with [`AbortCause::Conflict`].
    pub conflicts: u64,
    /// Aborts with [`AbortCause::Older`].
    pub older: u64,
    /// Aborts with [`AbortCause::TooManyReaders`].
    pub too_many_readers: u64,
    /// CASs that failed because a word changed without a conflict.
    pub atomicity_retries: u64,
    /// Checks of a row whose holders are all younger. In a line and by messages: requests that
    /// waited.
    pub wait_retries: u64,
    /// Lock requests that have waited at least once. Not counted for messages.
    pub waits: u64,
    /// The part of `waits` for rows of other nodes.
    pub remote_waits: u64,
    /// Verbs to other nodes that the requests of `remote_waits` have posted in order to wait:
    /// checks of the row, or the CASs and the WRITE that queue in a line. Not included are the
    /// first verb of a request, which it posts even if the row is free, and what a releaser posts
    /// to hand a line over.
    pub remote_wait_verbs: u64,
    /// READs that saw a half-finished update of the metadata.
    pub rereads: u64,
    /// Adaptive mode: mutual locks of readers.
    pub reads_alone: u64,
    /// Adaptive mode: shared locks of readers.
    pub reads_shared: u64,
    /// Renewals of leases, one verb each. Not part of any phase.
    pub lease_renewals: u64,
    /// Verbs on local rows that the CPU executed itself.
    pub direct: u64,
    /// The part of the verbs and rounds of all phases that accessed rows of the worker's own node.
    pub own_node: PhaseCount,
    phases: [PhaseCount; 4],
}

impl RemoteStats {
    /// Returns verbs and rounds of one phase, without those executed by the CPU.
    pub fn phase(&self, phase: Phase) -> PhaseCount {
        self.phases[phase as usize]
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.commits, other.commits),
            (&mut self.aborts, other.aborts),
            (&mut self.conflicts, other.conflicts),
            (&mut self.older, other.older),
            (&mut self.too_many_readers, other.too_many_readers),
            (&mut self.atomicity_retries, other.atomicity_retries),
            (&mut self.wait_retries, other.wait_retries),
            (&mut self.waits, other.waits),
            (&mut self.remote_waits, other.remote_waits),
            (&mut self.remote_wait_verbs, other.remote_wait_verbs),
            (&mut self.rereads, other.rereads),
            (&mut self.direct, other.direct),
            (&mut self.lease_renewals, other.lease_renewals),
            (&mut self.reads_alone, other.reads_alone),
            (&mut self.reads_shared, other.reads_shared),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
        let own_node = (&mut self.own_node, other.own_node);
        for (sum, more) in self.phases.iter_mut().zip(other.phases).chain([own_node]) {
            sum.verbs += more.verbs;
            sum.rounds += more.rounds;
        }
    }

    /// Returns verbs and rounds of all phases on rows of other nodes.
    pub fn remote(&self) -> PhaseCount {
        let sum = |of: fn(&PhaseCount) -> u64| {
            self.phases.iter().map(of).sum::<u64>() - of(&self.own_node)
        };
        PhaseCount { verbs: sum(|count| count.verbs), rounds: sum(|count| count.rounds) }
    }

    pub(crate) fn count_own(&mut self, verbs: usize) {
        self.own_node.verbs += verbs as u64;
        self.own_node.rounds += 1;
    }

    pub(crate) fn count_batch(&mut self, phase: Phase, verbs: usize) {
        self.phases[phase as usize].verbs += verbs as u64;
        self.phases[phase as usize].rounds += 1;
    }

    pub(crate) fn count_abort(&mut self, cause: AbortCause) {
        self.aborts += 1;
        match cause {
            AbortCause::Conflict => self.conflicts += 1,
            AbortCause::Older(_) => self.older += 1,
            AbortCause::TooManyReaders => self.too_many_readers += 1,
            AbortCause::Requested => {}
        }
    }
}
