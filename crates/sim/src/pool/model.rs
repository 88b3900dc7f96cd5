//! What the pages must have: each version that was ever written of each, in order.
//!
//! All of it changes between two steps of the execution: nothing here is a point at which another
//! thread may go on, so that a version comes into being at one moment, while its page's exclusive
//! latch is held.

use clearway_buffer::{HEADER, PAGE_SIZE, lsn};
use clearway_types::{Lsn, PageId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A version of a page: what every word of its body has, and where its log record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// What it is known by; 0 for a page that was never written.
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
    /// Every change whose record starts before has been said to be on the disk.
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

    /// A stamp that no version has.
    pub fn new_stamp(&self) -> u64 {
        let mut state = self.state();
        state.stamps += 1;
        state.stamps
    }

    /// The page has got a version, by the holder of its exclusive latch.
    pub fn write(&self, id: PageId, version: Version) {
        self.state().versions(id).push(version);
    }

    /// The number of the page's newest version, and that version.
    pub fn newest(&self, id: PageId) -> (usize, Version) {
        let mut state = self.state();
        let versions = state.versions(id);
        (versions.len() - 1, versions[versions.len() - 1])
    }

    /// The number of the version that a page's bytes are, header's LSN included; else what is wrong
    /// with them.
    pub fn number(&self, id: PageId, bytes: &[u8]) -> Result<usize, String> {
        let stamp = stamp(id, bytes)?;
        let found =
            self.state().versions(id).iter().position(|v| v.stamp == stamp && v.end == lsn(bytes));
        found.ok_or_else(|| {
            format!("{id} has stamp {stamp} with {}, which nobody wrote", lsn(bytes))
        })
    }

    /// It was said that every change before `lsn` is on the disk.
    pub fn raise_floor(&self, lsn: Lsn) {
        let mut state = self.state();
        state.floor = state.floor.max(lsn);
    }

    /// Up to where it was said so.
    pub fn floor(&self) -> Lsn {
        self.state().floor
    }

    /// Whether this number of a version may be what a disk has of the page, by what was said before
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
                "{id} is on the disk as {:?}, but it was said that all before {floor} is there: {later:?}",
                versions[number]
            )),
        }
    }
}

/// Fills a part of a page's body: the words from `from` on up to `to`, counted in words of the
/// body.
pub fn fill(page: &mut [u8], id: PageId, stamp: u64, words: std::ops::Range<usize>) {
    let body = &mut page[HEADER..];
    for word in words {
        let value = if word == 0 { id.to_u64() ^ stamp } else { stamp };
        body[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Words of a page's body.
pub const WORDS: usize = (PAGE_SIZE - HEADER) / 8;

/// The stamp that the whole body has, with this page's id; else what is wrong.
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
