//! Recomputes checksums as `docs/format.md` specifies them. A fuzzer cannot guess a CRC, but the
//! code that runs after its verification must not panic either. Written from the document, without
//! the engine's code.

use clearway_buffer::PAGE_SIZE;

/// Size of a log segment's header in bytes.
pub const SEGMENT_HEADER: usize = 4096;
/// Size of a log record's header in bytes.
const RECORD_HEADER: usize = 16;
/// Offset of the checksum in a slot of the control file.
const CONTROL_CRC: usize = 60;

fn put(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Corrects a slot of the control file, 64 bytes.
pub fn control_slot(slot: &mut [u8]) {
    let crc = crc32c::crc32c(&slot[..CONTROL_CRC]);
    put(slot, CONTROL_CRC, crc);
}

/// Corrects only a page's checksum.
pub fn page(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[4..PAGE_SIZE]);
    put(page, 0, crc);
}

/// Corrects the header page of the double-write file.
pub fn double_write(header: &mut [u8]) {
    let crc = crc32c::crc32c(&header[12..PAGE_SIZE]);
    put(header, 8, crc);
}

/// Corrects a segment's header.
pub fn segment_header(header: &mut [u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..32]);
    put(header, 12, crc);
}

/// Returns a new segment's header.
pub fn new_segment_header(start: u64, size: u64) -> Vec<u8> {
    let mut header = vec![0; SEGMENT_HEADER];
    header[..8].copy_from_slice(b"CLEARWAL");
    header[8] = 1;
    header[16..24].copy_from_slice(&start.to_le_bytes());
    header[24..32].copy_from_slice(&size.to_le_bytes());
    segment_header(&mut header);
    header
}

/// Corrects tags and checksums of the consecutive records in `log`, which starts at `start`, from
/// `first` on.
pub fn records(log: &mut [u8], start: u64, first: u64) {
    let mut at = first.saturating_sub(start) as usize;
    while let Some(head) = log.get(at..at + RECORD_HEADER) {
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len < RECORD_HEADER || at + len > log.len() {
            return;
        }
        let lsn = start + at as u64;
        log[at + 8..at + 12].copy_from_slice(&((lsn >> 3) as u32).to_le_bytes());
        let mut crc = crc32c::crc32c(&log[at + RECORD_HEADER..at + len]);
        crc = crc32c::crc32c_append(crc, &(len as u32).to_le_bytes());
        crc = crc32c::crc32c_append(crc, &lsn.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &log[at + 12..at + 16]);
        put(log, at + 4, crc);
        at += len.next_multiple_of(8);
    }
}

/// Returns a padded record with this payload, whose header [`records`] completes.
pub fn record(payload: &[u8], unsynced: u32) -> Vec<u8> {
    let mut out = vec![0; RECORD_HEADER];
    out[..4].copy_from_slice(&((RECORD_HEADER + payload.len()) as u32).to_le_bytes());
    out[12..].copy_from_slice(&unsynced.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}
