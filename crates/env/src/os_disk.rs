//! The operating system's file system.

use std::fs::{self, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::direct;
use crate::disk::{Disk, DiskLock, File, FileId, Open};
use crate::extents;
use crate::memory::ALIGN;

/// Mode bits for the group and for others.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// The operating system's file system; relative paths start at the working directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

pub(crate) struct OsFile {
    file: fs::File,
    path: PathBuf,
    /// Opened for direct I/O.
    direct: bool,
    /// The file's length when it was opened, or less if it was truncated since. Everything beyond
    /// it was written since, or is a hole.
    first_len: AtomicU64,
}

impl OsFile {
    pub(crate) fn new(file: fs::File, path: &Path, direct: bool) -> io::Result<Self> {
        let len = file.metadata().map_err(named("stat", path))?.len();
        Ok(Self { file, path: path.to_owned(), direct, first_len: AtomicU64::new(len) })
    }
}

/// A locked file.
struct Locked(fs::File);

impl Drop for Locked {
    /// Unlocks explicitly. Closing the file is not enough: a process that another thread is just
    /// starting also has it open until its `exec`.
    fn drop(&mut self) {
        // If this fails, the lock lasts until the file is closed everywhere.
        let _unlocked = self.0.unlock();
    }
}

/// Adds the operation and the path to an error's text; its kind stays.
fn named(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// Opens a file. A new file is readable and writable only by its owner.
pub(crate) fn open(path: &Path, how: Open, flags: OFlags) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = if how == Open::Private { flags | OFlags::NOFOLLOW } else { flags };
    match how {
        Open::Existing => {}
        Open::Create => {
            options.create_new(true);
        }
        Open::OpenOrCreate | Open::Private => {
            options.create(true).truncate(false);
        }
    }
    let opened = options.custom_flags(flags.bits() as i32).open(path).map_err(|error| {
        let is_link = flags.contains(OFlags::NOFOLLOW)
            && error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        if is_link { refused("it is a symbolic link") } else { error }
    });
    let file = opened.map_err(named("open", path))?;
    if how == Open::Private {
        make_private(&file).map_err(named("open", path))?;
    }
    Ok(file)
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Removes other users' permissions from the file. Refuses a file that another user owns or that
/// has a second hard link.
fn make_private(file: &fs::File) -> io::Result<()> {
    let found = file.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if found.nlink() > 1 {
        return Err(refused("it has a second name (a hard link)"));
    }
    match found.mode() & OTHERS {
        0 => Ok(()),
        _ => file.set_permissions(fs::Permissions::from_mode(0o600)),
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile::new(open(path, how, OFlags::empty())?, path, false)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists().map_err(named("stat", path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(named("create directory", path))
    }

    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path).map_err(named("stat", path))?.mode() & OTHERS_WRITE != 0)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some((found.dev(), found.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named("stat", path)(error)),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(named("list", dir))? {
            if let Ok(name) = entry.map_err(named("list", dir))?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(named("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("rename {} to {}: {error}", from.display(), to.display()),
            )
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(named("sync directory", dir))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        // Not followed: a symbolic link would make us create a file elsewhere.
        let file = open(path, Open::OpenOrCreate, OFlags::NOFOLLOW)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Locked(file))),
            Err(TryLockError::WouldBlock) => {
                Err(named("lock", path)(io::ErrorKind::WouldBlock.into()))
            }
            Err(TryLockError::Error(error)) => Err(named("lock", path)(error)),
        }
    }
}

/// Without `fallocate`, blocks come from writing.
impl OsFile {
    /// Makes the bytes from `offset` to `end` have blocks: fills holes, and writes zeros beyond the
    /// end of the file.
    fn extend(&self, offset: u64, end: u64) -> io::Result<()> {
        let len = self.len()?;
        let mut at = offset;
        while let Some(hole) = self.next_hole(at, len.min(end))? {
            at = hole.end;
            self.rewrite(hole)?;
        }
        // The rest of the last block beyond the file's end reads as zeros anyway.
        let from = len.next_multiple_of(ALIGN as u64);
        self.write_blocks(from..end.max(from), |_, _| Ok(()))
    }

    fn fallocate(&self, part: &Range<u64>) -> Result<(), Errno> {
        loop {
            let (flags, len) = (FallocateFlags::KEEP_SIZE, part.end - part.start);
            match rustix::fs::fallocate(&self.file, flags, part.start, len) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Returns the parts of this one that have no data. They may have blocks that were never
    /// written.
    fn without_data(&self, all: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let (len, mut parts, mut at) = (self.len()?, Vec::new(), all.start);
        while let Some(hole) = self.hole_after(at, all.end, len)? {
            at = hole.end;
            parts.push(hole);
        }
        Ok(parts)
    }

    /// Returns the first part between `from` and `end` that may be a hole. File systems may report
    /// holes. Those that do not may have one where a write beyond the end has left it.
    fn next_hole(&self, from: u64, end: u64) -> io::Result<Option<Range<u64>>> {
        // Relaxed: orders no other memory.
        self.hole_after(from, end, self.first_len.load(Ordering::Relaxed))
    }

    /// Like [`OsFile::next_hole`], if the file system knows the holes up to `known`, and everything
    /// after that may be one.
    fn hole_after(&self, from: u64, end: u64, known: u64) -> io::Result<Option<Range<u64>>> {
        let known = known.min(end);
        let mut hole = from.max(known)..end;
        if from < known
            && let Some(start) = self.seek(SeekFrom::Hole(from))?.filter(|at| *at < known)
        {
            hole = start..self.seek(SeekFrom::Data(start))?.map_or(end, |at| at.min(end));
        }
        Ok((!hole.is_empty()).then_some(hole))
    }

    /// Returns where the next hole or the next data is, if the file system finds one.
    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(named("seek in", &self.path)(error.into())),
        }
    }

    /// Writes the blocks of this part as they are. It may have data: where the file system says
    /// that holes are is only a hint.
    fn rewrite(&self, part: Range<u64>) -> io::Result<()> {
        let block = ALIGN as u64;
        let blocks = part.start - part.start % block..part.end.next_multiple_of(block);
        self.write_blocks(blocks, |bytes, at| self.read_zero_filled_at(bytes, at))
    }

    /// Writes this part in pieces of zeros, or of what `fill` puts in all of their place.
    fn write_blocks(
        &self,
        part: Range<u64>,
        fill: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = [0; 1 << 16];
        let mut at = part.start;
        while at < part.end {
            let n = (part.end - at).min(bytes.len() as u64);
            let piece = &mut bytes[..n as usize];
            fill(piece, at)?;
            self.write_all_at(piece, at)?;
            at += n;
        }
        Ok(())
    }
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = if self.direct {
            direct::read_at(&self.file, buf, offset)
        } else {
            self.file.read_at(buf, offset)
        };
        read.map_err(named("read", &self.path))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let written = match self.direct {
            true => direct::write_all_at(&self.file, buf, offset),
            false => self.file.write_all_at(buf, offset),
        };
        written.map_err(named("write", &self.path))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(named("sync", &self.path))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(named("set the length of", &self.path))?;
        // Relaxed: see `next_hole`.
        self.first_len.fetch_min(len, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let all = offset..offset + len;
        // `fallocate` itself ignores the limit if the file's length stays the same.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| all.end > limit) {
            return Err(named("extend", &self.path)(Errno::FBIG.into()));
        }
        match self.fallocate(&all) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.extend(all.start, all.end),
            // XFS refuses to allocate a range if there is no space for all of it, although it has
            // blocks already.
            Err(full @ (Errno::NOSPC | Errno::DQUOT)) => {
                // Not every file system knows which parts have blocks.
                let missing = match extents::without_blocks(&self.file, &all) {
                    Ok(parts) => parts,
                    Err(_) => self.without_data(&all)?,
                };
                if missing == [all] {
                    return Err(named("extend", &self.path)(full.into()));
                }
                let filled = missing.iter().try_for_each(|part| self.fallocate(part));
                filled.map_err(|error| named("extend", &self.path)(error.into()))
            }
            Err(error) => Err(named("extend", &self.path)(error.into())),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().map_err(named("stat", &self.path))?.len())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind;

    /// What has data is not allocated again.
    #[test]
    fn parts_without_data_are_found() {
        let path = std::env::temp_dir().join(format!("clearway-holes-{}", std::process::id()));
        let file = open(&path, Open::OpenOrCreate, OFlags::empty()).unwrap();
        let file = OsFile::new(file, &path, false).unwrap();
        let block = 64 << 10;
        file.write_all_at(&vec![1; block], block as u64).unwrap();
        file.write_all_at(&vec![1; block], 3 * block as u64).unwrap();
        file.sync_data().unwrap();
        fs::remove_file(&path).unwrap();
        let missing = |from: u64, to: u64| {
            let block = block as u64;
            let parts = file.without_data(&(from * block..to * block)).unwrap();
            parts.iter().map(|part| (part.start / block, part.end / block)).collect::<Vec<_>>()
        };
        assert_eq!(missing(0, 6), [(0, 1), (2, 3), (4, 6)]);
        assert_eq!(
            (missing(1, 2), missing(1, 3), missing(5, 7)),
            (vec![], vec![(2, 3)], vec![(5, 7)])
        );
        assert_eq!(missing(0, 1), [(0, 1)]);
        file.allocate(0, 6 * block as u64).unwrap();
    }

    /// Naming an error keeps its kind and the system's text, which callers use to tell failures
    /// apart.
    #[test]
    fn a_named_error_keeps_its_kind() {
        let known = [
            (Errno::NOSPC, ErrorKind::StorageFull),
            (Errno::DQUOT, ErrorKind::QuotaExceeded),
            (Errno::FBIG, ErrorKind::FileTooLarge),
            (Errno::ROFS, ErrorKind::ReadOnlyFilesystem),
            (Errno::ACCESS, ErrorKind::PermissionDenied),
            (Errno::PERM, ErrorKind::PermissionDenied),
            (Errno::NOENT, ErrorKind::NotFound),
        ];
        for (code, kind) in known {
            let error = named("write", Path::new("a/b"))(io::Error::from(code));
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().starts_with("write a/b: "), "{error}");
        }
        let error = named("sync", Path::new("a/b"))(io::Error::from(Errno::IO));
        assert!(error.to_string().starts_with("sync a/b: Input/output error"), "{error}");
    }

    #[test]
    fn lock_is_released_while_a_starting_process_has_the_file() {
        let path = std::env::temp_dir().join(format!("clearway-lock-{}", std::process::id()));
        let lock = Locked(open(&path, Open::OpenOrCreate, OFlags::empty()).unwrap());
        lock.0.try_lock().unwrap();
        assert_eq!(OsDisk.lock(&path).err().unwrap().kind(), ErrorKind::WouldBlock);
        // A child has this between fork and exec.
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        drop(OsDisk.lock(&path).unwrap());
        drop(inherited);
        fs::remove_file(&path).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn files_and_directories_are_created_private() {
        let scratch = crate::test_files::Scratch::new("private");
        let dir = scratch.0.join("a/b");
        OsDisk.create_dir_all(&dir).unwrap();
        assert_eq!((mode(&dir), mode(&scratch.0.join("a"))), (0o700, 0o700));
        for (name, how) in
            [("new", Open::Create), ("any", Open::OpenOrCreate), ("private", Open::Private)]
        {
            OsDisk.open(&dir.join(name), how).unwrap();
            direct::DirectDisk::new(false)
                .open_pages(&dir.join(format!("{name}-pages")), how)
                .unwrap();
            assert_eq!(
                (mode(&dir.join(name)), mode(&dir.join(format!("{name}-pages")))),
                (0o600, 0o600)
            );
        }
        drop(OsDisk.lock(&dir.join("lock")).unwrap());
        assert_eq!(mode(&dir.join("lock")), 0o600);
        for (open, writable) in [(0o700, false), (0o755, false), (0o720, true), (0o702, true)] {
            set_mode(&dir, open);
            assert_eq!(OsDisk.others_may_write(&dir).unwrap(), writable, "{open:o}");
        }
    }

    #[test]
    fn private_open_refuses_planted_files() {
        let scratch = crate::test_files::Scratch::new("planted");
        let (target, link) = (scratch.0.join("target"), scratch.0.join("link"));
        let refuses = |path: &Path, why: &str| {
            let direct = direct::DirectDisk::new(false);
            for opened in [OsDisk.open(path, Open::Private), direct.open_pages(path, Open::Private)]
            {
                let error = opened.err().expect("refused");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                assert!(error.to_string().contains(why), "{error}");
            }
        };
        std::os::unix::fs::symlink(&target, &link).unwrap();
        refuses(&link, "it is a symbolic link");
        assert!(
            OsDisk
                .lock(&link)
                .err()
                .expect("refused")
                .to_string()
                .contains("it is a symbolic link")
        );
        assert!(!target.exists());
        fs::write(&target, "content").unwrap();
        refuses(&link, "it is a symbolic link");
        fs::remove_file(&link).unwrap();
        fs::hard_link(&target, &link).unwrap();
        refuses(&link, "it has a second name");
        fs::remove_file(&link).unwrap();
        // A file of an earlier release, readable by everyone.
        set_mode(&target, 0o644);
        OsDisk.open(&target, Open::Private).unwrap();
        assert_eq!((mode(&target), fs::read(&target).unwrap()), (0o600, b"content".to_vec()));
    }

    /// Where the file's first hole is; at its end if there is none.
    fn first_hole(file: &OsFile) -> u64 {
        file.seek(SeekFrom::Hole(0)).unwrap().unwrap_or(file.len().unwrap())
    }

    /// Without `fallocate`, also the holes of a file get blocks.
    #[test]
    fn extend_fills_holes_and_keeps_content() {
        const BLOCK: u64 = 4096;
        let scratch = crate::test_files::Scratch::new("holes");
        let path = scratch.0.join("file");
        let created = |name: &str| {
            let path = scratch.0.join(name);
            OsFile::new(open(&path, Open::Create, OFlags::empty()).unwrap(), &path, false).unwrap()
        };
        let blocks = crate::test_files::blocks(1..3);
        let old = created("file");
        old.write_all_at(&blocks, 64 * BLOCK).unwrap();
        let reported = first_hole(&old) == 0;
        // With direct I/O if possible, which must be aligned.
        let direct = direct::DirectDisk::new(true).open_pages(&path, Open::Existing).is_ok();
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let file = OsFile::new(open(&path, Open::Existing, flags).unwrap(), &path, direct).unwrap();
        file.write_all_at(&blocks, 256 * BLOCK).unwrap();
        let mut expected = crate::test_files::content(&file);
        assert_eq!(expected.len() as u64, 258 * BLOCK);
        // A hole that was there, and everything since.
        let end = 300 * BLOCK;
        let hole = if reported { 0..64 * BLOCK } else { 66 * BLOCK..258 * BLOCK };
        assert_eq!(file.next_hole(0, 258 * BLOCK).unwrap(), Some(hole));
        assert_eq!(file.next_hole(100 * BLOCK, end).unwrap(), Some(100 * BLOCK..end));
        assert_eq!(file.next_hole(end, 258 * BLOCK).unwrap(), None);
        file.extend(0, end).unwrap();
        expected.resize(end as usize, 0);
        assert!(crate::test_files::content(&file) == expected);
        // A file system may turn zeros into holes, but then it does so in every file.
        let full = created("full");
        full.write_all_at(&expected, 0).unwrap();
        assert_eq!(first_hole(&file), first_hole(&full));
        // A truncated file is new beyond its end.
        file.set_len(BLOCK).unwrap();
        file.set_len(8 * BLOCK).unwrap();
        assert_eq!(file.next_hole(BLOCK, 8 * BLOCK).unwrap(), Some(BLOCK..8 * BLOCK));
    }

    /// A write beyond the limit on the sizes of files would fail, so its space is refused.
    #[test]
    fn allocate_obeys_the_limit_on_file_sizes() {
        use rustix::process::{Rlimit, setrlimit};
        let before = getrlimit(Resource::Fsize);
        // More than any other test of this process writes.
        let limit = before.maximum.unwrap_or(u64::MAX).min(1 << 40);
        setrlimit(Resource::Fsize, Rlimit { current: Some(limit), ..before }).unwrap();
        let scratch = crate::test_files::Scratch::new("limit");
        let file = OsDisk.open(&scratch.0.join("file"), Open::Create).unwrap();
        let refused = file.allocate(limit - 4096, 8192).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::FileTooLarge);
        assert!(
            crate::is_full(&refused) && refused.to_string().starts_with("extend "),
            "{refused}"
        );
        file.allocate(0, 8192).unwrap();
    }

    /// The space is reserved; content and length are unchanged.
    #[test]
    fn allocate_keeps_content_and_length() {
        let path = std::env::temp_dir().join(format!("clearway-allocate-{}", std::process::id()));
        let file = OsDisk.open(&path, Open::OpenOrCreate).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        file.allocate(0, 1 << 20).unwrap();
        let mut bytes = [0; 9];
        assert_eq!(file.read_at(&mut bytes[..7], 0).unwrap(), 7);
        assert_eq!(&bytes[..7], b"content");
        file.write_all_at(b"end", 1 << 19).unwrap();
        assert!(file.len().unwrap() >= (1 << 19) + 3);
        std::fs::remove_file(&path).unwrap();
    }
}
