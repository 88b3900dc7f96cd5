//! The first pass: every page of a partition's file by itself, in file order, with large reads.
//!
//! It keeps what the second pass (`trees`) needs: eight bytes of each page, and the keys of nodes
//! as far as the given memory allows. Other nodes are read again.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_buffer::{Damage, PAGE_SIZE, PageError, data_file_name, kind, lsn, verify};
use clearway_env::{Disk, File, Open};
use clearway_types::{Lsn, PageId, PartitionId};

use super::node;
use super::report::{Finding, FindingSeverity};
use super::{Out, overlay::Overlay};
use crate::page::{
    KIND_FREE, KIND_META, KIND_NODE, KIND_OVERFLOW, OVERFLOW_ROOM, next, part, u16_at,
};

/// Pages per read.
pub(super) const STRIDE: usize = 128;
/// Kind of a page that fails verification or is invalid by itself. It has been reported.
pub(super) const BAD: u8 = 0xff;
/// Kind of a page that was never written.
pub(super) const UNWRITTEN: u8 = 0;
/// Offset of the byte count in an overflow page.
const PART: usize = 28;

pub(super) type Page = [u8; PAGE_SIZE];

/// A partition's file.
pub(super) struct PageFile {
    pub(super) partition: PartitionId,
    file: Option<Arc<dyn File>>,
    path: PathBuf,
    /// The path relative to the data directory.
    shown: String,
    /// Number of pages in the file; the last may be truncated.
    pub(super) pages: u32,
}

impl PageFile {
    /// Opens the file; a missing file has no pages.
    pub(super) fn open(disk: &dyn Disk, dir: &Path, partition: PartitionId) -> io::Result<Self> {
        let name = data_file_name(partition);
        let path = dir.join("data").join(&name);
        let file = if disk.exists(&path)? { Some(disk.open(&path, Open::Existing)?) } else { None };
        let len = file.as_ref().map_or(Ok(0), |file| file.len())?;
        let pages = u32::try_from(len.div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX);
        Ok(Self { partition, file, path, shown: format!("data/{name}"), pages })
    }

    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn id(&self, no: u32) -> PageId {
        PageId::new(self.partition, no)
    }

    /// Fills `into` with the pages from `no` on, and with zeros beyond the end of the file.
    pub(super) fn read(&self, no: u32, into: &mut [u8]) -> io::Result<()> {
        let Some(file) = &self.file else {
            into.fill(0);
            return Ok(());
        };
        file.read_zero_filled_at(into, u64::from(no) * PAGE_SIZE as u64)
    }

    /// Reads a stride of pages into `buffer`. The result has false for each page that cannot be
    /// read.
    pub(super) fn stride(&self, from: u32, buffer: &mut Vec<u8>) -> Vec<bool> {
        let count = STRIDE.min((self.pages - from) as usize);
        buffer.resize(count * PAGE_SIZE, 0);
        if self.read(from, buffer).is_ok() {
            return vec![true; count];
        }
        let numbered = buffer.chunks_exact_mut(PAGE_SIZE).zip(from..);
        numbered.map(|(page, no)| self.read(no, page).is_ok()).collect()
    }

    pub(super) fn damage(&self, page: u32, what: impl Into<String>) -> Finding {
        self.finding(FindingSeverity::Damage, Some(page), what)
    }

    pub(super) fn finding(
        &self,
        severity: FindingSeverity,
        page: Option<u32>,
        what: impl Into<String>,
    ) -> Finding {
        let offset = page.map(|no| u64::from(no) * PAGE_SIZE as u64);
        Finding { severity, file: self.shown.clone(), page, offset, what: what.into() }
    }
}

/// What is kept of every page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub(super) kind: u8,
    pub(super) level: u8,
    /// For overflow pages: bytes of the value in this page.
    pub(super) part: u16,
    /// For overflow and free pages: the next page.
    pub(super) next: u32,
}

/// What is kept of a node while memory lasts.
pub(super) enum Summary {
    Leaf {
        count: usize,
        first: Box<[u8]>,
        last: Box<[u8]>,
        /// Length and first page of each long value.
        chains: Vec<(u32, u32)>,
    },
    Inner {
        /// The key of slot 0 counts as less than any other.
        keys: Vec<Box<[u8]>>,
        children: Vec<u32>,
    },
}

impl Summary {
    fn of(page: &[u8]) -> Self {
        let count = node::count(page);
        let cells = (0..count).map(|slot| node::cell(page, slot));
        if node::level(page) == 0 {
            let key = |slot: usize| {
                if count > 0 { node::cell(page, slot).key.into() } else { Box::default() }
            };
            let chains = cells.filter(|cell| cell.long).map(|cell| cell.chain()).collect();
            return Self::Leaf { count, first: key(0), last: key(count.saturating_sub(1)), chains };
        }
        let (keys, children) = cells.map(|cell| (Box::from(cell.key), cell.child())).unzip();
        Self::Inner { keys, children }
    }

    /// Returns the approximate size in bytes.
    fn size(&self) -> usize {
        const EACH: usize = 24;
        match self {
            Self::Leaf { first, last, chains, .. } => {
                2 * EACH + first.len() + last.len() + 8 * chains.len() + 64
            }
            Self::Inner { keys, children } => {
                keys.iter().map(|key| EACH + key.len()).sum::<usize>() + 4 * children.len() + 64
            }
        }
    }
}

/// A partition's pages after the first pass.
pub(super) struct Pages {
    pub(super) file: PageFile,
    pub(super) facts: Vec<Fact>,
    summaries: HashMap<u32, Summary>,
    /// Page 0, if it is valid.
    pub(super) meta: Option<Box<Page>>,
}

/// The highest LSN that a page may have.
pub(super) struct Limit<'a> {
    /// The end of the directory's log, and the end after recovery.
    pub(super) ends: Option<(Lsn, Lsn)>,
    /// Tells which pages recovery has written.
    pub(super) overlay: Option<&'a Overlay>,
}

impl Limit<'_> {
    fn of(&self, file: &PageFile, no: u32) -> Option<Lsn> {
        let (before, after) = self.ends?;
        let offset = u64::from(no) * PAGE_SIZE as u64;
        let rewritten = self.overlay.is_some_and(|overlay| overlay.is_changed(&file.path, offset));
        Some(if rewritten { after } else { before })
    }
}

impl Pages {
    /// Checks every page of a file. `memory` is the limit for summaries, in bytes.
    pub(super) fn look(
        file: PageFile,
        limit: &Limit<'_>,
        memory: usize,
        out: &mut Out<'_>,
    ) -> Self {
        let mut pages = Self { facts: Vec::new(), summaries: HashMap::new(), meta: None, file };
        let shown: Arc<str> = pages.file.shown.as_str().into();
        let (mut buffer, mut left) = (Vec::new(), memory);
        let mut from = 0;
        while from < pages.file.pages {
            let readable = pages.file.stride(from, &mut buffer);
            for ((bytes, readable), no) in
                buffer.as_chunks::<PAGE_SIZE>().0.iter().zip(readable).zip(from..)
            {
                let told = if readable {
                    examine(bytes, &pages.file, no, limit, &shown)
                } else {
                    Err("it cannot be read".to_owned())
                };
                let fact = told.unwrap_or_else(|what| {
                    out.add(pages.file.damage(no, what));
                    Fact { kind: BAD, level: 0, part: 0, next: 0 }
                });
                pages.facts.push(fact);
                if fact.kind == KIND_META {
                    pages.meta = Some(Box::new(*bytes));
                }
                if fact.kind == KIND_NODE && left > 0 {
                    let summary = Summary::of(bytes);
                    left = left.saturating_sub(summary.size());
                    pages.summaries.insert(no, summary);
                }
            }
            let count = (buffer.len() / PAGE_SIZE) as u32;
            from += count;
            out.report.pages += u64::from(count);
            out.pages(u64::from(count));
        }
        pages
    }

    /// Returns the fact of a page; a page beyond the end of the file was never written.
    pub(super) fn fact(&self, no: u32) -> Fact {
        self.facts.get(no as usize).copied().unwrap_or(Fact {
            kind: UNWRITTEN,
            level: 0,
            part: 0,
            next: 0,
        })
    }

    /// Returns the summary of a node page. Call it at most once for each page.
    pub(super) fn summary(&mut self, no: u32) -> io::Result<Summary> {
        if let Some(summary) = self.summaries.remove(&no) {
            return Ok(summary);
        }
        let mut page = [0; PAGE_SIZE];
        self.file.read(no, &mut page)?;
        Ok(Summary::of(&page))
    }
}

/// Classifies a page; the error says what is wrong with it.
fn examine(
    page: &Page,
    file: &PageFile,
    no: u32,
    limit: &Limit<'_>,
    shown: &Arc<str>,
) -> Result<Fact, String> {
    verify(page, file.id(no), shown).map_err(|error| match error {
        PageError::Damaged { damage, expected, found, .. } => {
            let what = match damage {
                Damage::Checksum => "checksum",
                Damage::Version => "format version",
                Damage::Id => "page id",
                Damage::Lsn => "LSN",
            };
            format!("{what} {expected:#x} expected, {found:#x} found")
        }
        other => other.to_string(),
    })?;
    let mut fact = Fact { kind: kind(page), level: 0, part: 0, next: 0 };
    if fact.kind == UNWRITTEN {
        return if page.iter().all(|&byte| byte == 0) {
            Ok(fact)
        } else {
            Err("kind 1 to 4 expected, 0 found".into())
        };
    }
    if let Some(end) = limit.of(file, no).filter(|end| lsn(page) > *end) {
        return Err(format!("an LSN up to the log's end, {end}, expected, {} found", lsn(page)));
    }
    match fact.kind {
        KIND_META if no == 0 => {}
        KIND_NODE => {
            node::problem(page)?;
            fact.level = node::level(page);
        }
        KIND_OVERFLOW => {
            (fact.part, fact.next) = (u16_at(page, PART) as u16, next(page));
            if part(page).is_empty() {
                return Err(format!(
                    "1 to {OVERFLOW_ROOM} bytes of a value expected, {} found",
                    fact.part
                ));
            }
        }
        KIND_FREE => fact.next = next(page),
        KIND_META => return Err("a node, overflow or free page expected, kind 1 found".to_owned()),
        other => return Err(format!("kind 1 to 4 expected, {other} found")),
    }
    Ok(fact)
}
