//! The stable hash that distributes rows over partitions. It is part of the on-disk format.

use crate::PartitionId;

/// Hashes the bytes with FNV-1a, then with MurmurHash3's 64-bit finaliser, so that short keys
/// affect all bits.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for &b in bytes {
        h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// Returns the partition of a row. `key` is the key encoding ([`crate::key`]) of its distribution
/// columns.
pub fn partition_of(key: &[u8], partitions: u16) -> PartitionId {
    PartitionId((stable_hash(key) % u64::from(partitions)) as u16)
}
