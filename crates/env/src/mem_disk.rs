//! A disk in memory that loses what a real one may lose: for tests.
//!
//! # Invariants
//! 1. What was synced before [`MemDisk::crash`] is in the disk that it returns, byte for byte.
//! 2. What was written but not synced survives a crash or not, each 512-byte sector by itself, as the seed says: every
//!    state that the sector has had since its last sync is possible. So is every length that the file has had. A sector
//!    whose content was lost but whose length survived reads as what was there before, or as zeros.
//! 3. Names made, removed or changed since the directory's last sync survive as a prefix, in order, for each directory
//!    by itself: the journal of a file system. Directories themselves survive at once.
//! 4. The same calls and the same seed give the same disk.
//! 5. After the operations granted by [`MemDisk::fail_after`] every operation that changes the disk fails and changes
//!    nothing.
//!
//! # Locking
//! `names` before a file's own mutex; a file's own operations take only the latter. A panic cannot occur under either.
//!
//! # Source
//! The sector model of SQLite's and FoundationDB's simulated disks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskLock, File, Open};
use crate::entropy::SeededEntropy;

/// What a disk writes in one piece, in bytes.
const SECTOR: usize = 512;

/// The most states that are remembered of one unsynced sector, and of a file's length; when there are more, the oldest
/// unsynced one is forgotten.
const VERSION_LIMIT: usize = 16;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    names: Mutex<Names>,
    locks: Mutex<BTreeSet<PathBuf>>,
    gate: Arc<Gate>,
}

/// Counts the operations that change the disk, and refuses them once the granted ones are used up.
struct Gate {
    done: AtomicU64,
    limit: AtomicU64,
}

impl Default for Gate {
    fn default() -> Self {
        Self { done: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX) }
    }
}

impl Gate {
    fn pass(&self) -> io::Result<()> {
        // Relaxed, here and in the disk's accessors: a count that orders no other memory.
        let within = |done: u64| (done < self.limit.load(Ordering::Relaxed)).then_some(done + 1);
        match self.done.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("injected disk failure")),
        }
    }
}

#[derive(Default)]
struct Names {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<Content>>,
    /// What a crash surely leaves (invariant 3): `files` without the changes in `unsynced`.
    durable: BTreeMap<PathBuf, Arc<Content>>,
    unsynced: Vec<NameChange>,
}

/// `from` loses its name and `to` gets the file, in one step; either may be missing.
struct NameChange {
    from: Option<PathBuf>,
    to: Option<(PathBuf, Arc<Content>)>,
}

impl NameChange {
    /// The directory in whose journal the change stands.
    fn dir(&self) -> &Path {
        let path = self.to.as_ref().map(|(path, _)| path).or(self.from.as_ref());
        path.map_or(Path::new(""), |path| parent(path))
    }

    fn concerns(&self, dir: &Path) -> bool {
        self.dir() == dir || self.from.as_ref().is_some_and(|path| parent(path) == dir)
    }

    fn apply(&self, files: &mut BTreeMap<PathBuf, Arc<Content>>) {
        if let Some(from) = &self.from {
            files.remove(from);
        }
        if let Some((to, content)) = &self.to {
            files.insert(to.clone(), Arc::clone(content));
        }
    }
}

impl Names {
    fn has_dir(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || path == Path::new("/") || path == Path::new(".") || self.dirs.contains(path)
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.files);
        self.unsynced.push(change);
    }
}

type Content = Mutex<Bytes>;

#[derive(Default)]
struct Bytes {
    now: Vec<u8>,
    /// For each sector changed since the last sync: its synced state, then each later one. The last is in `now`.
    unsynced: BTreeMap<u64, Vec<[u8; SECTOR]>>,
    /// The length at the last sync, then each later one; empty if it has not changed.
    lengths: Vec<usize>,
}

impl Bytes {
    fn sector(&self, number: u64) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let start = self.now.len().min(number as usize * SECTOR);
        let end = self.now.len().min(start + SECTOR);
        sector[..end - start].copy_from_slice(&self.now[start..end]);
        sector
    }

    /// Applies `change` and remembers the states before and after of the sectors from byte `start` to `end`.
    fn change(&mut self, start: usize, end: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let sectors = (start / SECTOR) as u64..end.div_ceil(SECTOR) as u64;
        for number in sectors.clone() {
            let before = self.sector(number);
            self.unsynced.entry(number).or_insert_with(|| vec![before]);
        }
        let length = self.now.len();
        change(&mut self.now);
        for number in sectors {
            let after = self.sector(number);
            remember(self.unsynced.entry(number).or_default(), after);
        }
        if self.now.len() != length {
            if self.lengths.is_empty() {
                self.lengths.push(length);
            }
            remember(&mut self.lengths, self.now.len());
        }
    }

    fn sync(&mut self) {
        self.unsynced.clear();
        self.lengths.clear();
    }

    /// What a crash may leave (invariant 2).
    fn survivors(&self, random: &SeededEntropy) -> Bytes {
        // In this many of 100 sectors the last state survives; in the others any earlier one.
        let kept_percent = [0, 10, 50, 90, 100][random.below(5) as usize];
        let choose = |versions: usize| match random.below(100) < kept_percent || versions == 1 {
            true => versions - 1,
            false => random.below(versions as u64 - 1) as usize,
        };
        let length = match self.lengths.len() {
            0 => self.now.len(),
            versions => self.lengths[choose(versions)],
        };
        let mut now = self.now.clone();
        now.resize(length, 0);
        for (number, versions) in &self.unsynced {
            let version = &versions[choose(versions.len())];
            let start = length.min(*number as usize * SECTOR);
            let end = length.min(start + SECTOR);
            now[start..end].copy_from_slice(&version[..end - start]);
        }
        Bytes { now, ..Bytes::default() }
    }
}

fn remember<T>(versions: &mut Vec<T>, version: T) {
    if versions.len() >= VERSION_LIMIT {
        versions.remove(1);
    }
    versions.push(version);
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these mutexes, so that a poisoned one has sound content all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn error(kind: io::ErrorKind, what: &str, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{what} {}: {kind}", path.display()))
}

/// A byte position as an index of memory.
fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk that a crash now would leave, as `seed` decides. This one goes on; locks are not held on the new one,
    /// and it fails no operations.
    pub fn crash(&self, seed: u64) -> MemDisk {
        let random = SeededEntropy::new(seed);
        let names = guard(&self.shared.names);
        let mut files = names.durable.clone();
        let mut by_dir: BTreeMap<&Path, Vec<&NameChange>> = BTreeMap::new();
        for change in &names.unsynced {
            by_dir.entry(change.dir()).or_default().push(change);
        }
        for changes in by_dir.values() {
            let survive = random.below(changes.len() as u64 + 1) as usize;
            changes[..survive].iter().for_each(|change| change.apply(&mut files));
        }
        let files: BTreeMap<_, _> = files
            .iter()
            .map(|(path, content)| (path.clone(), Arc::new(Mutex::new(guard(content).survivors(&random)))))
            .collect();
        let names = Names { dirs: names.dirs.clone(), durable: files.clone(), files, unsynced: Vec::new() };
        MemDisk { shared: Arc::new(Shared { names: Mutex::new(names), ..Shared::default() }) }
    }

    /// Lets `operations` more operations that change the disk or sync it succeed; all later ones fail.
    pub fn fail_after(&self, operations: u64) {
        // Relaxed: see `Gate::pass`.
        let limit = self.operations().saturating_add(operations);
        self.shared.gate.limit.store(limit, Ordering::Relaxed);
    }

    /// How many operations that change the disk or sync it have succeeded so far.
    pub fn operations(&self) -> u64 {
        self.shared.gate.done.load(Ordering::Relaxed) // Relaxed: see `Gate::pass`.
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut names = guard(&self.shared.names);
        let found = names.files.get(path).cloned();
        let content = match (found, how) {
            (Some(_), Open::Create) => return Err(error(io::ErrorKind::AlreadyExists, "open", path)),
            (Some(content), _) => content,
            (None, Open::Existing) => return Err(error(io::ErrorKind::NotFound, "open", path)),
            (None, _) if names.has_dir(path) => return Err(error(io::ErrorKind::IsADirectory, "open", path)),
            (None, _) if !names.has_dir(parent(path)) => return Err(error(io::ErrorKind::NotFound, "open", path)),
            (None, _) => {
                self.shared.gate.pass()?;
                let content = Arc::default();
                names.change(NameChange { from: None, to: Some((path.to_owned(), Arc::clone(&content))) });
                content
            }
        };
        Ok(Arc::new(MemFile { content, gate: Arc::clone(&self.shared.gate) }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = guard(&self.shared.names);
        Ok(names.files.contains_key(path) || names.has_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = guard(&self.shared.names);
        if path.ancestors().any(|ancestor| names.files.contains_key(ancestor)) {
            return Err(error(io::ErrorKind::AlreadyExists, "create directory", path));
        }
        self.shared.gate.pass()?;
        names.dirs.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = guard(&self.shared.names);
        if !names.has_dir(dir) {
            return Err(error(io::ErrorKind::NotFound, "list", dir));
        }
        let all = names.files.keys().chain(&names.dirs);
        let inside = all.filter(|path| path.parent() == Some(dir));
        let mut found: Vec<String> = inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = guard(&self.shared.names);
        if !names.files.contains_key(path) {
            return Err(error(io::ErrorKind::NotFound, "remove", path));
        }
        self.shared.gate.pass()?;
        names.change(NameChange { from: Some(path.to_owned()), to: None });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = guard(&self.shared.names);
        let Some(content) = names.files.get(from).cloned() else {
            return Err(error(io::ErrorKind::NotFound, "rename", from));
        };
        if !names.has_dir(parent(to)) {
            return Err(error(io::ErrorKind::NotFound, "rename to", to));
        }
        if names.has_dir(to) {
            return Err(error(io::ErrorKind::IsADirectory, "rename to", to));
        }
        self.shared.gate.pass()?;
        names.change(NameChange { from: Some(from.to_owned()), to: Some((to.to_owned(), content)) });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut names = guard(&self.shared.names);
        if !names.has_dir(dir) {
            return Err(error(io::ErrorKind::NotFound, "sync directory", dir));
        }
        self.shared.gate.pass()?;
        let Names { durable, unsynced, .. } = &mut *names;
        unsynced.retain(|change| {
            let synced = change.concerns(dir);
            if synced {
                change.apply(durable);
            }
            !synced
        });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        if !self.exists(path)? {
            self.open(path, Open::OpenOrCreate)?;
        }
        if !guard(&self.shared.locks).insert(path.to_owned()) {
            return Err(error(io::ErrorKind::WouldBlock, "lock", path));
        }
        Ok(Box::new(Locked { shared: Arc::clone(&self.shared), path: path.to_owned() }))
    }
}

struct Locked {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        guard(&self.shared.locks).remove(&self.path);
    }
}

struct MemFile {
    content: Arc<Content>,
    gate: Arc<Gate>,
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = guard(&self.content);
        let start = position(offset)?.min(content.now.len());
        let n = buf.len().min(content.now.len() - start);
        buf[..n].copy_from_slice(&content.now[start..start + n]);
        Ok(n)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let start = position(offset)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut content = guard(&self.content);
        self.gate.pass()?;
        if buf.is_empty() {
            return Ok(());
        }
        content.change(start, end, |now| {
            if now.len() < end {
                now.resize(end, 0);
            }
            now[start..end].copy_from_slice(buf);
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut content = guard(&self.content);
        self.gate.pass()?;
        content.sync();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = position(len)?;
        let mut content = guard(&self.content);
        self.gate.pass()?;
        let old = content.now.len();
        // Lengthening adds zeros, which no remembered state of a sector contradicts.
        content.change(len.min(old), old, |now| now.resize(len, 0));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(guard(&self.content).now.len() as u64)
    }
}
