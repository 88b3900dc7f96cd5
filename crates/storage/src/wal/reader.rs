//! Reads the log at start-up, and distinguishes its end from damage.
//!
//! A crash may keep any of the sectors written since the last sync. So an unreadable place at the
//! end is usually a torn tail, even if complete records follow it. It is damage if something proves
//! that the unreadable place was durable. The proof may be a record that follows (by its
//! `unsynced`), or the mark that an idle flusher leaves behind the last group. It may also be the
//! control file, or the copies of pages in the double-write file; their readers call
//! [`WalReader::must_reach`]. `docs/durability.md` says which cases cannot be distinguished.

use std::fmt;
use std::io;
use std::sync::Arc;

use clearway_env::Disk;
use clearway_types::Lsn;

use super::flusher::MAX_UNSYNCED;
use super::record::{self, HEADER, Header};
use super::segment::{self, BLOCK, STRIDE, Source};
use super::span::Span;
use super::{LOG_START, WalConfig};

/// Why the log cannot be read.
#[derive(Debug)]
pub enum WalError {
    /// The disk failed, or a segment's header is invalid (`InvalidData`).
    Io(io::Error),
    /// The log is damaged at `lsn`, and not by a crash.
    Corrupt {
        /// The start of the unreadable record.
        lsn: Lsn,
        /// The file, and what was found.
        reason: String,
    },
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the log: {error}"),
            Self::Corrupt { lsn, reason } => write!(f, "the log is damaged at {lsn}: {reason}"),
        }
    }
}

impl std::error::Error for WalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Corrupt { .. } => None,
        }
    }
}

impl From<io::Error> for WalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalEntry<'a> {
    /// The record's start.
    pub start: Lsn,
    /// The record's end, where the next one starts: what [`Log::append`](super::Log::append)
    /// returned.
    pub end: Lsn,
    /// The appended bytes.
    pub payload: &'a [u8],
}

/// Reads the log in order. Must not be used while segments are removed.
pub struct WalReader {
    source: Source,
    /// The log from `window_at` on, as far as it was read for `next`.
    window: Vec<u8>,
    window_at: u64,
    position: u64,
    ended: bool,
    /// The highest LSN that the records read so far prove to be durable.
    durable: u64,
    /// How far beyond the end to search for proof of damage, in bytes.
    look: u64,
    /// The last record examined beyond the end.
    single: Vec<u8>,
}

impl WalReader {
    /// Creates a reader of the records from `from` on: a record's start, the log's end, or 0 for
    /// the beginning of a log that never lost a segment.
    ///
    /// # Errors
    /// `Corrupt` if no segment contains `from`, or if a later segment is missing. Exception: a log
    /// without segments ends at 0.
    pub fn open(disk: Arc<dyn Disk>, config: &WalConfig, from: Lsn) -> Result<Self, WalError> {
        let position = from.max(LOG_START).0;
        let segment::Found { starts, size } =
            segment::find(&*disk, &config.dir, config.segment_size)?;
        let corrupt = |reason: String| Err(WalError::Corrupt { lsn: Lsn(position), reason });
        if !position.is_multiple_of(8) || position > segment::MAX_LOG {
            return corrupt("no record starts at such a place".to_owned());
        }
        let mut expected = position - position % size;
        if starts.is_empty() && from > LOG_START {
            return corrupt(format!("{} has no segments", config.dir.display()));
        }
        if !starts.is_empty()
            && !starts.contains(&expected)
            && starts.last().is_some_and(|last| last + size != position)
        {
            return corrupt(format!(
                "{} is missing",
                segment::path(&config.dir, expected).display()
            ));
        }
        for &start in starts.iter().filter(|&&start| start > position) {
            expected += size;
            if start != expected {
                return corrupt(format!(
                    "{} is missing",
                    segment::path(&config.dir, expected).display()
                ));
            }
        }
        let source = Source::new(disk, config.dir.clone(), size);
        Ok(Self {
            source,
            window: Vec::new(),
            window_at: position,
            position,
            ended: false,
            durable: LOG_START.0,
            look: MAX_UNSYNCED,
            single: Vec::new(),
        })
    }

    /// Returns the next record. Returns `None` at the log's end, clean or torn, and from then on.
    #[allow(
        clippy::should_implement_trait,
        reason = "it lends the record, which an Iterator cannot"
    )]
    pub fn next(&mut self) -> Result<Option<WalEntry<'_>>, WalError> {
        if self.ended {
            return Ok(None);
        }
        let start = self.position;
        let Some(header) = self.verified()? else {
            self.ended = true;
            self.check_tail()?;
            return Ok(None);
        };
        self.position = header.end();
        self.durable = self.durable.max(header.durable_before());
        let at = (start - self.window_at) as usize;
        let payload = &self.window[at + HEADER..at + header.len()];
        Ok(Some(WalEntry { start: Lsn(start), end: Lsn(header.end()), payload }))
    }

    /// Returns the start of the next record. After [`WalReader::next`] has returned `None`, this is
    /// the end of the log, for [`Wal::open`](super::Wal::open).
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Returns the highest LSN that the log's records and marks prove to be durable.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }

    /// Searches for proof of damage to the end of the log's files, not only as far as a crash can
    /// leave data. Finds longer damage, and is slower.
    pub(crate) fn search_far(&mut self) {
        self.look = u64::MAX;
    }

    /// Returns the file that contains `lsn`, and the offset in it.
    pub(crate) fn place(&self, lsn: Lsn) -> (std::path::PathBuf, u64) {
        (self.source.path_of(lsn.0), BLOCK + lsn.0 % self.source.size())
    }

    /// Checks, after the log was read to its end, that the end is not before `durable`. `proof`
    /// says why the log is known to have been durable up to there.
    pub(crate) fn must_reach(&mut self, durable: Lsn, proof: &str) -> Result<(), WalError> {
        if self.position >= durable.0 { Ok(()) } else { Err(self.damaged(self.position, proof)?) }
    }

    /// Converts the reader into one for ranges of the log.
    pub(crate) fn into_span(self) -> Span {
        Span::new(self.source)
    }

    /// Returns the error for an invalid record at `at` that is proven to have been durable.
    fn damaged(&mut self, at: u64, proof: &str) -> io::Result<WalError> {
        self.single.clear();
        self.source.read(at, at + HEADER as u64, &mut self.single)?;
        let what = match (record::header_problem(&self.single, at), Header::parse(&self.single, at))
        {
            (None, Some(header)) => {
                self.source.read(at + HEADER as u64, at + header.len() as u64, &mut self.single)?;
                if self.single.len() < header.len() {
                    format!(
                        "a record of {} bytes expected, {} found",
                        header.len(),
                        self.single.len()
                    )
                } else {
                    let (expected, found) = header.checksums(&self.single);
                    format!("checksum {expected:#x} expected, {found:#x} found")
                }
            }
            (what, _) => what.unwrap_or_default(),
        };
        let (path, offset) = self.place(Lsn(at));
        let reason = format!("{} offset {offset}: {what}; {proof}", path.display());
        Ok(WalError::Corrupt { lsn: Lsn(at), reason })
    }

    /// Returns the header of the record at `position` once the whole record is in the window, with
    /// its padding: the next record starts behind that. Returns `None` if there is no valid record.
    fn verified(&mut self) -> io::Result<Option<Header>> {
        let start = self.position;
        if !self.need(HEADER)? {
            return Ok(None);
        }
        let Some(header) = Header::parse(&self.window[(start - self.window_at) as usize..], start)
        else {
            return Ok(None);
        };
        if !self.need((header.end() - start) as usize)? {
            return Ok(None);
        }
        let at = (start - self.window_at) as usize;
        Ok(header.verify(&self.window[at..at + header.len()]).then_some(header))
    }

    /// Reads until the window has `len` bytes from `position` on. Returns false if the log's files
    /// end earlier.
    fn need(&mut self, len: usize) -> io::Result<bool> {
        let used = (self.position - self.window_at) as usize;
        if self.window.len() >= used + len {
            return Ok(true);
        }
        self.window.drain(..used);
        self.window_at = self.position;
        let from = self.window_at + self.window.len() as u64;
        self.source.read(from, self.position + len.max(STRIDE) as u64, &mut self.window)?;
        Ok(self.window.len() >= len)
    }

    /// Loads the record at `start` into `single`. Returns `None` if it is not valid.
    fn load(&mut self, start: u64) -> io::Result<Option<Header>> {
        self.single.clear();
        self.source.read(start, start + HEADER as u64, &mut self.single)?;
        let Some(header) = Header::parse(&self.single, start) else { return Ok(None) };
        self.source.read(start + HEADER as u64, start + header.len() as u64, &mut self.single)?;
        Ok((self.single.len() == header.len() && header.verify(&self.single)).then_some(header))
    }

    /// Searches beyond the log's end, at `position`, for proof that it should not be the end.
    fn check_tail(&mut self) -> Result<(), WalError> {
        let end = self.position;
        let mut at = end;
        let mut chunk = Vec::with_capacity(STRIDE);
        while at < end.saturating_add(self.look) {
            chunk.clear();
            self.source.read(at, at + STRIDE as u64, &mut chunk)?;
            let (headers, _) = chunk.as_chunks::<HEADER>();
            if headers.is_empty() {
                return Ok(());
            }
            // Records start at multiples of 8. The last half header is checked again with the next
            // chunk.
            let places = (0..=chunk.len() - HEADER).step_by(8);
            let likely =
                places.filter(|&place| Header::tag_fits(&chunk[place..], at + place as u64));
            let likely: Vec<u64> = likely.map(|place| at + place as u64).collect();
            for start in likely {
                let durable = if record::is_mark(&chunk[(start - at) as usize..], start) {
                    start
                } else {
                    self.load(start)?.map_or(0, Header::durable_before)
                };
                if durable > end {
                    let proof = format!(
                        "what lies at {start} shows that the log was on the disk up to {durable}"
                    );
                    return Err(self.damaged(end, &proof)?);
                }
                self.durable = self.durable.max(durable);
            }
            at += (chunk.len() - HEADER / 2) as u64 / 8 * 8;
        }
        Ok(())
    }
}
