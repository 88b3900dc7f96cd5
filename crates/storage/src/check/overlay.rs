//! A disk over another disk that captures all changes. So recovery can run on a directory without
//! modifying it.
//!
//! Changed blocks go to a scratch file that the caller provides. Blocks of zeros use no space
//! there; a new log segment consists of them.
//!
//! # Invariants
//! 1. Nothing on the underlying disk is ever written, created, renamed, removed, synced or locked.
//! 2. Reads return what a disk with the same content would return after the same calls.
//!
//! # Locking
//! `names` before a file's own monitor; both are held during I/O. A crash leaves nothing: the
//! scratch file has no other use.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_env::{Disk, DiskLock, File, Open};
use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering};

/// Unit of the scratch file, in bytes.
const BLOCK: u64 = 4096;

static NAMES: Class = Class::new("storage.check_names");
static FILE: Class = Class::new("storage.check_file");

struct Scratch {
    file: Arc<dyn File>,
    next: AtomicU64,
}

/// The overlay disk.
pub(super) struct Overlay {
    base: Arc<dyn Disk>,
    scratch: Arc<Scratch>,
    names: Monitor<Names>,
}

#[derive(Default)]
struct Names {
    /// Files that were opened, created or removed (`None`) through the overlay.
    files: HashMap<PathBuf, Option<Arc<OverFile>>>,
    dirs: BTreeSet<PathBuf>,
}

impl Overlay {
    /// Creates a disk that starts as a copy of `base`; `scratch` is an empty file for changes.
    pub(super) fn new(base: Arc<dyn Disk>, scratch: Arc<dyn File>) -> Self {
        let scratch = Arc::new(Scratch { file: scratch, next: AtomicU64::new(0) });
        Self { base, scratch, names: Monitor::new(&NAMES, Names::default()) }
    }

    /// Returns true if the block that holds `offset` was written through the overlay.
    pub(super) fn is_changed(&self, path: &Path, offset: u64) -> bool {
        let names = self.names.lock();
        match names.files.get(path) {
            Some(Some(file)) => file.state.lock().blocks.contains_key(&(offset / BLOCK)),
            _ => false,
        }
    }

    fn there(&self, names: &Names, path: &Path) -> io::Result<bool> {
        match names.files.get(path) {
            Some(file) => Ok(file.is_some()),
            None => Ok(names.dirs.contains(path) || self.base.exists(path)?),
        }
    }

    /// Returns the file of this name: the existing one if `there`, otherwise a new one.
    fn file(&self, names: &mut Names, path: &Path, there: bool) -> io::Result<Arc<OverFile>> {
        if let Some(Some(file)) = names.files.get(path) {
            return Ok(file.clone());
        }
        let base = if there { Some(self.base.open(path, Open::Existing)?) } else { None };
        let len = base.as_ref().map_or(Ok(0), |base| base.len())?;
        let state = State { len, base_len: len, blocks: HashMap::new() };
        let file = Arc::new(OverFile {
            base,
            scratch: self.scratch.clone(),
            state: Monitor::new(&FILE, state),
        });
        names.files.insert(path.to_owned(), Some(file.clone()));
        Ok(file)
    }
}

fn told(kind: io::ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}

impl Disk for Overlay {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        let there = self.there(&names, path)?;
        match how {
            Open::Existing if !there => return Err(told(io::ErrorKind::NotFound, path)),
            Open::Create if there => return Err(told(io::ErrorKind::AlreadyExists, path)),
            _ => {}
        }
        Ok(self.file(&mut names, path, there)?)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.there(&self.names.lock(), path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if !self.base.exists(path)? {
            self.names.lock().dirs.extend(path.ancestors().map(Path::to_owned));
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.names.lock();
        let below = if names.dirs.contains(dir) && !self.base.exists(dir)? {
            Vec::new()
        } else {
            self.base.list(dir)?
        };
        let mut all: BTreeSet<String> = below.into_iter().collect();
        for (path, file) in names.files.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            match file {
                Some(_) => all.insert(name.to_owned()),
                None => all.remove(name),
            };
        }
        Ok(all.into_iter().collect())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !self.there(&names, path)? {
            return Err(told(io::ErrorKind::NotFound, path));
        }
        names.files.insert(path.to_owned(), None);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !self.there(&names, from)? {
            return Err(told(io::ErrorKind::NotFound, from));
        }
        let file = self.file(&mut names, from, true)?;
        names.files.insert(from.to_owned(), None);
        names.files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<DiskLock> {
        Ok(Box::new(()))
    }
}

struct OverFile {
    base: Option<Arc<dyn File>>,
    scratch: Arc<Scratch>,
    state: Monitor<State>,
}

struct State {
    len: u64,
    /// Bytes of the underlying file that are still valid.
    base_len: u64,
    /// The slot of each changed block in the scratch file; `None` if it is all zeros.
    blocks: HashMap<u64, Option<u64>>,
}

impl OverFile {
    /// Fills `into` from the underlying file at `offset`, with zeros beyond its valid bytes.
    fn read_below(&self, state: &State, into: &mut [u8], offset: u64) -> io::Result<()> {
        let there = (state.base_len.saturating_sub(offset) as usize).min(into.len());
        let (front, back) = into.split_at_mut(there);
        back.fill(0);
        match &self.base {
            Some(base) if !front.is_empty() => base.read_zero_filled_at(front, offset),
            _ => Ok(()),
        }
    }

    /// Returns how many bytes from `offset` on come from one source, at most `most`.
    fn run(state: &State, offset: u64, most: usize) -> usize {
        let first = offset / BLOCK;
        let mut end = (first + 1) * BLOCK;
        if !state.blocks.contains_key(&first) {
            while end < offset + most as u64 && !state.blocks.contains_key(&(end / BLOCK)) {
                end += BLOCK;
            }
        }
        most.min((end - offset) as usize)
    }

    fn read(&self, state: &State, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let n = Self::run(state, at, into.len() - done);
            let part = &mut into[done..done + n];
            match state.blocks.get(&(at / BLOCK)) {
                None => self.read_below(state, part, at)?,
                Some(None) => part.fill(0),
                Some(Some(slot)) => {
                    self.scratch.file.read_zero_filled_at(part, slot * BLOCK + at % BLOCK)?
                }
            }
            done += n;
        }
        Ok(())
    }

    fn put(&self, state: &mut State, number: u64, block: &[u8]) -> io::Result<()> {
        let old = state.blocks.get(&number).copied().flatten();
        if block.iter().all(|&byte| byte == 0) {
            state.blocks.insert(number, None);
            return Ok(());
        }
        // Relaxed: only uniqueness matters.
        let slot = old.unwrap_or_else(|| self.scratch.next.fetch_add(1, Ordering::Relaxed));
        self.scratch.file.write_all_at(block, slot * BLOCK)?;
        state.blocks.insert(number, Some(slot));
        Ok(())
    }
}

impl File for OverFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        let n = (state.len.saturating_sub(offset) as usize).min(buf.len());
        self.read(&state, &mut buf[..n], offset)?;
        Ok(n)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut done = 0;
        let mut block = [0; BLOCK as usize];
        while done < buf.len() {
            let at = offset + done as u64;
            let inside = (at % BLOCK) as usize;
            let n = (BLOCK as usize - inside).min(buf.len() - done);
            if n < BLOCK as usize {
                self.read(&state, &mut block, at - inside as u64)?;
            }
            block[inside..inside + n].copy_from_slice(&buf[done..done + n]);
            self.put(&mut state, at / BLOCK, &block)?;
            done += n;
        }
        state.len = state.len.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if len < state.len {
            let kept = (len % BLOCK) as usize;
            if kept > 0 {
                let mut block = [0; BLOCK as usize];
                self.read(&state, &mut block[..kept], len - kept as u64)?;
                self.put(&mut state, len / BLOCK, &block)?;
            }
            state.blocks.retain(|number, _| number * BLOCK < len);
            state.base_len = state.base_len.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use clearway_testkit::MemDisk;
    use proptest::prelude::*;

    fn scratch() -> Arc<dyn File> {
        MemDisk::new().open("scratch".as_ref(), Open::Create).unwrap()
    }

    fn content(disk: &dyn Disk, path: &str) -> Vec<u8> {
        let file = disk.open(path.as_ref(), Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Invariants 1 and 2, for names.
    #[test]
    fn name_changes_stay_in_the_overlay() {
        let base = MemDisk::new();
        base.create_dir_all("d".as_ref()).unwrap();
        for name in ["d/a", "d/b"] {
            base.open(name.as_ref(), Open::Create)
                .unwrap()
                .write_all_at(name.as_bytes(), 0)
                .unwrap();
        }
        let before = base.operations();
        let over = Overlay::new(Arc::new(base.clone()), scratch());
        over.rename("d/a".as_ref(), "d/c".as_ref()).unwrap();
        over.remove("d/b".as_ref()).unwrap();
        over.create_dir_all("e/f".as_ref()).unwrap();
        over.open("e/f/x".as_ref(), Open::Create).unwrap();
        assert_eq!(over.list("d".as_ref()).unwrap(), ["c"]);
        assert_eq!(over.list("e/f".as_ref()).unwrap(), ["x"]);
        assert_eq!(content(&over, "d/c"), b"d/a");
        assert!(over.open("d/b".as_ref(), Open::Existing).is_err());
        assert!(over.open("d/c".as_ref(), Open::Create).is_err());
        assert!(over.rename("d/b".as_ref(), "d/z".as_ref()).is_err());
        assert_eq!(base.list("d".as_ref()).unwrap(), ["a", "b"]);
        assert_eq!(base.operations(), before, "nothing was changed below");
    }

    proptest! {
        /// Invariants 1 and 2, for bytes.
        #[test]
        fn reads_and_writes_match_a_plain_file(
            first in prop::collection::vec(any::<u8>(), 0..20_000),
            steps in prop::collection::vec((0u8..3, 0u64..30_000, 0usize..9000, any::<u8>()), 0..30),
        ) {
            let base = MemDisk::new();
            base.open("f".as_ref(), Open::Create).unwrap().write_all_at(&first, 0).unwrap();
            let over = Overlay::new(Arc::new(base.clone()), scratch());
            let file = over.open("f".as_ref(), Open::Existing).unwrap();
            let mut model = first.clone();
            for (what, at, n, byte) in steps {
                match what {
                    0 => {
                        file.set_len(at).unwrap();
                        model.resize(at as usize, 0);
                    }
                    _ if n == 0 => {}
                    _ => {
                        file.write_all_at(&vec![byte; n], at).unwrap();
                        let end = at as usize + n;
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].fill(byte);
                    }
                }
                prop_assert_eq!(file.len().unwrap(), model.len() as u64);
            }
            prop_assert!(content(&over, "f") == model);
            prop_assert!(content(&base, "f") == first);
        }
    }
}
