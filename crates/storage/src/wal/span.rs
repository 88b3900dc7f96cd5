//! A range of the log as raw bytes: read from the segments of a log that may be growing, and
//! written to new segments.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_env::{Disk, Open};
use clearway_types::Lsn;

use super::WalError;
use super::record::{HEADER, Header};
use super::segment::{self, STRIDE, Source};

/// Reads ranges of a log.
pub(crate) struct Span {
    source: Source,
}

impl Span {
    pub(super) fn new(source: Source) -> Self {
        Self { source }
    }

    /// Returns the bytes of log per segment.
    pub(crate) fn segment_size(&self) -> u64 {
        self.source.size()
    }

    /// Passes the log from `from` to `to` to `sink`, in order, in runs of complete verified
    /// records. Both LSNs must be record boundaries. The log between them must be durable and safe
    /// from truncation. It may grow beyond `to` meanwhile.
    pub(crate) fn read<E: From<WalError>>(
        &mut self,
        from: Lsn,
        to: Lsn,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, to) = (from.0, to.0);
        let mut window = Vec::with_capacity(2 * STRIDE);
        while at < to {
            let have = at + window.len() as u64;
            let until = to.min(have + STRIDE as u64);
            self.source.read(have, until, &mut window).map_err(WalError::from)?;
            if at + (window.len() as u64) < until {
                return Err(self.corrupt(at + window.len() as u64, "it is missing").into());
            }
            let whole = whole_records(&window, at)
                .map_err(|bad| self.corrupt(bad, "there is no valid record"))?;
            if whole == 0 && until == to {
                return Err(self.corrupt(at, "the record does not end where the log does").into());
            }
            sink(&window[..whole])?;
            window.drain(..whole);
            at += whole as u64;
        }
        Ok(())
    }

    fn corrupt(&self, lsn: u64, what: &str) -> WalError {
        WalError::Corrupt {
            lsn: Lsn(lsn),
            reason: format!("{}: {what}", self.source.path_of(lsn).display()),
        }
    }
}

/// Returns how many bytes of `window` are complete records; the window starts at LSN `at`. The
/// error is the start of an invalid record.
fn whole_records(window: &[u8], at: u64) -> Result<usize, u64> {
    let mut used = 0;
    while window.len() - used >= HEADER {
        let start = at + used as u64;
        let header = Header::parse(&window[used..], start).ok_or(start)?;
        let size = (header.end() - start) as usize;
        if window.len() - used < size {
            break;
        }
        if !header.verify(&window[used..used + header.len()]) {
            return Err(start);
        }
        used += size;
    }
    Ok(used)
}

/// Returns the start and the payload of each record in `log`: complete verified records from `at`
/// on, as [`Span::read`] passes them.
pub(crate) fn records(at: Lsn, log: &[u8]) -> impl Iterator<Item = (Lsn, &[u8])> {
    let mut used = 0;
    std::iter::from_fn(move || {
        let start = at.0 + used as u64;
        let record = log.get(used..)?;
        let header = Header::parse(record, start)?;
        used += (header.end() - start) as usize;
        Some((Lsn(start), record.get(HEADER..header.len())?))
    })
}

/// Segments that are being filled with a range of the log.
pub(crate) struct Restored {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    size: u64,
    starts: Vec<u64>,
}

impl Restored {
    /// Creates zeroed segments for the log from `from` to `to`, and for the appends that follow.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        size: u64,
        from: Lsn,
        to: Lsn,
    ) -> Result<Self, WalError> {
        disk.create_dir_all(dir)?;
        let starts: Vec<u64> = (from.0 / size..=to.0 / size).map(|i| i * size).collect();
        for &start in &starts {
            segment::make(&*disk, dir, start, size, &|| false)?;
        }
        Ok(Self { disk, dir: dir.to_owned(), size, starts })
    }

    /// Writes bytes at their LSN.
    pub(crate) fn write(&self, at: Lsn, bytes: &[u8]) -> io::Result<()> {
        let mut source = Source::new(self.disk.clone(), self.dir.clone(), self.size);
        source.pieces(at.0, at.0 + bytes.len() as u64, &mut |file, offset, lsn, n| {
            let from = (lsn - at.0) as usize;
            file.write_all_at(&bytes[from..from + n], offset)
        })
    }

    /// Makes the segments durable.
    pub(crate) fn finish(self) -> io::Result<()> {
        for start in self.starts {
            self.disk.open(&segment::path(&self.dir, start), Open::Existing)?.sync_data()?;
        }
        self.disk.sync_dir(&self.dir)
    }
}
