//! Newtypes for identifiers: mixing two of them must not compile.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// Index of a frame of the buffer pool.
    FrameId(u32)
);
id!(
    /// Log sequence number: the byte offset of a place in the node's log. 0 is before the first
    /// record.
    Lsn(u64)
);
id!(
    /// A transaction, unique for the life of a data directory. 0 is no transaction.
    TxnId(u64)
);
id!(
    /// A partition of the node, `0 .. partitions`.
    PartitionId(u16)
);
id!(
    /// A table of the catalog; its name may change, its id does not.
    TableId(u32)
);
id!(
    /// A B+tree. Every partition holds its own part of it under the same id. Ids are never used
    /// again.
    TreeId(u32)
);

/// A page of a partition's file: the partition in the upper half, the page's number in the file in
/// the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(u64);

impl PageId {
    /// The page `no` of `partition`'s file.
    pub const fn new(partition: PartitionId, no: u32) -> Self {
        Self((partition.0 as u64) << 32 | no as u64)
    }
    /// The partition whose file holds the page.
    pub const fn partition(self) -> PartitionId {
        PartitionId((self.0 >> 32) as u16)
    }
    /// The page's number in its file; its byte offset is this times the page size.
    pub const fn no(self) -> u32 {
        self.0 as u32
    }
    /// The packed form, as kept in page headers and in the page table.
    pub const fn to_u64(self) -> u64 {
        self.0
    }
    /// The inverse of [`PageId::to_u64`].
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition(), self.no())
    }
}
impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} page {}", self.partition(), self.no())
    }
}
