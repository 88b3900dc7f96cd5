//! Tests of the log as a whole. Each names the invariant of the log's module that it defends.

mod append;
mod back;
mod crash;
mod fake;
mod group;
mod panics;
mod room;
mod segments;

use std::path::PathBuf;
use std::sync::Arc;

use clearway_env::Disk;
use clearway_testkit::MemDisk;
use clearway_types::Lsn;

use super::{Wal, WalConfig, WalError, WalReader};

/// A log so small that the ring wraps and segments end all the time.
fn small() -> WalConfig {
    WalConfig {
        dir: PathBuf::from("wal"),
        segment_size: 8192,
        buffer_size: 4096,
        ..WalConfig::default()
    }
}

fn open(disk: &MemDisk, end: Lsn) -> Arc<Wal> {
    Wal::open(Arc::new(disk.clone()), small(), end).expect("the log opens")
}

/// Start, end and payload.
type Record = (Lsn, Lsn, Vec<u8>);

/// Returns start, end and payload of every record from `from` on, and the log's end.
fn read(disk: &MemDisk, from: Lsn) -> Result<(Vec<Record>, Lsn), WalError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = WalReader::open(disk, &small(), from)?;
    let mut records = Vec::new();
    while let Some(entry) = reader.next()? {
        records.push((entry.start, entry.end, entry.payload.to_vec()));
    }
    assert!(reader.next()?.is_none());
    Ok((records, reader.position()))
}

/// Returns a payload that identifies `n` and has `len` bytes, at least 8.
fn payload(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.resize(len.max(8), n as u8 ^ 0x5a);
    bytes
}
