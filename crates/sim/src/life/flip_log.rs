//! Flips a bit of the log between two lives and checks what the next start makes of it.
//!
//! Fault budget: one bit of a copy of what a crash has left, between the start of recovery's scan
//! and slightly beyond the end of the log. What the engine must do:
//! 1. If a later record, or the mark at the end of the log, shows that the place was on disk:
//!    refuse to start, report damage and the file; `clearway check` finds it.
//! 2. If nothing in the log shows it: the same, if something else does (the control file, a page).
//!    Otherwise the log ends before the damaged record. What is lost then cannot be known
//!    (docs/durability.md), so the rest is not checked.
//! 3. Where there is no record: nothing changes.
//!
//! This file parses records by docs/format.md, not with the engine's code.

use super::Story;
use crate::rng::Rng;
use clearway_coordinator::OpenErrorKind;
use clearway_env::{Disk, Open};
use clearway_testkit::MemDisk;
use std::path::{Path, PathBuf};

/// Bytes of a segment's header.
const SEGMENT_HEADER: u64 = 4096;
/// Bytes of a record's header, and of a mark.
const HEADER: u64 = 16;
/// The first word of a mark.
const MARK: u32 = 0x8000_0010;
/// Bits also flip up to this many bytes beyond the end of the log.
const BEHIND: u64 = 3000;

/// A record without its padding.
struct Record {
    start: u64,
    end: u64,
    /// The log was on disk up to here when the record was written.
    durable: u64,
}

/// The log of a directory, from the start of recovery's scan.
struct Log {
    disk: MemDisk,
    segment: u64,
    records: Vec<Record>,
    /// The last mark says that the log was on disk up to here.
    marked: u64,
    from: u64,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Returns the start of recovery's scan, from the valid slot with the higher generation.
fn scan_from(disk: &MemDisk) -> Result<u64, String> {
    let mut slots = Vec::new();
    for at in [0, 4096] {
        let slot = read(disk, Path::new("/db/control"), at, 64)?;
        if crc32c::crc32c(&slot[..60]) == word(&slot, 60) {
            slots.push((double(&slot, 16), double(&slot, 32)));
        }
    }
    slots
        .into_iter()
        .max()
        .map(|(_, from)| from)
        .ok_or("no slot of the control file is valid".into())
}

fn read(disk: &MemDisk, path: &Path, at: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; len];
    let file = disk.open(path, Open::Existing).map_err(|e| format!("{}: {e}", path.display()))?;
    file.read_zero_filled_at(&mut bytes, at).map_err(|e| e.to_string())?;
    Ok(bytes)
}

impl Log {
    /// Reads the log up to `end`.
    fn read(disk: &MemDisk, end: u64) -> Result<Self, String> {
        let names = disk.list(Path::new("/db/wal")).map_err(|e| e.to_string())?;
        let any =
            names.iter().find(|name| name.ends_with(".wal")).ok_or("the log has no segment")?;
        let segment = double(&read(disk, &Path::new("/db/wal").join(any), 24, 8)?, 0);
        let from = scan_from(disk)?.max(8);
        let mut log = Self { disk: disk.clone(), segment, records: Vec::new(), marked: 0, from };
        let mut at = from;
        while at < end {
            let header = log.bytes(at, HEADER)?;
            let (len, unsynced) = (u64::from(word(&header, 0)), word(&header, 12));
            let durable = if unsynced == u32::MAX { 0 } else { at - u64::from(unsynced) * 8 };
            log.records.push(Record { start: at, end: at + len, durable });
            at = (at + len).next_multiple_of(8);
        }
        if at != end {
            return Err(format!("the log ends at {end}, but a record reaches up to {at}"));
        }
        let mark = log.bytes(end, HEADER)?;
        let sealed = [&MARK.to_le_bytes()[..], &end.to_le_bytes(), &0u32.to_le_bytes()].concat();
        // The mark counts only if it is complete: a crash may keep one of the two sectors it spans.
        let whole = [MARK, crc32c::crc32c(&sealed), (end / 8) as u32, 0];
        if (0..4).all(|at| word(&mark, at * 4) == whole[at]) {
            log.marked = end;
        }
        Ok(log)
    }

    /// Returns the file and the offset of a place in the log.
    fn place(&self, at: u64) -> (PathBuf, u64) {
        let start = at - at % self.segment;
        (Path::new("/db/wal").join(format!("{start:016x}.wal")), SEGMENT_HEADER + at - start)
    }

    /// Reads bytes of the log; zeros where there is no segment.
    fn bytes(&self, from: u64, len: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut at = from;
        while at < from + len {
            let (path, offset) = self.place(at);
            let n = (from + len - at).min(SEGMENT_HEADER + self.segment - offset);
            let there = self.disk.exists(&path).map_err(|e| e.to_string())?;
            bytes.extend(if there {
                read(&self.disk, &path, offset, n as usize)?
            } else {
                vec![0; n as usize]
            });
            at += n;
        }
        Ok(bytes)
    }

    /// Returns the record that contains the byte.
    fn hit(&self, at: u64) -> Option<&Record> {
        self.records.iter().find(|record| (record.start..record.end).contains(&at))
    }

    /// Returns true if a later part of the log shows that the record was on disk.
    fn proves(&self, hit: &Record) -> bool {
        let later = self.records.iter().filter(|record| record.start > hit.start);
        later.map(|record| record.durable).chain([self.marked]).any(|durable| durable > hit.start)
    }
}

impl Story<'_> {
    /// Flips a bit of the log on `disk`, which a crash has left and whose log ends at `end`, and
    /// checks the next start.
    pub(super) fn flip_log(&mut self, disk: &MemDisk, end: u64) -> Result<(), String> {
        let mut rng = Rng::new(self.world.seed ^ end, "bits of the log");
        let log = Log::read(disk, end)?;
        // Often near the end, where later records that prove damage are rare.
        let from =
            if rng.percent(50) { log.from } else { end.saturating_sub(BEHIND).max(log.from) };
        let at = from + rng.below(end + BEHIND - from);
        let (path, byte) = log.place(at);
        if disk.exists(&path).is_ok_and(|there| !there) {
            return Ok(());
        }
        disk.flip_bits(&path, byte..byte + 1, 1, rng.u64()).map_err(|e| e.to_string())?;
        let hit = log.hit(at);
        let proof = hit.is_some_and(|record| log.proves(record));
        let what = format!(
            "a bit at {at} of a log that ends at {end}, in {}, proof {proof}",
            path.display()
        );
        self.note(&what);
        if proof && self.check(disk).is_ok() {
            return Err(format!("check has not found it ({what})"));
        }
        let opened = self.open(disk);
        match (opened, hit) {
            (Err(error), Some(_)) => {
                let (kind, text) = (error.kind(), error.to_string());
                let named = text.contains(".wal") || text.contains(".data");
                if kind == OpenErrorKind::Damaged && named {
                    Ok(())
                } else {
                    Err(format!("{text} ({what})"))
                }
            }
            (Err(error), None) => Err(format!("it cannot be opened: {error} ({what})")),
            (Ok(_), Some(_)) if proof => Err(format!("it was opened all the same ({what})")),
            (Ok((engine, bells)), hit) => {
                let (found, expected) =
                    (engine.report().log_end.0, hit.map_or(end, |record| record.start));
                if found != expected {
                    return Err(format!("the log ends at {found} instead of {expected} ({what})"));
                }
                if hit.is_none() {
                    self.judge(&engine, &bells).map_err(|why| format!("{why} ({what})"))?;
                }
                engine.shutdown().map_err(|e| format!("an orderly shutdown failed: {e} ({what})"))
            }
        }
    }
}
