//! The page header, as docs/format.md specifies it.
//!
//! | bytes  | content |
//! |--------|---------|
//! | 0..4   | CRC-32C of bytes 4..8192, little endian |
//! | 4      | format version, 1 |
//! | 5      | kind, defined by storage; 0 in a page never written |
//! | 6..8   | zero |
//! | 8..16  | page LSN, little endian |
//! | 16..24 | page id, little endian |
//! | 24..32 | defined by storage |
//!
//! A page of zeros is valid: it was never written. Checksum, version and id are set when the page
//! is written ([`seal`]); in the pool they are stale.

use crate::error::{Damage, PageError};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PageId};
use std::sync::Arc;

/// The size of a page in bytes.
pub const PAGE_SIZE: usize = 8192;
/// The size of the header in bytes; storage defines the rest of the page.
pub const HEADER: usize = 32;
/// The version of the page format.
pub const FORMAT_VERSION: u8 = 1;

fn u64_at(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Returns the page's LSN: the end of the last log record whose change the page has.
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(u64_at(page, 8))
}

/// Sets the page's LSN.
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    page[8..16].copy_from_slice(&lsn.0.to_le_bytes());
}

/// Returns the page's kind, which storage defines; 0 in a page never written.
pub fn kind(page: &[u8]) -> u8 {
    page[5]
}

/// Sets the page's kind.
pub fn set_kind(page: &mut [u8], kind: u8) {
    page[5] = kind;
}

/// Sets the fields that verification needs: version, id, checksum. A page of zeros becomes a
/// written page.
pub fn seal(page: &mut [u8; PAGE_SIZE], id: PageId) {
    page[4] = FORMAT_VERSION;
    page[16..24].copy_from_slice(&id.to_u64().to_le_bytes());
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the checksum stored in the page.
pub(crate) fn stored_crc(page: &[u8; PAGE_SIZE]) -> u32 {
    u32::from_le_bytes([page[0], page[1], page[2], page[3]])
}

/// Verifies a page as read from `file`, which is for the error message.
pub fn verify(page: &[u8; PAGE_SIZE], id: PageId, file: &Arc<str>) -> Result<(), PageError> {
    let failed = |damage, expected, found| {
        Err(PageError::Damaged { file: file.clone(), page: id, damage, expected, found })
    };
    let (stored, computed) = (stored_crc(page), crc32c::crc32c(&page[4..]));
    if stored != computed && !canary::on(Bug::StaleChecksum) {
        return if stored == 0 && page.iter().all(|&b| b == 0) {
            Ok(())
        } else {
            failed(Damage::Checksum, u64::from(computed), u64::from(stored))
        };
    }
    if page[4] != FORMAT_VERSION {
        return failed(Damage::Version, u64::from(FORMAT_VERSION), u64::from(page[4]));
    }
    let found = u64_at(page, 16);
    if found != id.to_u64() { failed(Damage::Id, id.to_u64(), found) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    /// Format version 1 must not change: existing disks have these bytes.
    #[test]
    fn the_format_stays() {
        let mut page = [0; PAGE_SIZE];
        set_kind(&mut page, 2);
        set_lsn(&mut page, Lsn(0x0102_0304_0506));
        seal(&mut page, PageId::new(PartitionId(3), 7));
        assert_eq!(page[..4], [54, 23, 30, 235]);
        assert_eq!(page[4..16], [1, 2, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(page[16..32], [7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn sealed_page_verifies_unless_a_bit_flips() {
        let (id, file): (_, Arc<str>) = (PageId::new(PartitionId(3), 7), "f".into());
        let mut page = [0; PAGE_SIZE];
        assert!(verify(&page, id, &file).is_ok(), "never written");
        page[100] = 9;
        set_lsn(&mut page, Lsn(77));
        seal(&mut page, id);
        assert!(verify(&page, id, &file).is_ok());
        assert_eq!(lsn(&page), Lsn(77));
        for at in (0..PAGE_SIZE).step_by(61) {
            page[at] ^= 16;
            let error = verify(&page, id, &file).unwrap_err().to_string();
            assert!(error.contains("partition 3 page 7 in f is damaged"), "{error}");
            page[at] ^= 16;
        }
        let error = verify(&page, PageId::new(PartitionId(3), 8), &file).unwrap_err();
        assert!(matches!(error, PageError::Damaged { damage: Damage::Id, .. }), "{error}");
    }
}
