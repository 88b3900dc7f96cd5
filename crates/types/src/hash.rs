//! Hashes that are the same in every process, on every machine and in every release.
//!
//! [`stable_hash`] distributes rows over partitions and is part of the on-disk format. The others
//! are its parts and SplitMix64's finaliser, from which the rest of the engine builds its hashes.
//! Simulations of recorded seeds depend on all of them.

use crate::PartitionId;

/// FNV-1a's hash of no bytes.
pub const FNV1A_EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash with FNV-1a. Start with [`FNV1A_EMPTY`].
pub fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Mixes all bits of a number: MurmurHash3's 64-bit finaliser.
pub const fn murmur_mix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// Mixes all bits of a number: SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014).
pub const fn split_mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes the bytes with FNV-1a, then with MurmurHash3's finaliser, so that short keys affect all
/// bits.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    murmur_mix(fnv1a(FNV1A_EMPTY, bytes))
}

/// Returns the partition of a row. `key` is the key encoding ([`crate::key`]) of its distribution
/// columns.
pub fn partition_of(key: &[u8], partitions: u16) -> PartitionId {
    PartitionId((stable_hash(key) % u64::from(partitions)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_their_published_values() {
        assert_eq!(fnv1a(FNV1A_EMPTY, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(FNV1A_EMPTY, b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a(fnv1a(FNV1A_EMPTY, b"foo"), b"bar"), 0x8594_4171_f739_67e8);
        assert_eq!(murmur_mix(1), 0xb456_bcfc_34c2_cb2c);
        // SplitMix64's first number of seed 0 is the mix of its increment.
        assert_eq!(split_mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_hash_of_the_disk_format_never_changes() {
        assert_eq!(stable_hash(b""), 0xefd0_1f60_ba99_2926);
        assert_eq!(stable_hash(b"foobar"), 0x2c22_1949_22d1_672b);
    }
}
