//! Reads records of a log that is in use, from later ones to earlier ones: what a rollback and
//! recovery's undo do.
//!
//! Invariants
//! 1. A window of the log that ends with the record asked for is read at once, so that the records
//!    before it cost no read of their own. Where few of a window's bytes were asked for, the next
//!    is shorter, else longer: what is read stays in proportion to what is asked for.
//! 2. Nothing before `from` is read: it may be gone.
//!
//! Locking: none. Segments are found by name; those from `from` on are not removed while someone
//! needs them.

use clearway_types::Lsn;

use super::reader::{WalEntry, WalError};
use super::record::{HEADER, Header};
use super::segment::Source;

/// The shortest window, in bytes.
const SHORTEST: u64 = 4 << 10;
/// A window of which less than one part in so many was asked for was too long.
const DENSE: u64 = 4;

/// See the module's text.
pub(crate) struct BackReader {
    source: Source,
    from: u64,
    window: Vec<u8>,
    window_at: u64,
    length: u64,
    longest: u64,
    /// Bytes of the window that were asked for.
    asked: u64,
}

impl BackReader {
    /// With windows of so many bytes at most.
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

    /// The record that starts at `start`, which must be durable.
    ///
    /// # Errors
    /// The disk's; `Corrupt` if there is no valid record.
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

    /// The header of a record that the window has whole.
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
