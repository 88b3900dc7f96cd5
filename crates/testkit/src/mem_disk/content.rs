//! The content of one file: in the cache, on the medium, and in between.
//!
//! # Invariants
//! 1. `now` is what a read sees. The medium has the same, except for the sectors in `unsynced` and
//!    `stale`, and for the length if `lengths` is not empty.
//! 2. A sector is in at most one of `unsynced` and `stale`: in `unsynced` if a sync will write it,
//!    in `stale` if nothing will. The medium has the first state in `unsynced`, or the state in
//!    `stale`.

use std::collections::{BTreeMap, BTreeSet};

use super::SECTOR;
use clearway_env::SeededEntropy;

/// Maximum number of states remembered for an unsynced sector and for a file's length. Beyond it,
/// the oldest unsynced state is forgotten.
const VERSION_LIMIT: usize = 16;

type Sector = [u8; SECTOR];

/// A file's content.
#[derive(Default)]
pub(super) struct Content {
    now: Vec<u8>,
    /// For each sector changed since the last sync: its synced state, then each later state, with
    /// the number of the change. The last state is in `now`.
    unsynced: BTreeMap<u64, Vec<(u64, Sector)>>,
    /// Number of changes so far.
    changes: u64,
    /// The length at the last sync, then each later length; empty if unchanged.
    lengths: Vec<usize>,
    /// For each sector that was written but will never reach the medium: the medium's content.
    /// `now` has the cache's.
    stale: BTreeMap<u64, Sector>,
    /// Sectors that cannot be read until they are rewritten.
    unreadable: BTreeSet<u64>,
    /// End of the allocated space, independent of the length. A crash may lose allocated space that
    /// was not written.
    pub(super) allocated: usize,
    /// True if the file has no name any more, so its bytes use no space.
    pub(super) unlinked: bool,
}

fn sectors(start: usize, end: usize) -> std::ops::Range<u64> {
    (start / SECTOR) as u64..end.div_ceil(SECTOR) as u64
}

fn remember<T>(versions: &mut Vec<T>, version: T) {
    if versions.len() >= VERSION_LIMIT {
        versions.remove(1);
    }
    versions.push(version);
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// Returns the bytes of space that the file uses.
    pub(super) fn space(&self) -> usize {
        self.now.len().max(self.allocated)
    }

    /// Returns the number of bytes read: less than `buf.len()` at the end of the file.
    pub(super) fn read(&self, buf: &mut [u8], start: usize) -> usize {
        let start = start.min(self.now.len());
        let n = buf.len().min(self.now.len() - start);
        buf[..n].copy_from_slice(&self.now[start..start + n]);
        n
    }

    /// Writes in place or beyond the end; a gap reads as zeros.
    pub(super) fn write(&mut self, buf: &[u8], start: usize) {
        let end = start + buf.len();
        if buf.is_empty() {
            return;
        }
        self.change(start, end, |now| {
            if now.len() < end {
                now.resize(end, 0);
            }
            now[start..end].copy_from_slice(buf);
        });
    }

    /// Does a write that the medium acknowledges but loses. If `cached`, reads see it for a while.
    pub(super) fn write_lost(&mut self, buf: &[u8], start: usize, cached: bool) {
        self.write(buf, start);
        for number in sectors(start, start + buf.len()) {
            if let Some(versions) = self.unsynced.remove(&number) {
                self.stale.insert(number, versions[0].1);
            }
            if !cached {
                self.evict(number);
            }
        }
    }

    /// Does a write that lands at `at` instead of its own place, as far as the file reaches.
    pub(super) fn write_elsewhere(&mut self, buf: &[u8], start: usize, at: usize) {
        self.write_lost(buf, start, false);
        let at = at.min(self.now.len());
        let n = buf.len().min(self.now.len() - at);
        self.write(&buf[..n], at);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let old = self.now.len();
        // Extending adds zeros, which is consistent with every remembered state of a sector.
        self.change(len.min(old), old, |now| now.resize(len, 0));
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.lengths.clear();
    }

    /// Fails a sync as Linux does: some of the sectors reach the medium, and all count as clean, so
    /// no later sync writes the others. The cache may or may not still have those. The length is
    /// not affected.
    pub(super) fn sync_failed(&mut self, random: &SeededEntropy) {
        let evicted = random.below(2) == 0;
        for (number, versions) in std::mem::take(&mut self.unsynced) {
            let written = random.below(versions.len() as u64) as usize;
            if written + 1 < versions.len() {
                self.stale.insert(number, versions[written].1);
            }
            if evicted {
                self.evict(number);
            }
        }
    }

    /// Writes back the sector that holds the byte, as the system may at any time. The sector is
    /// then at rest.
    pub(super) fn write_back(&mut self, byte: usize) {
        self.unsynced.remove(&((byte / SECTOR) as u64));
    }

    /// Flips a bit of a sector at rest. Returns false, without flipping, if the sector is unsynced
    /// or the bit is beyond the end.
    pub(super) fn flip(&mut self, bit: u64) -> bool {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let number = (byte / SECTOR) as u64;
        if byte >= self.now.len() || self.unsynced.contains_key(&number) {
            return false;
        }
        match self.stale.get_mut(&number) {
            Some(sector) => sector[byte % SECTOR] ^= mask,
            None => self.now[byte] ^= mask,
        }
        true
    }

    /// Makes the sector that holds the byte unreadable until it is rewritten.
    pub(super) fn wear_out(&mut self, byte: usize) {
        self.unreadable.insert((byte / SECTOR) as u64);
    }

    pub(super) fn is_readable(&self, start: usize, len: usize) -> bool {
        self.unreadable.range(sectors(start, start + len)).next().is_none()
    }

    /// Returns a copy whose content is all at rest.
    pub(super) fn at_rest(&self) -> Self {
        Self { now: self.now.clone(), unreadable: self.unreadable.clone(), ..Self::default() }
    }

    /// Returns a state that a crash may leave, torn between units of `tear` sectors.
    pub(super) fn survivors(&self, random: &SeededEntropy, tear: u64) -> Self {
        // The last state survives in this percentage of sectors; any earlier state in the others.
        let kept_percent = [0, 10, 50, 90, 100][random.below(5) as usize];
        let choose = |versions: usize| match random.below(100) < kept_percent || versions == 1 {
            true => versions - 1,
            false => random.below(versions as u64 - 1) as usize,
        };
        let length = match self.lengths.len() {
            0 => self.now.len(),
            versions => self.lengths[choose(versions)],
        };
        let mut now = self.now.clone();
        now.resize(length, 0);
        let mut put = |number: u64, sector: &Sector| {
            let start = length.min(number as usize * SECTOR);
            let end = length.min(start + SECTOR);
            now[start..end].copy_from_slice(&sector[..end - start]);
        };
        self.stale.iter().for_each(|(number, sector)| put(*number, sector));
        let unsynced: Vec<_> = self.unsynced.iter().collect();
        if tear == 1 {
            unsynced
                .iter()
                .for_each(|(number, versions)| put(**number, &versions[choose(versions.len())].1));
            return Self { now, unreadable: self.unreadable.clone(), ..Self::default() };
        }
        // Each unit is as it was at one moment, because the system writes back whole pages of its
        // cache.
        for unit in unsynced.chunk_by(|(a, _), (b, _)| *a / tear == *b / tear) {
            let mut moments: Vec<u64> =
                unit.iter().flat_map(|(_, v)| v.iter().map(|(change, _)| *change)).collect();
            moments.sort_unstable();
            moments.dedup();
            let moment = moments[choose(moments.len())];
            for (number, versions) in unit {
                let at = versions.partition_point(|(change, _)| *change <= moment).max(1) - 1;
                put(**number, &versions[at].1);
            }
        }
        Self { now, unreadable: self.unreadable.clone(), ..Self::default() }
    }

    fn sector(&self, number: u64) -> Sector {
        let mut sector = [0; SECTOR];
        let start = self.now.len().min(number as usize * SECTOR);
        let end = self.now.len().min(start + SECTOR);
        sector[..end - start].copy_from_slice(&self.now[start..end]);
        sector
    }

    /// Drops a sector from the cache: a read then sees the medium's content.
    fn evict(&mut self, number: u64) {
        if let Some(sector) = self.stale.remove(&number) {
            let start = self.now.len().min(number as usize * SECTOR);
            let end = self.now.len().min(start + SECTOR);
            self.now[start..end].copy_from_slice(&sector[..end - start]);
        }
    }

    /// Applies `change`, and remembers the sectors from byte `start` to `end` before and after it.
    fn change(&mut self, start: usize, end: usize, change: impl FnOnce(&mut Vec<u8>)) {
        self.changes += 1;
        for number in sectors(start, end) {
            let before = self.stale.remove(&number).unwrap_or_else(|| self.sector(number));
            self.unsynced.entry(number).or_insert_with(|| vec![(0, before)]);
            self.unreadable.remove(&number);
        }
        let length = self.now.len();
        change(&mut self.now);
        for number in sectors(start, end) {
            let after = self.sector(number);
            remember(self.unsynced.entry(number).or_default(), (self.changes, after));
        }
        if self.now.len() != length {
            if self.lengths.is_empty() {
                self.lengths.push(length);
            }
            remember(&mut self.lengths, self.now.len());
        }
    }
}
