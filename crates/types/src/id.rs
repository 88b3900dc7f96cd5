//! Newtypes for identifiers: code that confuses two of them does not compile.

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
    /// Log sequence number: a byte offset in the node's log. 0 is before the first record.
    Lsn(u64)
);
id!(
    /// A transaction. Unique for the lifetime of a data directory; 0 means none.
    TxnId(u64)
);
id!(
    /// A partition of the node, `0 .. partitions`.
    PartitionId(u16)
);
id!(
    /// A table of the catalog. Its name may change; its ID does not.
    TableId(u32)
);
id!(
    /// A B+tree. Every partition has its own part of it under the same ID. IDs are never reused.
    TreeId(u32)
);

/// A page of a partition's file: the partition in the upper half, and the page's number in the file
/// in the lower half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(u64);

impl PageId {
    /// Creates the ID of page `no` of the partition's file.
    pub const fn new(partition: PartitionId, no: u32) -> Self {
        Self((partition.0 as u64) << 32 | no as u64)
    }
    /// Returns the partition whose file contains the page.
    pub const fn partition(self) -> PartitionId {
        PartitionId((self.0 >> 32) as u16)
    }
    /// Returns the page's number in its file. Its byte offset is this times the page size.
    pub const fn no(self) -> u32 {
        self.0 as u32
    }
    /// Returns the packed form, which page headers and the page table store.
    pub const fn to_u64(self) -> u64 {
        self.0
    }
    /// Returns a Fibonacci hash (Knuth, The Art of Computer Programming 3, 6.4). The upper bits of
    /// consecutive page numbers are spread evenly; use these. Not part of the on-disk format.
    #[inline(always)]
    pub const fn hash_bits(self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    /// Returns the ID whose packed form ([`PageId::to_u64`]) is `raw`.
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
