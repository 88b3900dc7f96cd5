//! The format of a record: a 16-byte header, the payload, zeros up to a multiple of 8. Everything
//! is little-endian.
//!
//! | bytes  | field      | meaning                                                            |
//! |--------|------------|--------------------------------------------------------------------|
//! | 0..4   | `len`      | bytes of header and payload, without the padding; never 0          |
//! | 4..8   | `crc`      | CRC-32C of the payload, then `len`, the start LSN as 8 bytes,      |
//! |        |            | `unsynced`                                                         |
//! | 8..12  | `tag`      | low 32 bits of start LSN / 8: detects a stale or torn record       |
//! |        |            | without its checksum                                               |
//! | 12..16 | `unsynced` | upper bound of (start LSN - durable LSN when the record was made)  |
//! |        |            | / 8; `u32::MAX`: unknown                                           |
//!
//! The checksum includes the start LSN, so that a record from a recycled segment's earlier use is
//! not valid. `unsynced` distinguishes a torn tail from damage. Everything before start - 8 *
//! `unsynced` was on disk before this record was created. If some of it cannot be read, the disk
//! has lost acknowledged data.
//!
//! A *mark* is a header without a record: `len` is `MARK`, `unsynced` is 0. It is at the place of
//! the next record, and means that everything before it is on disk. The next record overwrites it.

use super::record_size;

/// Bytes of a record's header.
pub(super) const HEADER: usize = 16;

/// Maximum record size, header included, whatever the ring's size. A larger `len` in the log is not
/// valid.
pub(super) const MAX_RECORD: usize = 8 << 20;

const UNKNOWN: u32 = u32::MAX;

/// The `len` of a mark; no record has it.
const MARK: u32 = 0x8000_0010;

/// Returns the checksum of a payload; [`seal`] completes it when the record's LSN is known.
pub(super) fn payload_crc(payload: &[&[u8]]) -> u32 {
    payload.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

fn finish_crc(payload_crc: u32, len: u32, start: u64, unsynced: u32) -> u32 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..12].copy_from_slice(&start.to_le_bytes());
    bytes[12..].copy_from_slice(&unsynced.to_le_bytes());
    crc32c::crc32c_append(payload_crc, &bytes)
}

fn tag(start: u64) -> u32 {
    (start >> 3) as u32
}

/// Returns the two words of the header for the record of `len` bytes (header included) at `start`.
pub(super) fn seal(payload_crc: u32, len: usize, start: u64, durable: u64) -> [u64; 2] {
    let len = len as u32;
    let unsynced = u32::try_from((start - durable) / 8).unwrap_or(UNKNOWN);
    let crc = finish_crc(payload_crc, len, start, unsynced);
    [u64::from(len) | u64::from(crc) << 32, u64::from(tag(start)) | u64::from(unsynced) << 32]
}

/// Returns the bytes of a mark at `start`.
pub(super) fn mark(start: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&MARK.to_le_bytes());
    bytes[4..8].copy_from_slice(&finish_crc(payload_crc(&[]), MARK, start, 0).to_le_bytes());
    bytes[8..12].copy_from_slice(&tag(start).to_le_bytes());
    bytes
}

/// Returns true if `bytes` begin with the mark for `start`.
pub(super) fn is_mark(bytes: &[u8], start: u64) -> bool {
    bytes.get(..4) == Some(&MARK.to_le_bytes()) && bytes.get(..HEADER) == Some(&mark(start))
}

/// Returns the problem of `bytes`, at most a header long, as a header at `start`. Returns `None` if
/// only the checksum can be wrong.
pub(super) fn header_problem(bytes: &[u8], start: u64) -> Option<String> {
    let Some(bytes) = bytes.first_chunk::<HEADER>() else {
        return Some(format!(
            "a record expected, the end of the log's files found after {} bytes",
            bytes.len()
        ));
    };
    let field =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes.iter().all(|byte| *byte == 0) {
        Some("a record expected, zeros found".to_owned())
    } else if is_mark(bytes, start) {
        Some("a record expected, the mark of the log's end found".to_owned())
    } else if field(8) != tag(start) {
        Some(format!("tag {:#x} expected, {:#x} found", tag(start), field(8)))
    } else if !(HEADER..=MAX_RECORD).contains(&(field(0) as usize)) {
        Some(format!("a length of {HEADER} to {MAX_RECORD} bytes expected, {} found", field(0)))
    } else {
        None
    }
}

/// Returns the size in the log of the record whose header starts with `word`.
pub(super) fn size_of_word(word: u64) -> usize {
    (word as u32 as usize).next_multiple_of(8)
}

/// A plausible header: its fields are valid, its checksum is not yet verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    start: u64,
    len: u32,
    crc: u32,
    unsynced: u32,
}

impl Header {
    /// Parses the header at the front of `bytes`, which are at LSN `start`.
    pub(super) fn parse(bytes: &[u8], start: u64) -> Option<Self> {
        let field = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (len, crc, found_tag, unsynced) = (field(0)?, field(4)?, field(8)?, field(12)?);
        let plausible = found_tag == tag(start) && (HEADER..=MAX_RECORD).contains(&(len as usize));
        plausible.then_some(Self { start, len, crc, unsynced })
    }

    /// Returns true if `bytes`, at least a header long, have the tag of a record at `start`. A
    /// cheap first test.
    pub(super) fn tag_fits(bytes: &[u8], start: u64) -> bool {
        bytes[8..12] == tag(start).to_le_bytes()
    }

    /// Returns the bytes of header and payload.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }

    /// Returns the record's end, padding included.
    pub(super) fn end(self) -> u64 {
        self.start + record_size(self.len() - HEADER)
    }

    /// Returns the checksum that `record`, of [`Header::len`] bytes, should have, and the one that
    /// it has.
    pub(super) fn checksums(self, record: &[u8]) -> (u32, u32) {
        let crc = crc32c::crc32c(&record[HEADER..]);
        (finish_crc(crc, self.len, self.start, self.unsynced), self.crc)
    }

    /// Returns true if `record`, of [`Header::len`] bytes, has the right checksum.
    pub(super) fn verify(self, record: &[u8]) -> bool {
        let (expected, found) = self.checksums(record);
        expected == found
    }

    /// Returns what was durable when this record was created, or 0 if unknown. Valid only for a
    /// verified record.
    pub(super) fn durable_before(self) -> u64 {
        if self.unsynced == UNKNOWN {
            0
        } else {
            self.start.saturating_sub(u64::from(self.unsynced) * 8)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn encode(payload: &[u8], start: u64, durable: u64) -> Vec<u8> {
        let [first, second] = seal(payload_crc(&[payload]), HEADER + payload.len(), start, durable);
        [&first.to_le_bytes(), &second.to_le_bytes(), payload].concat()
    }

    fn valid(bytes: &[u8], start: u64) -> bool {
        Header::parse(bytes, start)
            .is_some_and(|header| bytes.len() == header.len() && header.verify(bytes))
    }

    /// Disks outlive releases: these bytes are format version 1.
    #[test]
    fn the_format_stays() {
        let bytes = encode(b"clearway", 0x10_0000_0040, 0x10_0000_0000);
        assert_eq!(bytes[..4], [24, 0, 0, 0]);
        assert_eq!(bytes[4..8], [0x16, 0x7a, 0x68, 0x3d]);
        assert_eq!(bytes[8..12], [0x08, 0x00, 0x00, 0x00]);
        assert_eq!(bytes[12..16], [8, 0, 0, 0]);
        assert_eq!(&bytes[16..], b"clearway");
        assert_eq!(mark(0x10_0000_0040), *b"\x10\0\0\x80\xb5\x31\x3f\xac\x08\0\0\0\0\0\0\0");
    }

    /// A mark is not a record, and is valid only at its own place.
    #[test]
    fn mark_is_not_a_record() {
        let start = 4096;
        assert!(is_mark(&mark(start), start) && Header::parse(&mark(start), start).is_none());
        assert!(!is_mark(&mark(start), start + 8) && !is_mark(&mark(start), start + (1 << 35)));
        assert!(!is_mark(&encode(b"", start, start), start));
        for bit in 0..HEADER * 8 {
            let mut flipped = mark(start);
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !is_mark(&flipped, start)
                    && Header::parse(&flipped, start).is_none_or(|h| !h.verify(&flipped))
            );
        }
    }

    /// A record is valid only at its own place, even if the tag is the same, and only with all its
    /// bits intact.
    #[test]
    fn record_is_valid_only_at_its_own_place() {
        let start = 4096;
        let bytes = encode(b"some payload", start, 8);
        assert!(valid(&bytes, start));
        for place in [0, start - 8, start + 8, start + (1 << 35), start + (1 << 36)] {
            assert!(!valid(&bytes, place), "at {place}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&flipped, start), "bit {bit}");
        }
    }

    /// The durable LSN is exact, or unknown if it is too far back.
    #[test]
    fn durable_before_is_exact_or_unknown() {
        for (start, durable, told) in [(4096, 4096, 4096), (4096, 8, 8), (1 << 40, 64, 0)] {
            let bytes = encode(b"x", start, durable);
            assert_eq!(Header::parse(&bytes, start).map(Header::durable_before), Some(told));
        }
    }
}
