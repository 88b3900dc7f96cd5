//! Redo: applies the changes in the log that the pages in the files lack.
//!
//! The log is processed in batches. The changes of a batch are grouped by page: first into buckets,
//! then each bucket is sorted. So each page is read, latched and perhaps written back once per
//! batch, however its changes are scattered over the log. The next pages are prefetched meanwhile,
//! several at a time. A bucket's bytes stay in the processor's cache while they are read out of
//! order.
//!
//! Invariants
//! 1. A page gets the changes of records whose end is above its LSN, in log order, and no others.
//!    Changes of different pages may be redone in any order: each changes one page and reads no
//!    other.
//! 2. A page gets all of its changes of a batch. If one does not fit, the page is damaged and gets
//!    none.
//! 3. Memory: a batch of log and its index. Frames: [`AHEAD`] pinned pages, and never more than 1/8
//!    of the pool.
//!
//! Locking: one page latch at a time. After a crash, pages have more of their changes than before.
//! The next redo continues from there according to their LSNs.
//!
//! Source: ARIES's redo, page by page as in its section on parallel redo; radix partitioning is
//! from hash joins.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_buffer::{MissingPage, PageError, Pin, Pool};
use clearway_sync::mpsc::{Receiver, Sender, channel};
use clearway_types::{Lsn, PageId};

use crate::apply::apply;
use crate::attempt::{Blocked, retry_blocking};
use crate::error::StorageError;
use crate::page;
use crate::record::{self, Record};
use crate::wal::WalReader;

/// Default size of a batch, in bytes of log.
pub(crate) const BATCH: u64 = 128 << 20;
/// Maximum number of pages to prefetch.
const AHEAD: usize = 256;

/// Number of buckets, and number of adjacent pages per bucket: a file's pages come in runs.
const BUCKETS: u32 = 256;
const RUN: u32 = 64;

/// One change of a batch.
struct Change {
    page: PageId,
    /// Its offset in the bucket's bytes, greater than those of earlier changes.
    at: u32,
    /// The end of its record in the log.
    end: Lsn,
}

/// The changes of some pages.
#[derive(Default)]
struct Bucket {
    bytes: Vec<u8>,
    changes: Vec<Change>,
}

/// Repeats history up to `end`, `batch` bytes of log at a time. Returns the number of changes
/// redone; the changes of one page in one record count once.
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
            // A sequential pass over all the bytes brings them into the cache.
            near.clear();
            near.extend_from_slice(&bucket.bytes);
            redone += apply_all(pool, most, &bucket.changes, &near)?;
        }
    }
    Ok(redone)
}

/// Reads the next batch of records; returns false if there are none.
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
        let malformed = |_| StorageError::bad_record(entry.start, "it is malformed");
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

/// Redoes sorted changes, prefetching at most `most` pages.
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
        redone += retry_blocking(pool, || apply_page(pool, changes, bytes))?;
    }
    Ok(redone)
}

/// Applies the changes that a page lacks.
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

/// Prefetched pages, in the order in which they are needed.
struct Ahead<'p, I> {
    pool: &'p Arc<Pool>,
    /// Pages not requested yet.
    pages: I,
    sender: Sender<Arrival>,
    receiver: Receiver<Arrival>,
    /// Requested pages; `Some` once resident.
    asked: VecDeque<Option<Pin>>,
    /// The number of the first requested page.
    first: usize,
    /// Number of requests without an answer.
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

    /// Returns the next page, pinned, once it is resident.
    fn next(&mut self) -> Result<Option<Pin>, StorageError> {
        while self.asked.len() < self.most
            && let Some(page) = self.pages.next()
        {
            let (number, sender) = (self.first + self.asked.len(), self.sender.clone());
            self.asked.push_back(None);
            self.pending += 1;
            // The receiver outlives all pending requests, so the send succeeds.
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
    /// Waits for the pending reads, also after an error: no read may be in flight when redo
    /// returns, since the directory may be closed next.
    fn drop(&mut self) {
        for _ in 0..self.pending {
            drop(self.receiver.recv());
        }
    }
}
