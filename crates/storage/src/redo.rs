//! Redo: gives the pages in the files the changes in the log that they lack.
//!
//! The log is taken in batches, and the changes of a batch are put in the order of their pages:
//! first into buckets, then each bucket is sorted. So each page is brought in, latched and perhaps
//! written back once a batch, however its changes are scattered over the log; the next pages are on
//! their way meanwhile, several at a time; and a bucket's bytes are in the processor's cache while
//! they are looked at out of order.
//!
//! Invariants
//! 1. A page gets the changes of its records in the log's order, those whose record ends above its
//!    LSN, and no other. Changes of different pages may be redone in any order: each is of one page
//!    and looks at no other.
//! 2. A page gets all of its changes of a batch or, if one does not fit, none: it is damaged, and
//!    stays as it is.
//! 3. Memory: a batch of log and its index; frames: [`AHEAD`] pinned pages, and never more than an
//!    eighth of the pool.
//!
//! Locking: one page latch at a time. A crash leaves pages with more of their changes than before;
//! the next redo goes on from there, since their LSNs tell.
//!
//! Source: ARIES's redo, page by page as in its section on parallel redo; radix partitioning is
//! from hash joins.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_buffer::{MissingPage, PageError, Pin, Pool};
use clearway_sync::mpsc::{Receiver, Sender, channel};
use clearway_types::{Lsn, PageId};

use crate::apply::apply;
use crate::attempt::patiently;
use crate::error::{Blocked, StorageError};
use crate::page;
use crate::record::{self, Record};
use crate::recovery::bad;
use crate::wal::WalReader;

/// Bytes of log that are redone together, unless said otherwise.
pub(crate) const BATCH: u64 = 128 << 20;
/// Pages that are asked for before they are needed.
const AHEAD: usize = 256;

/// How many buckets there are, and how many neighbouring pages go into the same: a file's pages
/// come in runs.
const BUCKETS: u32 = 256;
const RUN: u32 = 64;

/// One change of a batch.
struct Change {
    page: PageId,
    /// Where it stands in its bucket's bytes: above those of earlier changes.
    at: u32,
    /// Where its record ends in the log.
    end: Lsn,
}

/// The changes of some pages.
#[derive(Default)]
struct Bucket {
    bytes: Vec<u8>,
    changes: Vec<Change>,
}

/// Repeats history up to `end`, so many bytes of log at a time: how many changes were redone, those
/// of one page in one record counted as one.
pub(crate) fn redo(
    pool: &Arc<Pool>,
    reader: &mut WalReader,
    end: Lsn,
    batch: u64,
) -> Result<u64, StorageError> {
    let mut buckets: Vec<Bucket> = (0..BUCKETS).map(|_| Bucket::default()).collect();
    let most = AHEAD.min(pool.stats().frames as usize / 8).max(1);
    let mut near = Vec::new();
    let mut redone = 0;
    while fill(&mut buckets, reader, end, batch)? {
        for bucket in &mut buckets {
            bucket.changes.sort_unstable_by_key(|change| (change.page, change.at));
            // One look at all of it in order brings it into the cache.
            near.clear();
            near.extend_from_slice(&bucket.bytes);
            redone += apply_all(pool, most, &bucket.changes, &near)?;
        }
    }
    Ok(redone)
}

/// Takes the next records; false if there are none.
fn fill(
    buckets: &mut [Bucket],
    reader: &mut WalReader,
    end: Lsn,
    batch: u64,
) -> Result<bool, StorageError> {
    for bucket in &mut *buckets {
        bucket.bytes.clear();
        bucket.changes.clear();
    }
    let first = reader.position();
    while reader.position().0 - first.0 < batch.max(1) && reader.position() < end {
        let Some(entry) = reader.next()? else { break };
        let malformed = |_| bad(entry.start, "it is malformed");
        let Record::Pages { partition, mut ops, .. } =
            record::parse(entry.payload).map_err(malformed)?
        else {
            continue;
        };
        let mut rest = ops.bytes();
        while let Some(op) = ops.next() {
            let (no, _) = op.map_err(malformed)?;
            let (bytes, after) = rest.split_at(rest.len() - ops.bytes().len());
            rest = after;
            let bucket = &mut buckets[(no / RUN % BUCKETS) as usize];
            let at = bucket.bytes.len() as u32;
            bucket.changes.push(Change { page: PageId::new(partition, no), at, end: entry.end });
            bucket.bytes.extend_from_slice(bytes);
        }
    }
    Ok(reader.position() > first)
}

/// Redoes sorted changes, with at most so many pages on their way.
fn apply_all(
    pool: &Arc<Pool>,
    most: usize,
    changes: &[Change],
    bytes: &[u8],
) -> Result<u64, StorageError> {
    let pages = || changes.chunk_by(|a, b| a.page == b.page);
    let mut ahead = Ahead::new(pool, most, pages().map(|changes| changes[0].page));
    let mut redone = 0;
    for changes in pages() {
        let _keep = ahead.next()?;
        redone += patiently(pool, || apply_page(pool, changes, bytes))?;
    }
    Ok(redone)
}

/// Gives a page those of its changes that it does not have.
fn apply_page(pool: &Pool, changes: &[Change], bytes: &[u8]) -> Result<u64, Blocked> {
    let id = changes[0].page;
    let mut page = pool.write(id)?;
    let has = page.lsn();
    let missing = &changes[changes.partition_point(|change| change.end <= has)..];
    let Some(last) = missing.last() else { return Ok(0) };
    let before = page::copy(&page);
    let (mut redone, mut record) = (0, has);
    for change in missing {
        let fits =
            record::op(&bytes[change.at as usize..]).is_ok_and(|op| apply(&mut page, &op).is_ok());
        if !fits {
            page.copy_from_slice(&before);
            return Err(StorageError::Corrupt {
                page: id,
                what: "a logged change does not fit it",
            }
            .into());
        }
        redone += u64::from(change.end > record);
        record = change.end;
    }
    page.mark_dirty_begin();
    page.set_lsn(last.end);
    Ok(redone)
}

type Arrival = (usize, Result<Pin, PageError>);

/// Pages on their way into the pool, in the order in which they are wanted.
struct Ahead<'p, I> {
    pool: &'p Arc<Pool>,
    /// Those that were not asked for yet.
    pages: I,
    sender: Sender<Arrival>,
    receiver: Receiver<Arrival>,
    /// Those that were asked for: each one's page when it is there.
    asked: VecDeque<Option<Pin>>,
    /// The number of the first of them.
    first: usize,
    /// How many were asked for and have not been answered.
    pending: usize,
    most: usize,
}

impl<'p, I: Iterator<Item = PageId>> Ahead<'p, I> {
    fn new(pool: &'p Arc<Pool>, most: usize, pages: I) -> Self {
        let (sender, receiver) = channel();
        Self {
            pool,
            pages,
            sender,
            receiver,
            asked: VecDeque::with_capacity(most),
            first: 0,
            pending: 0,
            most,
        }
    }

    /// The next page, kept in the pool, when it is there.
    fn next(&mut self) -> Result<Option<Pin>, StorageError> {
        while self.asked.len() < self.most
            && let Some(page) = self.pages.next()
        {
            let (number, sender) = (self.first + self.asked.len(), self.sender.clone());
            self.asked.push_back(None);
            self.pending += 1;
            // The receiver outlives all that is pending, so that the send succeeds.
            self.pool.fetch(
                MissingPage::Page(page),
                Box::new(move |result| drop(sender.send((number, result)))),
            );
        }
        while let Some(None) = self.asked.front() {
            let (number, result) = self.receiver.recv().map_err(|_| PageError::Closed)?;
            self.pending -= 1;
            self.asked[number - self.first] = Some(result?);
        }
        self.first += 1;
        Ok(self.asked.pop_front().flatten())
    }
}

impl<I> Drop for Ahead<'_, I> {
    /// After an error, too, no read goes on when redo has returned: the directory may be given up
    /// next.
    fn drop(&mut self) {
        for _ in 0..self.pending {
            drop(self.receiver.recv());
        }
    }
}
