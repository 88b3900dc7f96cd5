//! The mistakes that the source found in public implementations, and similar ones. Only tests can
//! plant one: elsewhere [`Planted::has`] is always false.

/// A mistake to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// One WRITE carries the free lock word and the payload.
    UnlockWithPayload,
    /// The lock word is released by a WRITE.
    ReleaseByWrite,
    /// The holder's slot is compared where it should be assigned.
    CompareOwner,
    /// Metadata that another transaction is changing counts as a conflict.
    AbortOnBusyMetadata,
    /// A lock is released or handed over before the payload has landed.
    PayloadAfterRelease,
    /// Rows are written although the records of the transaction are not valid yet.
    EarlyWrite,
    /// Adaptive mode: a reader with a mutual lock writes the word of M mode, which has a different
    /// meaning where readers may share.
    MutualWord,
    /// Adaptive mode: a reader's lock is released as the kind that would be chosen now, not as the
    /// kind that was acquired.
    ReleaseByChoice,
    /// A row at a cached location is used without checking its key.
    TrustLocation,
    /// An unlocked read of a bucket decides that a key is absent.
    TrustBucket,
    /// Recovery applies a record to a row that any transaction holds exclusively.
    AnyHolder,
    /// Survivors of a recovery keep their mailboxes, with words of lines that no longer exist.
    #[cfg(test)]
    KeptMailbox,
    /// Recovery begins although the regions are not fenced.
    #[cfg(test)]
    Unfenced,
    /// The owner's CPU accesses local rows directly although the fabric does not allow it.
    #[cfg(test)]
    DirectLocal,
}

/// The mistake that a worker makes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planted(#[cfg(test)] pub Option<Trap>);

impl Planted {
    #[cfg(test)]
    pub fn has(self, trap: Trap) -> bool {
        self.0 == Some(trap)
    }

    #[cfg(not(test))]
    pub fn has(self, _: Trap) -> bool {
        false
    }
}
