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
    durable: Tree,
    unsynced: Vec<Entry>,
}

/// The names that a crash leaves.
#[derive(Clone, Default)]
struct Tree {
    dirs: BTreeSet<PathBuf>,
    files: Files,
}

impl Tree {
    /// Removes what is in no directory, because that directory's name was lost.
    fn drop_unreachable(&mut self) {
        let Self { dirs, files } = self;
        let all = dirs.clone();
        let is_reachable = |path: &Path| {
            path.ancestors().skip(1).all(|above| is_root(above) || all.contains(above))
        };
        dirs.retain(|path| is_reachable(path));
        files.retain(|path, _| is_reachable(path));
    }
}

/// Returns true for a directory that always exists.
fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new("/") || path == Path::new(".")
}

/// An entry of a directory's journal.
#[derive(Clone)]
enum Entry {
    File(Change),
    /// A directory that was created.
    Dir(PathBuf),
}

impl Entry {
    /// Returns the directory whose journal it is in.
    fn dir(&self) -> &Path {
        match self {
            Self::File(change) => change.dir(),
            Self::Dir(path) => parent(path),
        }
    }

    fn concerns(&self, dir: &Path) -> bool {
        match self {
            Self::File(change) => change.concerns(dir),
            Self::Dir(path) => parent(path) == dir,
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::File(change) => change.apply(&mut tree.files),
            Self::Dir(path) => {
                tree.dirs.insert(path.clone());
            }
        }
    }
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
        is_root(path) || self.dirs.contains(path)
    }

    /// Creates the directory and its parents as far as they do not exist.
    pub(super) fn create_dirs(&mut self, path: &Path) {
        let missing: Vec<_> = path.ancestors().filter(|dir| !self.has_dir(dir)).collect();
        for dir in missing.into_iter().rev() {
            self.dirs.insert(dir.to_owned());
            self.unsynced.push(Entry::Dir(dir.to_owned()));
        }
    }

    /// Applies the change; returns the file that lost its name, if any.
    pub(super) fn change(&mut self, change: Change) -> Option<Shared> {
        let loser = match (&change.from, &change.to) {
            (_, Some((to, _))) => self.files.get(to).cloned(),
            (Some(from), None) => self.files.get(from).cloned(),
            (None, None) => None,
        };
        change.apply(&mut self.files);
        self.unsynced.push(Entry::File(change));
        loser
    }

    pub(super) fn sync(&mut self, dir: &Path) {
        let Self { durable, unsynced, .. } = self;
        unsynced.retain(|entry| {
            let synced = entry.concerns(dir);
            if synced {
                entry.apply(durable);
            }
            !synced
        });
    }

    /// Returns a copy of the current names and contents, all at rest.
    pub(super) fn at_rest(&self) -> Self {
        let copy = |content: &Shared| Arc::new(Mutex::new(guard(content).at_rest()));
        let files: Files =
            self.files.iter().map(|(path, content)| (path.clone(), copy(content))).collect();
        Self::synced(Tree { dirs: self.dirs.clone(), files })
    }

    /// Returns a state that a crash may leave. Contents tear between units of `tear` sectors.
    pub(super) fn survivors(&self, random: &SeededEntropy, tear: u64) -> Self {
        let mut tree = self.durable.clone();
        let mut by_dir: BTreeMap<&Path, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.unsynced {
            by_dir.entry(entry.dir()).or_default().push(entry);
        }
        for entries in by_dir.values() {
            let survive = random.below(entries.len() as u64 + 1) as usize;
            entries[..survive].iter().for_each(|entry| entry.apply(&mut tree));
        }
        tree.drop_unreachable();
        let Tree { dirs, files } = tree;
        // Locks all files at once (invariant 7 of the disk). A file may survive under two names.
        let mut held = BTreeMap::new();
        for content in files.values() {
            held.entry(Arc::as_ptr(content)).or_insert_with(|| guard(content));
        }
        let survivor =
            |content| Arc::new(Mutex::new(held[&Arc::as_ptr(content)].survivors(random, tear)));
        let files: Files =
            files.iter().map(|(path, content)| (path.clone(), survivor(content))).collect();
        Self::synced(Tree { dirs, files })
    }

    fn synced(tree: Tree) -> Self {
        let Tree { dirs, files } = tree.clone();
        Self { dirs, files, durable: tree, unsynced: Vec::new() }
    }
}
