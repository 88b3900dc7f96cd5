//! The expected contents of the pages: every version ever written of each page, in order.
//!
//! The model changes between two steps of the execution: it has no scheduling point. So a version
//! appears at one moment, while the page's exclusive latch is held.

use clearway_buffer::{HEADER, PAGE_SIZE, lsn};
use clearway_types::{Lsn, PageId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A version of a page: the value of every word of its body, and the place of its log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Identifies the version; 0 for a page that was never written.
    pub stamp: u64,
    /// The start of the log record.
    pub start: Lsn,
    /// Its end: the page's LSN.
    pub end: Lsn,
}

const NEVER: Version = Version { stamp: 0, start: Lsn(0), end: Lsn(0) };

/// The model.
#[derive(Default)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: BTreeMap<PageId, Vec<Version>>,
    stamps: u64,
    /// Every change whose record starts before this LSN has been reported as on disk.
    floor: Lsn,
}

impl State {
    fn versions(&mut self, id: PageId) -> &mut Vec<Version> {
        self.pages.entry(id).or_insert_with(|| vec![NEVER])
    }
}

impl Model {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a stamp that no version has.
    pub fn new_stamp(&self) -> u64 {
        let mut state = self.state();
        state.stamps += 1;
        state.stamps
    }

    /// Adds a version of the page. The caller holds its exclusive latch.
    pub fn write(&self, id: PageId, version: Version) {
        self.state().versions(id).push(version);
    }

    /// Returns the number of the page's newest version, and that version.
    pub fn newest(&self, id: PageId) -> (usize, Version) {
        let mut state = self.state();
        let versions = state.versions(id);
        (versions.len() - 1, versions[versions.len() - 1])
    }

    /// Returns the number of the version that a page's bytes hold, including the header's LSN;
    /// otherwise what is wrong with them.
    pub fn number(&self, id: PageId, bytes: &[u8]) -> Result<usize, String> {
        let stamp = stamp(id, bytes)?;
        let found =
            self.state().versions(id).iter().position(|v| v.stamp == stamp && v.end == lsn(bytes));
        found.ok_or_else(|| {
            format!("{id} has stamp {stamp} with {}, which nobody wrote", lsn(bytes))
        })
    }

    /// Records that every change before `lsn` was reported as on disk.
    pub fn raise_floor(&self, lsn: Lsn) {
        let mut state = self.state();
        state.floor = state.floor.max(lsn);
    }

    /// Returns the LSN up to which changes were reported as on disk.
    pub fn floor(&self) -> Lsn {
        self.state().floor
    }

    /// Returns whether a disk may hold this version of the page, given what was reported before
    /// `floor` and was in the log up to `durable`.
    pub fn judge_disk(
        &self,
        id: PageId,
        number: usize,
        floor: Lsn,
        durable: Lsn,
    ) -> Result<(), String> {
        let mut state = self.state();
        let versions = state.versions(id);
        if versions[number].end > durable {
            return Err(format!(
                "{id} is on the disk as {:?}, the log only up to {durable}",
                versions[number]
            ));
        }
        match versions[number + 1..].iter().find(|later| later.start < floor) {
            None => Ok(()),
            Some(later) => Err(format!(
                "{id} is on the disk as {:?}, but everything before {floor} was reported as on disk: {later:?}",
                versions[number]
            )),
        }
    }
}

/// Fills the words `from..to` of a page's body.
pub fn fill(page: &mut [u8], id: PageId, stamp: u64, words: std::ops::Range<usize>) {
    let body = &mut page[HEADER..];
    for word in words {
        let value = if word == 0 { id.to_u64() ^ stamp } else { stamp };
        body[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Words of a page's body.
pub const WORDS: usize = (PAGE_SIZE - HEADER) / 8;

/// Returns the stamp that the whole body has, with this page's id; otherwise what is wrong.
fn stamp(id: PageId, bytes: &[u8]) -> Result<u64, String> {
    let (words, _) = bytes[HEADER..].as_chunks::<8>();
    let last = u64::from_le_bytes(words[WORDS - 1]);
    if let Some(at) = (1..WORDS).find(|at| u64::from_le_bytes(words[*at]) != last) {
        let other = u64::from_le_bytes(words[at]);
        return Err(format!("{id} is a half of stamp {other} and a half of {last}"));
    }
    let first = u64::from_le_bytes(words[0]);
    match (first, last) {
        (0, 0) => Ok(0),
        _ if first == id.to_u64() ^ last => Ok(last),
        _ => Err(format!("{id} has the content of {:?}", PageId::from_u64(first ^ last))),
    }
}
