//! The mistakes that the source found in public implementations. Only tests can plant one:
//! elsewhere [`Planted::has`] is always false.

/// A mistake to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// One WRITE carries the free lock word and the payload.
    UnlockWithPayload,
    /// The lock word is released by a WRITE.
    ReleaseByWrite,
    /// The holder's slot is compared where it should be assigned.
    CompareOwner,
    /// Metadata that another is changing counts as a conflict.
    AbortOnBusyMetadata,
    /// A lock is released or handed over before the payload has landed.
    PayloadAfterRelease,
    /// Rows are written although the records of the transaction are not valid yet.
    EarlyWrite,
    /// Adaptive: a reader that locks for itself writes the word of M, which means another thing
    /// where readers may share.
    MutualWord,
    /// Adaptive: a reader's lock is released as the kind that would be taken now, not as the kind
    /// that was.
    ReleaseByChoice,
    /// A row at a cached location is used without a look at its key.
    TrustLocation,
    /// A bucket that was read without a lock decides that a key is absent.
    TrustBucket,
    /// Recovery completes a record on a row that anybody holds exclusively.
    AnyHolder,
    /// Survivors of a recovery keep their mailboxes, with words of lines that are no more.
    #[cfg(test)]
    KeptMailbox,
    /// Recovery begins although the regions are not fenced.
    #[cfg(test)]
    Unfenced,
    /// The owner's processor executes its accesses to local rows itself where the fabric does not
    /// allow it.
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
