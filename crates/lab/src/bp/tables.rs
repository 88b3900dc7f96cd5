//! A database of the real storage engine in a temporary directory, with its page accesses recorded.
//!
//! The pool has room for all pages. The recorder is the pool's replacement, which sees hits and
//! creations on the recording thread. The engine, which descends B+trees, splits nodes and logs
//! changes, is unaware of it.

use clearway_env::OsDisk;
use clearway_harness::Res;
use clearway_harness::tools::TempDir;
use clearway_replacement::{ClockSweep, Probe, Replacement, ReplacementFactory, ReplacementKind};
use clearway_storage::{Blocked, Node, NodeConfig, Store, Trees};
use clearway_types::{FrameId, Lsn, PageId, TreeId};
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

thread_local! {
    /// The pages this thread has accessed since it began to record; `None` while it does not
    /// record.
    static RECORD: RefCell<Option<Vec<Access>>> = const { RefCell::new(None) };
}

/// A page access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page.
    pub page: PageId,
    /// Whether it changed a row: true for the leaf that holds the row.
    pub writes: bool,
}

/// Chooses victims like the clock, and records the recording thread's accesses.
struct Recorder(ClockSweep);

fn record(page: PageId) {
    RECORD.with_borrow_mut(|record| {
        record.iter_mut().for_each(|all| all.push(Access { page, writes: false }))
    });
}

/// Marks the last access as a change of a row in that page.
fn record_change() {
    let last =
        |all: &mut Vec<Access>| all.last_mut().into_iter().for_each(|last| last.writes = true);
    RECORD.with_borrow_mut(|record| record.iter_mut().for_each(last));
}

impl Replacement for Recorder {
    fn hit(&self, frame: FrameId, page: PageId) {
        record(page);
        self.0.hit(frame, page);
    }
    fn miss(&self, frame: FrameId, page: PageId) {
        record(page);
        self.0.miss(frame, page);
    }
    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.0.evict(incoming, probe)
    }
    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        self.0.remove(frame, take);
    }
}

fn recorder(frames: u32) -> Box<dyn Replacement> {
    Box::new(Recorder(ClockSweep::new(frames)))
}

/// A database with one partition.
pub struct Database {
    node: Node,
    store: Store,
    directory: TempDir,
}

impl Database {
    /// Creates an empty database with tables numbered from 1, in a pool of `frames` frames.
    pub fn new(name: &str, tables: u32, frames: u32) -> Res<Self> {
        let directory = TempDir::new(name)?;
        let config = NodeConfig {
            partitions: Some(1),
            frames,
            replacement: ReplacementKind::Custom(ReplacementFactory::Notified(recorder)),
            ..NodeConfig::default()
        };
        let mut node =
            Node::open(Arc::new(OsDisk), directory.path(), config).map_err(|e| e.to_string())?;
        let store = node.take_stores().pop().ok_or("a node without a partition")?;
        let mut this = Self { node, store, directory };
        for table in 1..=tables {
            this.attempt(|store| store.create_tree(TreeId(table)))?;
        }
        Ok(this)
    }

    /// Reads a row; returns its first 8 bytes as a number, or `None` if the row does not exist.
    pub fn get(&mut self, table: u32, key: &[u8]) -> Res<Option<u64>> {
        let mut first = 0;
        let there = self.attempt(|store| {
            store.get(TreeId(table), key, &mut |row| {
                first = row.first_chunk().map_or(0, |c| u64::from_be_bytes(*c))
            })
        })?;
        Ok(there.then_some(first))
    }

    /// Inserts a row unless it exists.
    pub fn insert(&mut self, table: u32, key: &[u8], row: &[u8]) -> Res<()> {
        self.change(|store| store.insert_autocommit(TreeId(table), key, row))
    }

    /// Updates a row.
    pub fn update(&mut self, table: u32, key: &[u8], row: &[u8]) -> Res<()> {
        self.change(|store| store.update_autocommit(TreeId(table), key, row))
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: u32, key: &[u8]) -> Res<()> {
        self.change(|store| store.delete_autocommit(TreeId(table), key))
    }

    /// Scans at most `most` rows from a key on; returns their number and the last key.
    pub fn scan(&mut self, table: u32, from: &[u8], most: usize) -> Res<(usize, Vec<u8>)> {
        let mut seen = (0, Vec::new());
        self.attempt(|store| {
            seen = (0, Vec::new());
            store.scan(
                TreeId(table),
                Bound::Included(from),
                Bound::Unbounded,
                false,
                &mut |key, _| {
                    seen.0 += 1;
                    seen.1.clear();
                    seen.1.extend_from_slice(key);
                    if seen.0 < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                },
            )
        })?;
        Ok(seen)
    }

    /// Changes a row, and records it if there was a row to change.
    fn change(
        &mut self,
        attempt: impl FnMut(&mut Store) -> Result<Option<Lsn>, Blocked>,
    ) -> Res<()> {
        if self.attempt(attempt)?.is_some() {
            record_change();
        }
        Ok(())
    }

    /// Returns the accesses of `transaction`, in order.
    pub fn recorded(&mut self, transaction: impl FnOnce(&mut Self) -> Res<()>) -> Res<Vec<Access>> {
        RECORD.set(Some(Vec::new()));
        let done = transaction(self);
        let pages = RECORD.take().unwrap_or_default();
        done.map(|()| pages)
    }

    /// Makes everything durable and closes the database. Dropping the returned directory deletes
    /// it.
    pub fn close(self) -> Res<TempDir> {
        self.node.checkpoint().map_err(|e| e.to_string())?;
        self.node.shutdown();
        Ok(self.directory)
    }

    /// Fetches missing pages and retries, as the engine does.
    fn attempt<T>(&mut self, mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>) -> Res<T> {
        let mut kept = Vec::new();
        loop {
            match attempt(&mut self.store) {
                Ok(value) => return Ok(value),
                Err(Blocked::Failed(error)) => return Err(error.to_string()),
                Err(Blocked::Log(read)) => read.run(),
                Err(Blocked::MissingPage(wants)) => {
                    let fetched =
                        wants.into_iter().map(|want| self.node.pool().fetch_blocking(want));
                    let fetched =
                        fetched.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
                    drop(std::mem::replace(&mut kept, fetched));
                }
            }
        }
    }
}
