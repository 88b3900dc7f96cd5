//! Reads records of an open log backwards, for a rollback and for recovery's undo.
//!
//! Invariants
//! 1. One read loads a window of the log that ends with the requested record, so the records before
//!    it need no reads of their own. If few of a window's bytes were requested, the next window is
//!    shorter, otherwise longer. So the bytes read stay in proportion to the bytes requested.
//! 2. Nothing before `from` is read, because it may be gone.
//!
//! Locking: none. Segments are found by name. Those from `from` on are not removed while they are
//! needed.

use clearway_types::Lsn;

use super::reader::{WalEntry, WalError};
use super::record::{HEADER, Header};
use super::segment::Source;

/// Minimum window size in bytes.
const SHORTEST: u64 = 4 << 10;
/// A window was too long if less than 1/4 of it was requested.
const DENSE: u64 = 4;

/// Reads records backwards.
pub(crate) struct BackReader {
    source: Source,
    from: u64,
    window: Vec<u8>,
    window_at: u64,
    length: u64,
    longest: u64,
    /// Bytes of the window that were requested.
    asked: u64,
}

impl BackReader {
    /// Creates a reader with windows of at most `longest` bytes.
    pub(super) fn new(source: Source, from: Lsn, longest: u64) -> Self {
        let longest = longest.max(SHORTEST);
        let length = longest.min(16 * SHORTEST);
        Self {
            source,
            from: from.0 / 8 * 8,
            window: Vec::new(),
            window_at: 0,
            length,
            longest,
            asked: 0,
        }
    }

    /// Returns the record that starts at `start`, which must be durable.
    ///
    /// # Errors
    /// The disk's errors; `Corrupt` if there is no valid record.
    pub(crate) fn record(&mut self, start: Lsn) -> Result<WalEntry<'_>, WalError> {
        let header = match self.inside(start.0) {
            Some(header) => header,
            None => self.load(start.0)?,
        };
        let at = (start.0 - self.window_at) as usize;
        let record = &self.window[at..at + header.len()];
        if !header.verify(record) {
            return Err(self.corrupt(start.0));
        }
        self.asked += record.len() as u64;
        Ok(WalEntry { start, end: Lsn(header.end()), payload: &record[HEADER..] })
    }

    /// Returns the header of a record if the window contains the whole record.
    fn inside(&self, start: u64) -> Option<Header> {
        let rest = self.window.get(usize::try_from(start.checked_sub(self.window_at)?).ok()?..)?;
        Header::parse(rest, start).filter(|header| header.len() <= rest.len())
    }

    fn load(&mut self, start: u64) -> Result<Header, WalError> {
        if start < self.from {
            return Err(self.corrupt(start));
        }
        if !self.window.is_empty() {
            let dense = self.asked * DENSE >= self.window.len() as u64;
            self.length =
                if dense { self.length * 2 } else { self.length / 2 }.clamp(SHORTEST, self.longest);
        }
        self.asked = 0;
        self.window.clear();
        self.source.read(start, start + HEADER as u64, &mut self.window)?;
        let Some(header) = Header::parse(&self.window, start) else {
            return Err(self.corrupt(start));
        };
        self.window.clear();
        self.window_at = header.end().saturating_sub(self.length).max(self.from).min(start);
        self.source.read(self.window_at, header.end(), &mut self.window)?;
        self.inside(start).ok_or_else(|| self.corrupt(start))
    }

    fn corrupt(&self, at: u64) -> WalError {
        let reason = format!("{}: there is no valid record", self.source.path_of(at).display());
        WalError::Corrupt { lsn: Lsn(at), reason }
    }
}
