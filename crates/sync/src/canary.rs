//! Bugs that the simulation plants, to show that it would find them. Without `--cfg shuttle` there
//! are none: [`on`] is then a constant `false`.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The log reports itself durable without syncing its file.
    SkippedSync,
    /// A page is written before the log is durable up to its LSN.
    PageBeforeLog,
    /// The undo of a change is not logged as such, so the next recovery undoes the change again.
    UndoneTwice,
    /// A page with a wrong checksum is accepted.
    StaleChecksum,
    /// The second level keeps its copy of a page when a newer version is written.
    StaleCopy,
    /// A copy in the second level is accepted if its stored checksum is the expected one, without
    /// verifying its contents.
    UnverifiedCopy,
    /// A page that a search without the page table's latch does not find is considered not
    /// resident.
    UnconfirmedMiss,
    /// The cooler is not woken when few frames are free.
    LostWakeUp,
    /// The release of a page's latch does not wake the thread that is parked for it.
    LostLatch,
    /// A resident page is pinned so late that it may have been evicted.
    LatePin,
    /// The replacement policy is notified of the eviction of a written page when the page may
    /// already be resident again.
    LateLeaving,
    /// A scan of a key range takes no range lock, so keys may appear in what it has read.
    SkippedRangeLock,
    /// A statement that only checks for locks never finds any.
    UncheckedLock,
    /// COMMIT releases the transaction's locks before its commit record is in the log.
    EarlyRelease,
    /// A partition accepts a plan that was made for an older version of the table.
    StalePlan,
    /// An UPDATE that moves a row to another partition keeps the old home in the row's global
    /// unique keys.
    StaleHome,
    /// Replies are sent before the log is durable up to what they show.
    ReplyNotHeld,
    /// A partition's errors do not name the commits that they reveal.
    UnheldError,
    /// A checkpoint removes log that active transactions need for their undo.
    TruncatedLog,
    /// The double-write file is overwritten before its last batch is synced in the page files.
    DoubleWriteOrder,
    /// A recycled segment of the log keeps its old header.
    RecycledHeader,
    /// A hidden row number is always derived from the last key, so numbers are reused.
    ReusedRowNumber,
    /// Recovery undoes a transaction's changes oldest first.
    UndoneOldestFirst,
    /// When a line of waiters is blocked by another transaction than before, the waits-for graph
    /// keeps the old edge.
    StaleEdge,
    /// FOR KEY SHARE of a key conflicts with nothing.
    ForgottenKeyShare,
    /// A packed key lock conflicts with nothing.
    PackedForgotten,
    /// When an edge of the waits-for graph changes, it is not searched for a cycle.
    SkippedSearch,
    /// A request that must wait for a transaction that is already stranded does not fail.
    UnnamedStranded,
    /// A holder's request for a stronger lock queues behind transactions that wait for the holder.
    StuckUpgrade,
    /// The victim of a deadlock is the transaction with the most work to lose.
    RichestVictim,
    /// A snapshot read treats a commit that the partition has not yet received as one after the
    /// snapshot.
    HalfCommit,
    /// Changes that active transactions made before images were kept have no image.
    LateImage,
    /// An image is removed if the newest snapshot does not need it, although an older one may.
    EarlyFree,
    /// Pruning removes images that an open snapshot needs.
    PrunedImage,
    /// A block of the temporary file is freed if the newest snapshot does not need it, although an
    /// older one may.
    EarlyBlock,
    /// A change of a row found in a snapshot does not check that the newest version satisfies the
    /// condition.
    SkippedRecheck,
    /// REPEATABLE READ changes rows that others have changed since its snapshot.
    LostUpdate,
    /// INSERT ... SELECT outside a block reads a snapshot instead of the newest rows under locks.
    SnapshotCopy,
    /// The rest of a suspended result has the newest rows instead of those that the statement saw
    /// at its start.
    CurrentFetch,
    /// READ COMMITTED does not keep the snapshot of a suspended statement open.
    UnheldCursor,
    /// ADD PRIMARY KEY copies the rows of a table without locking the table or the rows.
    UnlockedKey,
    /// A cancel request that comes too late for its statement cancels the session's next one.
    KeptCancel,
    /// READ COMMITTED reads a row by its key from the tree, including uncommitted changes.
    DirtyRead,
    /// A snapshot uses a newer index, and misses rows that were deleted before the index was
    /// created.
    NewIndex,
    /// A snapshot sees the first rows of a newer table.
    NewTable,
    /// An imported snapshot is not kept open: it closes with its exporter.
    UnheldImport,
    /// ON CONFLICT DO NOTHING at REPEATABLE READ skips a row because of one that its snapshot does
    /// not have.
    UnseenConflict,
    /// REPEATABLE READ inserts under a key that its snapshot has and that others have deleted
    /// since. It then no longer sees the old row.
    HiddenRow,
    /// The trees of a dropped or truncated table are dropped although an open snapshot sees them.
    EarlyDrop,
    /// A reader does not subtract additions to a row that its snapshot does not see.
    UnsubtractedDelta,
    /// A CHECK or the type's range is tested only for the current sum, not for the sums that
    /// commits and rollbacks of other open additions can produce.
    UncheckedSpread,
    /// An addition's lock is compatible with a reader's.
    SharedIncrement,
    /// A transaction reads without locks while it holds increment locks.
    UnconvertedIncrement,
    /// The undo of an addition restores the bytes from before it instead of subtracting.
    PatchForAddition,
    /// Recovery undoes the losers one after another, in the order of their IDs.
    LosersById,
    /// The changes of a failed transaction in a partition that it had exclusively are not undone.
    HalfWhole,
    /// COMMIT does not wait for the transactions that its transaction is behind.
    SkippedDependency,
    /// A rollback does not undo the transactions behind it.
    KeptSuccessor,
    /// The reply of a one-shot that runs behind an undecided transaction is sent, and the one-shot
    /// committed, before that transaction is decided.
    EarlySpeculated,
    /// A transaction that has run behind an undecided one does not wait for its commit.
    SkippedSpeculation,
    /// The undo of a transaction that has run behind an aborted one is released instead of
    /// executed.
    ReleasedUndo,
    /// What an optimistic run has read is not validated.
    UnvalidatedRead,
    /// An abort undoes the transactions that have run behind it in the order of their IDs instead
    /// of newest first.
    DependentsById,
    /// A change of a partition's scheme does not wait for the transaction that has the partition.
    EagerFence,
    /// A block that is run again continues although an answer differs.
    UnequalReplay,
    /// An error that depends on a change of a transaction ahead does not wait for that
    /// transaction's commit.
    UnsettledError,
}

/// The bugs that the simulation of the whole engine must find.
pub const BUGS_OF_ENGINE: &[Bug] = &[
    Bug::SkippedSync,
    Bug::PageBeforeLog,
    Bug::UndoneTwice,
    Bug::StaleChecksum,
    Bug::StaleCopy,
    Bug::SkippedRangeLock,
    Bug::UncheckedLock,
    Bug::EarlyRelease,
    Bug::StalePlan,
    Bug::StaleHome,
    Bug::ReplyNotHeld,
    Bug::UnheldError,
    Bug::TruncatedLog,
    Bug::DoubleWriteOrder,
    Bug::RecycledHeader,
    Bug::ReusedRowNumber,
    Bug::UndoneOldestFirst,
    Bug::StaleEdge,
    Bug::SkippedSearch,
    Bug::ForgottenKeyShare,
    Bug::PackedForgotten,
    Bug::UnnamedStranded,
    Bug::HalfCommit,
    Bug::LateImage,
    Bug::EarlyFree,
    Bug::PrunedImage,
    Bug::EarlyBlock,
    Bug::SkippedRecheck,
    Bug::LostUpdate,
    Bug::DirtyRead,
    Bug::SnapshotCopy,
    Bug::CurrentFetch,
    Bug::UnheldCursor,
    Bug::UnlockedKey,
    Bug::KeptCancel,
    Bug::NewIndex,
    Bug::NewTable,
    Bug::UnheldImport,
    Bug::UnseenConflict,
    Bug::HiddenRow,
    Bug::EarlyDrop,
    Bug::UnsubtractedDelta,
    Bug::SharedIncrement,
    Bug::UnconvertedIncrement,
    Bug::PatchForAddition,
    Bug::LosersById,
    Bug::HalfWhole,
    Bug::SkippedDependency,
    Bug::KeptSuccessor,
    Bug::EarlySpeculated,
    Bug::SkippedSpeculation,
    Bug::ReleasedUndo,
    Bug::EagerFence,
    Bug::UnequalReplay,
    Bug::UnsettledError,
];

/// The bugs that the lock table's model must find. It recognises deadlocks that are avoidable.
pub const BUGS_OF_LOCKS: &[Bug] = &[Bug::StuckUpgrade, Bug::StaleEdge];

/// The bugs that the tests of the waits-for graph must find. To the simulation, any victim ends a
/// deadlock.
pub const BUGS_OF_DEADLOCKS: &[Bug] = &[Bug::RichestVictim, Bug::SkippedSearch];

/// The bugs that the checker of histories must find on its own: they violate isolation, or lose
/// acknowledged commits.
///
/// Of the bugs of additions and of retired locks, the checker cannot find:
/// - [`Bug::UncheckedSpread`]: it knows no bounds.
/// - [`Bug::UnsettledError`]: it takes nothing from errors.
/// - [`Bug::UnequalReplay`]: a block that is behind others reads nothing before they have ended. So
///   its old answers show committed values, and READ COMMITTED permits older ones.
pub const BUGS_OF_HISTORIES: &[Bug] = &[
    Bug::SkippedRangeLock,
    Bug::UncheckedLock,
    Bug::EarlyRelease,
    Bug::ReplyNotHeld,
    Bug::SkippedSync,
    Bug::UndoneOldestFirst,
    Bug::SharedIncrement,
    Bug::PatchForAddition,
    Bug::SkippedDependency,
    Bug::KeptSuccessor,
];

/// The bugs of the engine that the simulation of the cluster must find. It plants more in what it
/// puts around the engine.
pub const BUGS_OF_CLUSTER: &[Bug] = &[
    Bug::SkippedDependency,
    Bug::SkippedSpeculation,
    Bug::EarlySpeculated,
    Bug::ReleasedUndo,
    Bug::DependentsById,
];

/// The bugs that the simulation of the buffer pool must find.
pub const BUGS_OF_POOL: &[Bug] = &[
    Bug::PageBeforeLog,
    Bug::StaleCopy,
    Bug::UnverifiedCopy,
    Bug::UnconfirmedMiss,
    Bug::LostWakeUp,
    Bug::LostLatch,
    Bug::LatePin,
    Bug::LateLeaving,
];

#[cfg(shuttle)]
static PLANTED: std::sync::Mutex<Option<Bug>> = std::sync::Mutex::new(None);

/// Plants a bug for the whole process; `None` removes it.
#[cfg(shuttle)]
pub fn plant(bug: Option<Bug>) {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bug;
}

/// Runs this in one execution of the scheduler, in which everything from this crate works. A panic
/// passes through.
#[cfg(shuttle)]
pub fn execute(run: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // Unoptimised frames of a recovery exceed shuttle's default of 32 KiB.
    config.stack_size = 1 << 20;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    // One thread runs at a time; what it runs notices by itself that it makes no progress.
    config.max_steps = shuttle::MaxSteps::None;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(1), config).run(run);
}

/// Checks that a test passes, and that it fails with each of these bugs.
///
/// # Panics
/// If it does not.
#[cfg(shuttle)]
pub fn assert_found(bugs: &[Bug], test: fn()) {
    execute(test);
    for &bug in bugs {
        plant(Some(bug));
        let found = std::panic::catch_unwind(|| execute(test));
        plant(None);
        assert!(found.is_err(), "{bug:?} is not found");
    }
}

/// Checks that a test passes even with each of these bugs.
///
/// # Panics
/// If it does not.
#[cfg(shuttle)]
pub fn assert_harmless(bugs: &[Bug], test: fn()) {
    for &bug in bugs {
        plant(Some(bug));
        let passed = std::panic::catch_unwind(|| execute(test));
        plant(None);
        assert!(passed.is_ok(), "{bug:?} does harm");
    }
}

/// Returns true if this bug is planted.
#[cfg(shuttle)]
pub fn on(bug: Bug) -> bool {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(bug)
}

/// Returns false: no bug is planted.
#[cfg(not(shuttle))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}
