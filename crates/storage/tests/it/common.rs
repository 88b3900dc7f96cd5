//! Shared by the tests of trees and recovery: a node on an in-memory disk, and a driver that
//! fetches and retries.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use clearway_env::{Entropy, SeededEntropy};
use clearway_storage::{Blocked, Node, NodeConfig, OpenError, StorageError, Store};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct World {
    pub node: Node,
    pub stores: Vec<Store>,
    /// Number of repeated attempts.
    pub retries: u64,
}

pub fn config(partitions: u16, frames: u32) -> NodeConfig {
    NodeConfig {
        partitions: Some(partitions),
        frames,
        io_threads: 2,
        wal_segment_size: 64 << 10,
        wal_buffer_size: 1 << 20,
        ..NodeConfig::default()
    }
}

impl World {
    pub fn open(disk: &MemDisk, partitions: u16, frames: u32) -> Result<Self, OpenError> {
        Self::open_with(disk, config(partitions, frames))
    }

    pub fn open_with(disk: &MemDisk, config: NodeConfig) -> Result<Self, OpenError> {
        let mut node = Node::open(Arc::new(disk.clone()), Path::new("db"), config)?;
        let stores = node.take_stores();
        Ok(Self { node, stores, retries: 0 })
    }

    /// Fetches and retries, as the coordinator does.
    pub fn run<T>(
        &mut self,
        partition: usize,
        mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
    ) -> Result<T, StorageError> {
        let mut kept = Vec::new();
        loop {
            match attempt(&mut self.stores[partition]) {
                Ok(value) => return Ok(value),
                Err(Blocked::Log(read)) => read.run(),
                Err(Blocked::Failed(error)) => return Err(error),
                Err(Blocked::MissingPage(wants)) => {
                    self.retries += 1;
                    let fetched: Result<Vec<_>, _> = wants
                        .into_iter()
                        .map(|want| self.node.pool().fetch_blocking(want))
                        .collect();
                    drop(std::mem::replace(&mut kept, fetched?));
                }
            }
        }
    }

    /// Returns all entries of a tree, in ascending or descending order.
    pub fn all(
        &mut self,
        partition: usize,
        tree: TreeId,
        reverse: bool,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.range(partition, tree, Bound::Unbounded, Bound::Unbounded, reverse)
    }

    pub fn range(
        &mut self,
        partition: usize,
        tree: TreeId,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        reverse: bool,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = clearway_storage::Cursor::new(tree, from, to, reverse);
        let mut out = Vec::new();
        let finished = self.run(partition, |store| {
            cursor.run(store, &mut |key, value| {
                out.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
        });
        assert!(finished.unwrap());
        out
    }
}

pub struct Random(pub SeededEntropy);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }
    pub fn below(&self, n: u64) -> u64 {
        self.0.u64() % n
    }
    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    /// Returns a key of one of several shapes, from a space small enough for repeated hits.
    pub fn key(&self, space: u64) -> Vec<u8> {
        let n = self.below(space);
        match n % 4 {
            0 => n.to_be_bytes().to_vec(),
            1 => format!("k{n:04}").into_bytes(),
            2 => [vec![b'p'; (n % 300) as usize], n.to_be_bytes().to_vec()].concat(),
            // Long keys leave few children per node, and so make the tree high.
            3 if n % 8 == 3 => [vec![b'q'; 1200], n.to_be_bytes().to_vec()].concat(),
            _ => [&[1][..], &(n ^ 1 << 63).to_be_bytes()].concat(),
        }
    }
    /// Mostly short values, some that nearly fill a cell, some for overflow pages.
    pub fn value(&self, longest: u64) -> Vec<u8> {
        let len = match self.below(20) {
            0 => self.below(longest),
            1 => 1900 + self.below(200),
            2..5 => self.below(900),
            _ => self.below(60),
        };
        let salt = self.below(256) as u8;
        (0..len.min(longest)).map(|i| (i as u8).wrapping_mul(3) ^ salt).collect()
    }
}

pub fn as_model(rows: Vec<(Vec<u8>, Vec<u8>)>) -> Model {
    let count = rows.len();
    let model: Model = rows.into_iter().collect();
    assert_eq!(model.len(), count, "a key was visited twice");
    model
}
