//! Bugs that the simulation plants to see that it would find them. None in a build without
//! `--cfg shuttle`: [`on`] is then `false`, for the compiler too.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The log says that it is durable without having synced its file.
    SkippedSync,
    /// Pages are written before the log is durable up to their LSNs.
    PageBeforeLog,
    /// The undo of a change does not say in the log that the change is undone: the next recovery
    /// undoes it again.
    UndoneTwice,
    /// A page is taken as it is though its checksum is another's.
    StaleChecksum,
    /// The second level keeps its copy of a page of which a newer version is written.
    StaleCopy,
    /// A copy in the second level is taken for what was put there if it carries the same checksum,
    /// whatever else is in it.
    UnverifiedCopy,
    /// A page that a search without the page table's latch does not find is taken for one that is
    /// not there.
    UnconfirmedMiss,
    /// The cooler is not woken when free frames run low.
    LostWakeUp,
    /// Whoever lets go of a page's latch does not wake the thread that is parked for it.
    LostLatch,
    /// A resident page that is wanted is pinned only when it may have left.
    LatePin,
    /// The replacement policy hears that a page has left which had to be written when the page may
    /// be back.
    LateLeaving,
    /// A scan of a key range takes no range lock: keys may appear in what it has read.
    SkippedRangeLock,
    /// A statement that only checks for locks is always told that there are none.
    UncheckedLock,
    /// A transaction of COMMIT releases its locks before its commit record is in the log.
    EarlyRelease,
    /// A partition accepts a plan that was made for an older version of the table.
    StalePlan,
    /// An UPDATE that moves a row to another partition keeps the old home in the row's global
    /// unique keys.
    StaleHome,
    /// Replies are sent before the log is durable up to what they show.
    ReplyNotHeld,
    /// A partition's errors do not say which commits they show.
    UnheldError,
    /// A checkpoint removes log that active transactions need for their undo.
    TruncatedLog,
    /// The double-write file is overwritten before the places of its last batch are synced.
    DoubleWriteOrder,
    /// A recycled segment of the log keeps the header of its earlier life.
    RecycledHeader,
    /// A hidden row number is derived anew from the last key each time.
    ReusedRowNumber,
    /// Recovery undoes a transaction's changes oldest first.
    UndoneOldestFirst,
    /// A line of waiting transactions whose way another one blocks now is not told anew: the
    /// waits-for graph keeps the old edge.
    StaleEdge,
    /// FOR KEY SHARE of a key conflicts with nothing.
    ForgottenKeyShare,
    /// A packed key lock conflicts with nothing.
    PackedForgotten,
    /// When a line is told anew, nobody looks whether that closes a circle.
    SkippedSearch,
    /// Who comes to wait for a stranded transaction after it was stranded is not turned away.
    UnnamedStranded,
    /// A request by a holder does not go before those who wait for it.
    StuckUpgrade,
    /// The victim of a deadlock has the most at stake.
    RichestVictim,
    /// Whoever reads a snapshot takes a commit of which the partition has not been told for one
    /// that is to come.
    HalfCommit,
    /// What active transactions have changed before images are kept has none.
    LateImage,
    /// An image goes when the newest snapshot does not need it, though an older one may.
    EarlyFree,
    /// A block of the temporary file goes when the newest snapshot does not need it, though an
    /// older one may.
    EarlyBlock,
    /// Whoever changes what a snapshot has does not look whether the newest version satisfies the
    /// condition.
    SkippedRecheck,
    /// REPEATABLE READ changes rows that others have changed since its snapshot.
    LostUpdate,
    /// INSERT ... SELECT on its own reads a snapshot, not what is newest under locks.
    SnapshotCopy,
    /// The rest of a result is what is newest when it is asked for, not what the statement saw at
    /// its start.
    CurrentFetch,
    /// READ COMMITTED does not keep the snapshot of a suspended statement open.
    UnheldCursor,
    /// ADD PRIMARY KEY copies the rows of a table without locking the table or the rows.
    UnlockedKey,
    /// A cancel request that comes too late for its statement cancels the session's next one.
    KeptCancel,
    /// READ COMMITTED reads a row by its key as it is in the tree, whoever has changed it.
    DirtyRead,
    /// A snapshot uses an index that is newer, and misses rows that were deleted before the index
    /// was made.
    NewIndex,
    /// A snapshot sees the rows that a table which is newer was filled with.
    NewTable,
    /// Whoever imports a snapshot does not keep it open: it closes with its exporter.
    UnheldImport,
    /// ON CONFLICT DO NOTHING at REPEATABLE READ passes over a row that its snapshot does not have.
    UnseenConflict,
    /// REPEATABLE READ inserts under a key that its snapshot has and others have deleted since: it
    /// no longer sees the old row.
    HiddenRow,
    /// The trees of a table that has been dropped or emptied are dropped, though an open snapshot
    /// sees them.
    EarlyDrop,
    /// Whoever reads a row does not take off what others have added to it and the reader does not
    /// see.
    UnsubtractedDelta,
    /// An addition to a row is not tested for what the ends of others that have added to it may
    /// make of the sum.
    UncheckedSpread,
    /// Whoever adds to a row shares it with those who read it.
    SharedIncrement,
    /// The undo of an addition restores the bytes that were there before it.
    PatchForAddition,
    /// Recovery undoes loser by loser, in the order of their ids.
    LosersById,
    /// What a transaction has done in a partition that it has to itself is not undone when it
    /// fails.
    HalfWhole,
    /// COMMIT does not wait for the transactions that its own is behind.
    SkippedDependency,
    /// A rollback does not undo the transactions that are behind.
    KeptSuccessor,
    /// A block that was undone is run again, and goes on though an answer is another than before.
    UnequalReplay,
}

/// What the simulation of the whole engine must find.
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
    Bug::PatchForAddition,
    Bug::HalfWhole,
    Bug::SkippedDependency,
    Bug::KeptSuccessor,
    Bug::UnequalReplay,
];

/// What the lock table's model must find: it tells a deadlock that need not be from one that must.
pub const BUGS_OF_LOCKS: &[Bug] = &[Bug::StuckUpgrade, Bug::StaleEdge];

/// What the tests of the waits-for graph must find: any victim ends a deadlock.
pub const BUGS_OF_DEADLOCKS: &[Bug] = &[Bug::RichestVictim, Bug::SkippedSearch];

/// What the checker of histories alone must find: what breaks isolation, or loses what was
/// acknowledged.
pub const BUGS_OF_HISTORIES: &[Bug] = &[
    Bug::SkippedRangeLock,
    Bug::UncheckedLock,
    Bug::EarlyRelease,
    Bug::ReplyNotHeld,
    Bug::SkippedSync,
    Bug::UndoneOldestFirst,
];

/// What that of the buffer pool alone must find.
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

/// Plants a bug for the whole process, or none.
#[cfg(shuttle)]
pub fn plant(bug: Option<Bug>) {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bug;
}

/// Checks that a test passes as it is, and fails with each of these bugs.
///
/// # Panics
/// It does not.
#[cfg(shuttle)]
pub fn assert_found(bugs: &[Bug], test: fn()) {
    let run = || {
        let mut config = shuttle::Config::new();
        // Unoptimised frames of a recovery exceed shuttle's default of 32 KiB.
        config.stack_size = 1 << 20;
        shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(1), config).run(test);
    };
    run();
    for &bug in bugs {
        plant(Some(bug));
        let found = std::panic::catch_unwind(run);
        plant(None);
        assert!(found.is_err(), "{bug:?} is not found");
    }
}

/// Whether this bug is planted.
#[cfg(shuttle)]
pub fn on(bug: Bug) -> bool {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(bug)
}

/// Whether this bug is planted: no.
#[cfg(not(shuttle))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}
