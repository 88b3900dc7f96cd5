//! An in-memory disk that loses, refuses and damages data as a real disk may. For tests and for the
//! simulation.
//!
//! A [`FaultPlan`] injects faults; its module states, for each zone, what the engine must guarantee
//! under which fault. Tests trigger the other events directly: crashes, capacity, read-only mode,
//! flipped bits.
//!
//! # Invariants
//! 1. Data synced before [`MemDisk::crash`] is in the disk that it returns, byte for byte.
//! 2. Data written but not synced may or may not survive a crash; the seed decides for each
//!    512-byte sector (after [`MemDisk::tear_blocks`], for each 4 KiB block). Every state of a
//!    sector since its last sync is possible, and so is every length of the file. A sector whose
//!    content was lost but whose length survived reads as its previous content or as zeros.
//! 3. Names created, removed or renamed since their directory's last sync survive as a prefix, in
//!    order, separately for each directory: the journal of a file system. That includes the names
//!    of directories: if one is lost, so is everything in it.
//! 4. The same calls in the same order with the same seeds give the same disk.
//! 5. After the operations granted by [`MemDisk::fail_after`], every operation that changes the
//!    disk fails and changes nothing.
//! 6. Named files use at most the capacity, unless the capacity was lowered or a crash restored a
//!    file.
//! 7. A crash is atomic for all names and files, regardless of what other threads do.
//! 8. After [`MemDisk::kill`] all written data is there, and its synced state is unchanged.
//!
//! Invariants 1 and 2 hold except for the effects of the plan's faults and of flipped bits.
//!
//! # Locking
//! `names` comes before the files' own mutexes. Only a crash takes several of those: all of them. A
//! file's own operations take only its own. No code panics under either. The fault plan's mutex is
//! a leaf. The hook runs before an operation with no mutex held, because it may switch threads
//! under a model checker.
//!
//! # Source
//! The sector model of SQLite's and FoundationDB's simulated disks; the failed sync follows Rebello
//! et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

mod content;
mod ends;
mod faults;
mod names;
mod space;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::content::Content;
pub use self::faults::{
    Duty, FOR_EVER, Fault, FaultPlan, FaultZone, InjectedFault, OpKind, Role, When,
};
use self::faults::{FaultEffect, broken};
use self::names::{Change, Names};
use self::space::{Gate, Room};
use clearway_env::SeededEntropy;
use clearway_env::{Disk, DiskLock, File, FileId, Open};

/// Unit of an atomic disk write, in bytes.
const SECTOR: usize = 512;

/// An operation that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The kind of operation.
    pub kind: OpKind,
    /// The file or directory.
    pub path: &'a Path,
    /// Extra latency of the operation. The hook lets it pass, in real or simulated time.
    pub delay: Duration,
}

/// Runs before each operation, on the calling thread.
pub type Hook = Arc<dyn Fn(Operation<'_>) + Send + Sync>;

/// A disk in memory. Clones share the disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    names: Mutex<Names>,
    locks: Mutex<BTreeSet<PathBuf>>,
    gate: Gate,
    room: Room,
    profile: Mutex<FaultProfile>,
}

/// The faults and hooks that apply to operations.
#[derive(Clone, Default)]
struct FaultProfile {
    plan: Option<Arc<FaultPlan>>,
    hook: Option<Hook>,
    tears_blocks: bool,
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these mutexes, so the content of a poisoned one is still consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn error(kind: io::ErrorKind, what: &str, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{what} {}: {kind}", path.display()))
}

/// Converts a byte position to a memory index.
fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl Shared {
    /// Starts an operation, with no mutex held; returns the fault that hits it.
    fn begin(&self, kind: OpKind, path: &Path) -> Option<FaultEffect> {
        let FaultProfile { plan, hook, .. } = guard(&self.profile).clone();
        let verdict = plan.as_ref().map(|plan| plan.judge(kind, path)).unwrap_or_default();
        if let Some(hook) = hook.filter(|_| !matches!(kind, OpKind::Open | OpKind::List)) {
            hook(Operation { kind, path, delay: verdict.delay });
        }
        FaultEffect::of(verdict, plan?)
    }

    /// Counts an operation that changes the disk.
    fn admit(&self, what: &str, path: &Path) -> io::Result<()> {
        self.gate.pass().map_err(|refusal| match refusal.kind() {
            io::ErrorKind::Other => broken(what, path),
            kind => error(kind, what, path),
        })
    }

    /// Like `admit`, for an operation on names; any injected fault makes it fail.
    fn admit_name(
        &self,
        injected: Option<&FaultEffect>,
        what: &str,
        path: &Path,
    ) -> io::Result<()> {
        self.admit(what, path)?;
        if injected.is_some() { Err(broken(what, path)) } else { Ok(()) }
    }

    fn change_names(&self, names: &mut Names, change: Change) {
        if let Some(loser) = names.change(change) {
            let mut content = guard(&loser);
            content.unlinked = true;
            self.room.give_back(content.space() as u64);
        }
    }
}

impl MemDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows `operations` more operations that change or sync the disk; all later ones fail.
    pub fn fail_after(&self, operations: u64) {
        self.shared.gate.grant(operations);
    }

    /// Returns the number of operations so far that changed or synced the disk, or were hit by a
    /// fault of the plan.
    pub fn operations(&self) -> u64 {
        self.shared.gate.done()
    }

    /// Sets or removes the fault plan.
    pub fn set_faults(&self, plan: Option<Arc<FaultPlan>>) {
        guard(&self.shared.profile).plan = plan;
    }

    /// Sets a hook that runs before each operation that reads, writes or syncs, whether or not it
    /// will succeed.
    pub fn set_hook(&self, hook: Option<Hook>) {
        guard(&self.shared.profile).hook = hook;
    }

    /// Sets the total capacity of the files in bytes. Growth beyond it fails with `StorageFull`; a
    /// write first fills the remaining space.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.room.set_capacity(bytes);
    }

    /// Returns the bytes that the files use.
    pub fn used(&self) -> u64 {
        self.shared.room.used()
    }

    /// Makes all changes fail with `ReadOnlyFilesystem`, as a file system does after an internal
    /// error, or ends that.
    pub fn set_read_only(&self, read_only: bool) {
        self.shared.gate.set_read_only(read_only);
    }

    /// Flips `count` bits at rest, one after another, in the byte range `range` of a file; `seed`
    /// selects them. Returns the numbers of the bits flipped, counted from the start of the file.
    /// Bits in unsynced sectors or beyond the end are skipped.
    pub fn flip_bits(
        &self,
        path: &Path,
        range: Range<u64>,
        count: usize,
        seed: u64,
    ) -> io::Result<Vec<u64>> {
        let names = guard(&self.shared.names);
        let content = names
            .files
            .get(path)
            .ok_or_else(|| error(io::ErrorKind::NotFound, "flip bits in", path))?;
        let mut content = guard(content);
        let random = SeededEntropy::new(seed);
        let bits = range.start * 8..range.end.min(content.len() as u64) * 8;
        let drawn =
            (0..count).map(|_| bits.start + random.below(bits.end.saturating_sub(bits.start)));
        Ok(drawn.filter(|&bit| content.flip(bit)).collect())
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        if self.shared.begin(OpKind::Open, path).is_some() {
            return Err(broken("open", path));
        }
        let creates = how != Open::Existing && !guard(&self.shared.names).files.contains_key(path);
        let injected = if creates { self.shared.begin(OpKind::Name, path) } else { None };
        let mut names = guard(&self.shared.names);
        let found = names.files.get(path).cloned();
        let content = match (found, how) {
            (Some(_), Open::Create) => {
                return Err(error(io::ErrorKind::AlreadyExists, "open", path));
            }
            (Some(content), _) => content,
            (None, Open::Existing) => return Err(error(io::ErrorKind::NotFound, "open", path)),
            (None, _) if names.has_dir(path) => {
                return Err(error(io::ErrorKind::IsADirectory, "open", path));
            }
            (None, _) if !names.has_dir(parent(path)) => {
                return Err(error(io::ErrorKind::NotFound, "open", path));
            }
            (None, _) => {
                self.shared.admit_name(injected.as_ref(), "create", path)?;
                let content = names::Shared::default();
                let change =
                    Change { from: None, to: Some((path.to_owned(), Arc::clone(&content))) };
                self.shared.change_names(&mut names, change);
                content
            }
        };
        Ok(Arc::new(MemFile { content, path: path.to_owned(), shared: Arc::clone(&self.shared) }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = guard(&self.shared.names);
        Ok(names.files.contains_key(path) || names.has_dir(path))
    }

    /// A file's identity is its place in memory, which no other file gets while it is open. All
    /// directories have the same.
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        let names = guard(&self.shared.names);
        let file = names.files.get(path).map(|content| Arc::as_ptr(content).addr() as u64);
        Ok(file.or(names.has_dir(path).then_some(0)).map(|id| (0, id)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Name, path);
        let mut names = guard(&self.shared.names);
        if path.ancestors().any(|ancestor| names.files.contains_key(ancestor)) {
            return Err(error(io::ErrorKind::AlreadyExists, "create directory", path));
        }
        self.shared.admit_name(injected.as_ref(), "create directory", path)?;
        names.create_dirs(path);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if self.shared.begin(OpKind::List, dir).is_some() {
            return Err(broken("list", dir));
        }
        let names = guard(&self.shared.names);
        if !names.has_dir(dir) {
            return Err(error(io::ErrorKind::NotFound, "list", dir));
        }
        let all = names.files.keys().chain(&names.dirs);
        let inside = all.filter(|path| path.parent() == Some(dir));
        let mut found: Vec<String> =
            inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Name, path);
        let mut names = guard(&self.shared.names);
        if !names.files.contains_key(path) {
            return Err(error(io::ErrorKind::NotFound, "remove", path));
        }
        self.shared.admit_name(injected.as_ref(), "remove", path)?;
        self.shared.change_names(&mut names, Change { from: Some(path.to_owned()), to: None });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Name, to);
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
        self.shared.admit_name(injected.as_ref(), "rename to", to)?;
        if from != to {
            let change = Change { from: Some(from.to_owned()), to: Some((to.to_owned(), content)) };
            self.shared.change_names(&mut names, change);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Name, dir);
        let mut names = guard(&self.shared.names);
        if !names.has_dir(dir) {
            return Err(error(io::ErrorKind::NotFound, "sync directory", dir));
        }
        self.shared.admit_name(injected.as_ref(), "sync directory", dir)?;
        names.sync(dir);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        if !self.exists(path)? {
            self.open(path, Open::OpenOrCreate)?;
        }
        if !guard(&self.shared.locks).insert(path.to_owned()) {
            return Err(error(io::ErrorKind::WouldBlock, "lock", path));
        }
        let shared = Arc::clone(&self.shared);
        let file = guard(&shared.names).files.get(path).cloned();
        Ok(Box::new(Locked { shared, path: path.to_owned(), _file: file }))
    }
}

struct Locked {
    shared: Arc<Shared>,
    path: PathBuf,
    /// Stays open, so no other file gets its identity.
    _file: Option<names::Shared>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        guard(&self.shared.locks).remove(&self.path);
    }
}

struct MemFile {
    content: names::Shared,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl MemFile {
    fn error(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        error(kind, what, &self.path)
    }

    /// Reserves space for the file to grow to `len` bytes; returns the length that it can reach.
    fn room(&self, content: &Content, len: usize) -> usize {
        match len.checked_sub(content.space()) {
            Some(growth) if !content.unlinked => {
                content.space() + self.shared.room.take(growth as u64) as usize
            }
            _ => len,
        }
    }

    /// Releases the unused part of what [`MemFile::room`] reserved.
    fn give_back(&self, content: &Content, room: usize) {
        self.shared.room.give_back(room.saturating_sub(content.space()) as u64);
    }

    /// Starts an operation that makes the file use `end` bytes, and reserves the space.
    fn resize(&self, what: &str, end: u64) -> io::Result<(MutexGuard<'_, Content>, usize)> {
        let injected = self.shared.begin(OpKind::SetLen, &self.path);
        let end = position(end)?;
        let content = guard(&self.content);
        self.shared.admit(what, &self.path)?;
        if injected.is_some() {
            return Err(broken(what, &self.path));
        }
        let room = self.room(&content, end);
        if room < end {
            self.give_back(&content, room);
            return Err(self.error(io::ErrorKind::StorageFull, what));
        }
        Ok((content, end))
    }

    fn set_len_at_least(&self, content: &mut Content, len: usize) -> io::Result<()> {
        let room = self.room(content, len);
        if room < len {
            self.give_back(content, room);
            return Err(self.error(io::ErrorKind::StorageFull, "write"));
        }
        if len > content.len() {
            content.set_len(len);
        }
        Ok(())
    }

    /// Writes as much as there is space for; fails if that is not everything.
    fn write(&self, content: &mut Content, buf: &[u8], start: usize) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = start + buf.len();
        let room = self.room(content, end);
        if room >= end {
            content.write(buf, start);
            return Ok(());
        }
        if room > start {
            content.write(&buf[..room - start], start);
        } else {
            self.give_back(content, room);
        }
        Err(self.error(io::ErrorKind::StorageFull, "write"))
    }

    /// Does a write that a fault hits.
    fn write_faulty(
        &self,
        injected: &FaultEffect,
        content: &mut Content,
        buf: &[u8],
        start: usize,
    ) -> io::Result<()> {
        let random = injected.random();
        let sectors = |bytes: usize| random.below((bytes / SECTOR) as u64 + 1) as usize * SECTOR;
        match injected.fault {
            Fault::LostWrite => {
                // The length belongs to the file system, not to the lost sectors.
                self.set_len_at_least(content, start + buf.len())?;
                content.write_lost(buf, start, random.below(2) == 0);
                Ok(())
            }
            Fault::MisledWrite => {
                self.set_len_at_least(content, start + buf.len())?;
                content.write_elsewhere(buf, start, sectors(content.len()) + start % SECTOR);
                Ok(())
            }
            _ => {
                self.write(content, &buf[..sectors(buf.len())], start)?;
                Err(broken("write", &self.path))
            }
        }
    }
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let injected = self.shared.begin(OpKind::Read, &self.path);
        let start = position(offset)?;
        let mut content = guard(&self.content);
        let there = buf.len().min(content.len().saturating_sub(start));
        let mut n = there;
        if let Some(injected) = injected
            && there > 0
        {
            let below = |bound: usize| injected.random().below(bound as u64) as usize;
            match injected.fault {
                Fault::ShortRead => n = 1 + below(there - 1),
                Fault::UnreadableSector => content.wear_out(start + below(there)),
                Fault::FlippedBit => {
                    let bit = (start * 8 + below(there * 8)) as u64;
                    if injected.duty == Duty::Continues {
                        // A cache need not be synced, so an unsynced sector may already be at rest.
                        content.write_back((bit / 8) as usize);
                    }
                    if content.flip(bit) {
                        injected.hits(bit / 8);
                    }
                }
                _ => return Err(broken("read", &self.path)),
            }
        }
        if !content.is_readable(start, n) {
            return Err(broken("read", &self.path));
        }
        Ok(content.read(&mut buf[..n], start))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Write, &self.path);
        let start = position(offset)?;
        start.checked_add(buf.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut content = guard(&self.content);
        self.shared.admit("write", &self.path)?;
        match injected {
            Some(injected) => self.write_faulty(&injected, &mut content, buf, start),
            None => self.write(&mut content, buf, start),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let injected = self.shared.begin(OpKind::Sync, &self.path);
        let mut content = guard(&self.content);
        self.shared.admit("sync", &self.path)?;
        if let Some(injected) = injected {
            content.sync_failed(injected.random());
            return Err(broken("sync", &self.path));
        }
        content.sync();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut content, len) = self.resize("set the length of", len)?;
        let (old, space) = (content.len(), content.space());
        content.set_len(len);
        if len < old && !content.unlinked {
            content.allocated = content.allocated.min(len);
            self.shared.room.give_back((space - content.space()) as u64);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let (mut content, end) = self.resize("extend", offset.saturating_add(len))?;
        content.allocated = content.allocated.max(end);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(guard(&self.content).len() as u64)
    }
}

#[cfg(test)]
mod tests;
