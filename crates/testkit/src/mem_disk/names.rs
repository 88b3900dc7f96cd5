//! The names of a disk's files and directories: the current ones, and those that a crash may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::content::Content;
use super::{guard, parent};
use clearway_env::SeededEntropy;

/// A file, shared by its names and its open handles.
pub(super) type Shared = Arc<Mutex<Content>>;

type Files = BTreeMap<PathBuf, Shared>;

#[derive(Clone, Default)]
pub(super) struct Names {
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) files: Files,
    durable: Files,
    unsynced: Vec<Change>,
}

/// In one step, `from` loses its name and `to` gets the file. Either may be missing.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) from: Option<PathBuf>,
    pub(super) to: Option<(PathBuf, Shared)>,
}

impl Change {
    /// Returns the directory whose journal records the change.
    fn dir(&self) -> &Path {
        let path = self.to.as_ref().map(|(path, _)| path).or(self.from.as_ref());
        path.map_or(Path::new(""), |path| parent(path))
    }

    fn concerns(&self, dir: &Path) -> bool {
        self.dir() == dir || self.from.as_ref().is_some_and(|path| parent(path) == dir)
    }

    fn apply(&self, files: &mut Files) {
        if let Some(from) = &self.from {
            files.remove(from);
        }
        if let Some((to, content)) = &self.to {
            files.insert(to.clone(), Arc::clone(content));
        }
    }
}

impl Names {
    pub(super) fn has_dir(&self, path: &Path) -> bool {
        path.as_os_str().is_empty()
            || path == Path::new("/")
            || path == Path::new(".")
            || self.dirs.contains(path)
    }

    /// Applies the change; returns the file that lost its name, if any.
    pub(super) fn change(&mut self, change: Change) -> Option<Shared> {
        let loser = match (&change.from, &change.to) {
            (_, Some((to, _))) => self.files.get(to).cloned(),
            (Some(from), None) => self.files.get(from).cloned(),
            (None, None) => None,
        };
        change.apply(&mut self.files);
        self.unsynced.push(change);
        loser
    }

    pub(super) fn sync(&mut self, dir: &Path) {
        let Self { durable, unsynced, .. } = self;
        unsynced.retain(|change| {
            let synced = change.concerns(dir);
            if synced {
                change.apply(durable);
            }
            !synced
        });
    }

    /// Returns a copy of the current names and contents, all at rest.
    pub(super) fn at_rest(&self) -> Self {
        let copy = |content: &Shared| Arc::new(Mutex::new(guard(content).at_rest()));
        let files: Files =
            self.files.iter().map(|(path, content)| (path.clone(), copy(content))).collect();
        Self { dirs: self.dirs.clone(), durable: files.clone(), files, unsynced: Vec::new() }
    }

    /// Returns a state that a crash may leave. Contents tear between units of `tear` sectors.
    pub(super) fn survivors(&self, random: &SeededEntropy, tear: u64) -> Self {
        let mut files = self.durable.clone();
        let mut by_dir: BTreeMap<&Path, Vec<&Change>> = BTreeMap::new();
        for change in &self.unsynced {
            by_dir.entry(change.dir()).or_default().push(change);
        }
        for changes in by_dir.values() {
            let survive = random.below(changes.len() as u64 + 1) as usize;
            changes[..survive].iter().for_each(|change| change.apply(&mut files));
        }
        // Locks all files at once (invariant 7 of the disk). A file may survive under two names.
        let mut held = BTreeMap::new();
        for content in files.values() {
            held.entry(Arc::as_ptr(content)).or_insert_with(|| guard(content));
        }
        let survivor =
            |content| Arc::new(Mutex::new(held[&Arc::as_ptr(content)].survivors(random, tear)));
        let files: Files =
            files.iter().map(|(path, content)| (path.clone(), survivor(content))).collect();
        Self { dirs: self.dirs.clone(), durable: files.clone(), files, unsynced: Vec::new() }
    }
}
