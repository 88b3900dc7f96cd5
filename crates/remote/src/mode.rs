//! The lock metadata of a row in each mode.
//!
//! | mode | word 0 | words 1 to 4 |
//! |---|---|---|
//! | M | 0 free, else the holder's start timestamp | - |
//! | M in line, WAIT_DIE | 0 free, else bits 12 to 63: start timestamp of the last in line; bits 0 to 11: its place in its worker's mailbox | word 1: with a log, the holder's start timestamp |
//! | M/S, NO_WAIT | bit 0: held exclusively; bits 1 to 63: number of holders, or the start timestamp of the exclusive one | - |
//! | M/S in one round | bit 0: held exclusively; bits 1 to 63: number of holders, including those that will back out | - |
//! | the same with a log | as above, but bits 1 to 11; bits 12 to 63: start timestamp of the exclusive holder | - |
//! | M/S, WAIT_DIE | as M/S, NO_WAIT | start timestamps of up to 4 holders, 0 unused |
//! | adaptive | as M/S | WAIT_DIE: start timestamps of up to 4 sharing readers; the word names an exclusive holder |
//!
//! In adaptive mode a reader takes an exclusive lock (M) or a shared one (M/S). The word says which
//! one. Its meaning does not depend on the present choice of any worker, so workers choose without
//! agreement.

/// Maximum number of readers of one row in WAIT_DIE with M/S locks; one more aborts.
pub const HOLDERS: usize = 4;

/// The lock word of an exclusive holder of a one-round lock without a log.
pub(crate) const EXCLUSIVE: u64 = 3;

/// Bits of a lock word below a start timestamp that shares the word with other fields.
pub(crate) const NAME_SHIFT: u32 = 12;

/// The largest logical time in such a word.
pub(crate) const MAX_COUNT: u64 = (1 << (64 - 16 - NAME_SHIFT)) - 1;

/// The largest number of holders of a one-round lock that fits below the start timestamp, including
/// those that will back out.
pub(crate) const MAX_READERS: u64 = (1 << (NAME_SHIFT - 1)) - 1;

/// One reader in the lock word of M/S modes.
pub(crate) const READER: u64 = 2;

/// The time of a transaction's first start. Unique over all workers of a fabric, and never 0.
/// Smaller is older.
///
/// A restarted transaction keeps its timestamp. Otherwise WAIT_DIE could abort it forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTimestamp(pub(crate) u64);

impl StartTimestamp {
    /// Creates the `count`-th timestamp of a worker.
    pub(crate) fn new(count: u64, worker: u16) -> Self {
        Self(count << 16 | u64::from(worker))
    }

    /// Returns the worker's number.
    pub(crate) fn worker(self) -> u16 {
        self.0 as u16
    }

    /// Returns the worker's logical time at that moment.
    pub(crate) fn count(self) -> u64 {
        self.0 >> 16
    }
}

/// The reaction of a requester to a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The requester aborts.
    NoWait,
    /// The requester waits if it is older than every holder, else it aborts.
    WaitDie,
}

/// The kind of row locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// M: readers exclude one another, too.
    Mutual,
    /// M/S: readers share.
    Shared,
    /// M/S with lock and payload in one round: FAA or CAS is posted together with the READ. A
    /// reader that finds an exclusive holder reverts its FAA. For NO_WAIT; WAIT_DIE treats it as
    /// [`LockKind::Shared`].
    OneRound,
    /// M with a queue of waiters, each of which polls memory of its own node: see
    /// [`Mailbox`](crate::Mailbox). For WAIT_DIE; NO_WAIT treats it as [`LockKind::Mutual`].
    Line,
    /// M or M/S, chosen by each worker for each row that it reads. M costs fewer rounds; M/S lets
    /// readers share. A worker shares the rows in which it has recently met other holders.
    Adaptive,
}

/// Protocol and kind of lock; the same for all users of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The reaction to a conflict.
    pub protocol: Protocol,
    /// The kind of lock.
    pub kind: LockKind,
}

impl Mode {
    /// The 4 modes of the source.
    pub const PUBLISHED: [Self; 4] = [
        Self { protocol: Protocol::NoWait, kind: LockKind::Mutual },
        Self { protocol: Protocol::NoWait, kind: LockKind::Shared },
        Self { protocol: Protocol::WaitDie, kind: LockKind::Mutual },
        Self { protocol: Protocol::WaitDie, kind: LockKind::Shared },
    ];

    /// NO_WAIT with one-round locks.
    pub const ONE_ROUND: Self = Self { protocol: Protocol::NoWait, kind: LockKind::OneRound };

    /// WAIT_DIE with M locks and lines.
    pub const LINE: Self = Self { protocol: Protocol::WaitDie, kind: LockKind::Line };

    /// M or M/S for each read: NO_WAIT, then WAIT_DIE.
    pub const ADAPTIVE: [Self; 2] = [
        Self { protocol: Protocol::NoWait, kind: LockKind::Adaptive },
        Self { protocol: Protocol::WaitDie, kind: LockKind::Adaptive },
    ];

    pub(crate) fn is_adaptive(self) -> bool {
        self.kind == LockKind::Adaptive
    }

    pub(crate) fn shares(self) -> bool {
        !matches!(self.kind, LockKind::Mutual | LockKind::Line)
    }

    pub(crate) fn has_line(self) -> bool {
        self == Self::LINE
    }

    pub(crate) fn is_one_round(self) -> bool {
        self == Self::ONE_ROUND
    }

    /// Returns true if rows have the array of holders.
    pub(crate) fn has_array(self) -> bool {
        self.protocol == Protocol::WaitDie && self.shares()
    }

    /// Returns the words of metadata in front of a row's payload.
    pub fn header_words(self) -> usize {
        match self.kind {
            _ if self.has_array() => 1 + HOLDERS,
            LockKind::Line if self.has_line() => 2,
            _ => 1,
        }
    }

    /// Returns the lock word while `txn` holds the row exclusively. With a log (`logged`) the word
    /// names the holder, because recovery must know it.
    pub(crate) fn exclusive_word(self, txn: StartTimestamp, logged: bool) -> u64 {
        match self.shares() {
            true if self.is_one_round() && logged => txn.0 << NAME_SHIFT | 1,
            true if self.is_one_round() => EXCLUSIVE,
            true => txn.0 << 1 | 1,
            false => txn.0,
        }
    }
}

impl Mode {
    /// Returns the exclusive holder, in modes whose protocol reads it from the lock word.
    pub(crate) fn exclusive_holder(self, word: u64) -> Option<StartTimestamp> {
        match self.kind {
            LockKind::Adaptive if is_exclusive(word) => Some(StartTimestamp(word >> 1)),
            LockKind::Mutual if word != 0 => Some(StartTimestamp(word)),
            _ => None,
        }
    }
}

/// Returns true if an M/S lock word has an exclusive holder.
pub(crate) fn is_exclusive(word: u64) -> bool {
    word & 1 == 1
}

/// Returns the number of holders in an M/S lock word.
pub(crate) fn holders(word: u64) -> u64 {
    if is_exclusive(word) { 1 } else { word >> 1 }
}
