//! The files of the log. Each has a header of 4096 bytes and then `size` bytes of log. They are
//! contiguous; a record may start in one and end in the next.
//!
//! | bytes   | field    |                                                   |
//! |---------|----------|---------------------------------------------------|
//! | 0..8    | magic    | `CLEARWAL`                                        |
//! | 8..12   | version  | 1                                                 |
//! | 12..16  | checksum | CRC-32C of bytes 0..12 and 16..32                 |
//! | 16..24  | start    | LSN of the first byte of log, a multiple of size  |
//! | 24..32  | size     | bytes of log in the segment, a multiple of 4096   |
//!
//! The name is the start as 16 hexadecimal digits and `.wal`. A segment gets its name after its
//! header and all its bytes (zeros, or the bytes of an earlier use) are on disk. So a commit's sync
//! need not allocate blocks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_env::{Disk, File, Open};
use clearway_sync::canary::{self, Bug};

/// Size of a segment's header. `size` is a multiple of it.
pub(super) const BLOCK: u64 = 4096;

const MAGIC: &[u8; 8] = b"CLEARWAL";
const VERSION: u32 = 1;
const FIELDS: usize = 32;
/// Upper bounds for the length of a log and the size of a segment, in bytes. Sums of LSNs and sizes
/// below them do not overflow.
pub(super) const MAX_LOG: u64 = 1 << 62;
const MAX_SIZE: u64 = 1 << 40;
/// Unit of I/O on whole segments, in bytes.
pub(super) const STRIDE: usize = 1 << 20;
/// A new segment is synced after each of this many bytes. A commit's sync, which the disk may queue
/// behind them, then need not wait for all of it.
const MAKE_SYNC: u64 = 4 << 20;
/// Name of a segment while it is being made; start-up removes such a file.
const UNFINISHED: &str = "next.tmp";

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Returns the path of the segment that starts at `start`.
pub(super) fn path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:016x}.wal"))
}

fn start_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    let start = u64::from_str_radix(digits, 16).ok()?;
    (digits == format!("{start:016x}")).then_some(start)
}

fn encode_header(start: u64, size: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&start.to_le_bytes());
    bytes[24..32].copy_from_slice(&size.to_le_bytes());
    let crc = header_crc(&bytes[..FIELDS]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn header_crc(fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&fields[..12]), &fields[16..])
}

/// Reads a segment's header, which must name `start`; returns the segment's size.
fn read_header(file: &dyn File, path: &Path, start: u64) -> io::Result<u64> {
    let mut fields = [0; FIELDS];
    file.read_exact_at(&mut fields, 0).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: reading the header: {error}", path.display()))
    })?;
    let u32_at = |at: usize| {
        u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
    };
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if &fields[..8] != MAGIC {
        return Err(invalid(format!("{}: not a segment of a log", path.display())));
    }
    if u32_at(12) != header_crc(&fields) {
        return Err(invalid(format!("{}: the header's checksum is wrong", path.display())));
    }
    if u32_at(8) != VERSION {
        let found = u32_at(8);
        let message =
            format!("{}: format version {found}, this program reads {VERSION}", path.display());
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let (found, size) = (u64_at(16), u64_at(24));
    let sized = size > 0 && size <= MAX_SIZE && size.is_multiple_of(BLOCK);
    if found != start || start > MAX_LOG || !sized || !start.is_multiple_of(size) {
        return Err(invalid(format!(
            "{}: the header says start {found:#x}, size {size}",
            path.display()
        )));
    }
    Ok(size)
}

/// The segments of a directory.
pub(super) struct Found {
    /// Their starts, ascending.
    pub(super) starts: Vec<u64>,
    /// Their size; the default if there are none.
    pub(super) size: u64,
}

/// Lists the segments in `dir` and checks their headers. A missing directory has none.
pub(super) fn find(disk: &dyn Disk, dir: &Path, default_size: u64) -> io::Result<Found> {
    if default_size == 0 || !default_size.is_multiple_of(BLOCK) {
        let message =
            format!("a log segment's size must be a multiple of {BLOCK} bytes, not {default_size}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    if !disk.exists(dir)? {
        return Ok(Found { starts: Vec::new(), size: default_size });
    }
    let mut starts: Vec<u64> =
        disk.list(dir)?.iter().filter_map(|name| start_of_name(name)).collect();
    starts.sort_unstable();
    let mut size = None;
    for &start in &starts {
        let path = path(dir, start);
        let found = read_header(&*disk.open(&path, Open::Existing)?, &path, start)?;
        if size.is_some_and(|size| size != found) {
            return Err(invalid(format!(
                "{}: {found} bytes, other segments differ",
                path.display()
            )));
        }
        size = Some(found);
    }
    Ok(Found { starts, size: size.unwrap_or(default_size) })
}

/// Removes an unfinished segment that a crash or an error left.
pub(super) fn remove_unfinished(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let path = dir.join(UNFINISHED);
    if disk.exists(&path)? { disk.remove(&path) } else { Ok(()) }
}

/// Makes a segment of zeros. Calls `abandon` now and then; if it returns true, the error is
/// `Interrupted`.
pub(super) fn make(
    disk: &dyn Disk,
    dir: &Path,
    start: u64,
    size: u64,
    abandon: &dyn Fn() -> bool,
) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED);
    // An unfinished segment may be one whose recycling has failed after the rename. Then a crash
    // may bring back its old name, so its header must not change.
    remove_unfinished(disk, dir)?;
    let file = disk.open(&unfinished, Open::Create)?;
    // All or nothing: half a segment must not use the space that others could use. (The zeros
    // written below make the blocks real: blocks that were only allocated slow down the first sync
    // after a write.)
    if let Err(error) = file.allocate(0, BLOCK + size) {
        // A failure of the clean-up would add no information.
        let _ = file.set_len(0).and_then(|()| disk.remove(&unfinished));
        return Err(error);
    }
    let zeros = vec![0; STRIDE.min(size as usize)];
    let mut at = 0;
    while at < size {
        if abandon() {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let n = zeros.len().min((size - at) as usize);
        file.write_all_at(&zeros[..n], BLOCK + at)?;
        at += n as u64;
        if at.is_multiple_of(MAKE_SYNC) {
            file.sync_data()?;
        }
    }
    finish(disk, dir, &*file, start, size)
}

/// Reuses the segment that starts at `old`, whose log is no longer needed, as the one that starts
/// at `start`.
pub(super) fn recycle(
    disk: &dyn Disk,
    dir: &Path,
    old: u64,
    start: u64,
    size: u64,
) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED);
    disk.rename(&path(dir, old), &unfinished)?;
    // The old name must be durably gone before the header says something else.
    disk.sync_dir(dir)?;
    let file = disk.open(&unfinished, Open::Existing)?;
    if canary::on(Bug::RecycledHeader) {
        return disk.rename(&unfinished, &path(dir, start)).and_then(|()| disk.sync_dir(dir));
    }
    finish(disk, dir, &*file, start, size)
}

fn finish(disk: &dyn Disk, dir: &Path, file: &dyn File, start: u64, size: u64) -> io::Result<()> {
    file.write_all_at(&encode_header(start, size), 0)?;
    file.sync_data()?;
    disk.rename(&dir.join(UNFINISHED), &path(dir, start))?;
    disk.sync_dir(dir)
}

/// Processes a piece of the log: `(file, offset in it, LSN, length)`.
pub(super) type Visit<'a> = dyn FnMut(&dyn File, u64, u64, usize) -> io::Result<()> + 'a;

/// Reads the log as if it were one file.
pub(super) struct Source {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    size: u64,
    open: Option<(u64, Arc<dyn File>)>,
}

impl Source {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, size: u64) -> Self {
        Self { disk, dir, size, open: None }
    }

    /// Returns the file of the segment that starts at `start`, or `None` if it does not exist.
    pub(super) fn file(&mut self, start: u64) -> io::Result<Option<Arc<dyn File>>> {
        if let Some((open, file)) = &self.open
            && *open == start
        {
            return Ok(Some(file.clone()));
        }
        match self.disk.open(&path(&self.dir, start), Open::Existing) {
            Ok(file) => {
                self.open = Some((start, file.clone()));
                Ok(Some(file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Splits the range `from .. to` of the log into pieces that are in one segment each and at
    /// most [`STRIDE`] long. Stops at the first missing segment.
    pub(super) fn pieces(&mut self, from: u64, to: u64, visit: &mut Visit<'_>) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let start = at - at % self.size;
            let Some(file) = self.file(start)? else { break };
            let n = (to.min(start + self.size) - at).min(STRIDE as u64);
            visit(&*file, BLOCK + at - start, at, n as usize)?;
            at += n;
        }
        Ok(())
    }

    /// Appends the bytes from `from` to `to` to `into`, or as many as exist.
    pub(super) fn read(&mut self, from: u64, to: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.pieces(from, to, &mut |file, offset, _, n| {
            let old = into.len();
            into.resize(old + n, 0);
            file.read_exact_at(&mut into[old..], offset)
        })
    }

    /// Returns the bytes of log per segment.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the path of the segment that contains `at`.
    pub(super) fn path_of(&self, at: u64) -> PathBuf {
        path(&self.dir, at - at % self.size)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use clearway_testkit::MemDisk;

    /// The sync of a directory fails after a segment was renamed to be recycled, for lack of space.
    /// The next segment is made later, and a crash may bring back the old name.
    #[test]
    fn segment_of_a_failed_recycling_is_not_reused() {
        let (dir, size) = (Path::new("wal"), 2 * BLOCK);
        for granted in 0..16 {
            let disk = MemDisk::new();
            disk.create_dir_all(dir).unwrap();
            disk.sync_dir(Path::new("")).unwrap();
            make(&disk, dir, 0, size, &|| false).unwrap();
            disk.rename(&path(dir, 0), &dir.join(UNFINISHED)).unwrap();
            disk.fail_after(granted);
            let made = make(&disk, dir, size, size, &|| false).is_ok();
            assert!(granted < 15 || made);
            for seed in 0..16 {
                let found = find(&disk.crash(seed), dir, size).map(|found| found.starts.len());
                assert!(found.is_ok(), "{granted} operations, seed {seed}: {found:?}");
            }
        }
    }

    /// Disks outlive releases: these bytes are format version 1.
    #[test]
    fn the_format_stays() {
        let header = encode_header(0x4000, 0x2000);
        assert_eq!(header.len(), 4096);
        assert_eq!(header[..12], *b"CLEARWAL\x01\0\0\0");
        assert_eq!(header[12..16], [0xf8, 0x6b, 0x2d, 0x7a]);
        assert_eq!(header[16..32], [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert!(header[32..].iter().all(|byte| *byte == 0));
        assert_eq!(path(Path::new("wal"), 0x4000), Path::new("wal/0000000000004000.wal"));
        assert_eq!(start_of_name("0000000000004000.wal"), Some(0x4000));
        for name in [
            "4000.wal",
            "0000000000004000.WAL",
            "000000000000400g.wal",
            "next.tmp",
            ".wal",
            "+000000000004000.wal",
        ] {
            assert_eq!(start_of_name(name), None, "{name}");
        }
    }
}
