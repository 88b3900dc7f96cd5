//! The log's segments as read at startup. Records are consecutive, and reading from any of them
//! returns the same records. The log continues at the end that the reader found: records appended
//! there are read back after all earlier ones.

use super::Image;
use crate::input::Input;
use crate::seal;
use clearway_env::Disk;
use clearway_storage::wal::{Wal, WalConfig, WalError, WalReader};
use clearway_types::Lsn;
use std::path::Path;
use std::sync::Arc;

/// Size of a segment in bytes of log: the minimum.
const SIZE: u64 = 4096;
const MAX_SEGMENTS: usize = 4;

/// Corrects the checksums of records.
pub(crate) const SEAL: u8 = 1;
/// Corrects the checksums of segments' headers after one byte was changed.
const SEAL_HEADER: u8 = 2;
/// Continues the log.
pub(crate) const APPEND: u8 = 4;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, place, from) = (input.u8(), input.u8(), u64::from(input.u16()));
    let (changed, byte) = (usize::from(input.u8() % 32), input.u8());
    // Most logs begin at 0, some at the greatest possible LSN.
    let base = match place {
        0..=0x7f => 0,
        0x80..=0xfd => u64::from(place) << 30,
        _ => 0u64.wrapping_sub(SIZE * u64::from(place - 0xfd)),
    };
    let first = base.max(8);
    let mut log = input.rest().to_vec();
    log.truncate(SIZE as usize * MAX_SEGMENTS);
    if flags & SEAL != 0 {
        seal::records(&mut log, base, first);
    }
    let mut image = Image::default();
    for (i, bytes) in (0u64..).zip(log.chunks(SIZE as usize)) {
        let Some(start) = base.checked_add(i * SIZE) else { break };
        let mut file = seal::new_segment_header(start, SIZE);
        if i == 0 {
            file[changed] ^= byte;
        }
        if flags & SEAL_HEADER != 0 {
            seal::segment_header(&mut file);
        }
        file.extend_from_slice(bytes);
        file.resize(seal::SEGMENT_HEADER + SIZE as usize, 0);
        image.0.push((format!("wal/{start:016x}.wal").into(), file));
    }
    let disk = image.disk();
    let _ = read(&disk, Lsn(base.wrapping_add(from)));
    let Ok((records, end)) = read(&disk, Lsn(first)) else { return };
    if let Some((start, _)) = records.get(records.len() / 2) {
        let (tail, again) = read(&disk, *start).expect("the same log");
        assert_eq!((&tail[..], again), (&records[records.len() / 2..], end));
    }
    if flags & APPEND != 0 {
        continue_log(&disk, records, first, end);
    }
}

type Records = Vec<(Lsn, Vec<u8>)>;

fn config() -> WalConfig {
    WalConfig {
        dir: Path::new("wal").to_owned(),
        segment_size: SIZE,
        buffer_size: 64 << 10,
        ..WalConfig::default()
    }
}

fn read(disk: &Arc<dyn Disk>, from: Lsn) -> Result<(Records, Lsn), WalError> {
    let mut reader = WalReader::open(disk.clone(), &config(), from)?;
    let mut records = Records::new();
    let mut at = reader.position();
    while let Some(entry) = reader.next()? {
        assert_eq!(entry.start, at);
        assert!(entry.end.0 > at.0 && entry.end.0.is_multiple_of(8));
        at = entry.end;
        let _ = clearway_storage::fuzzing::reencode(entry.payload);
        records.push((entry.start, entry.payload.to_vec()));
    }
    assert_eq!(reader.position(), at);
    assert!(reader.next()?.is_none());
    Ok((records, at))
}

fn continue_log(disk: &Arc<dyn Disk>, mut records: Records, first: u64, end: Lsn) {
    let Ok(wal) = Wal::open(disk.clone(), config(), end) else { return };
    for payload in [&b"one"[..], &[7; 3000], b""] {
        let start = wal.appended();
        let end = wal.append(&[payload]);
        records.push((start, payload.to_vec()));
        if wal.wait_durable(end).is_err() {
            return;
        }
    }
    wal.shutdown();
    let (again, _) = read(disk, Lsn(first)).expect("the log is valid");
    assert_eq!(again, records);
}
