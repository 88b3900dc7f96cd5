//! A block of images, ordered by key, the oldest image of a key first.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | number of entries, `n` |
//! | 4 `n` | the start of each entry |
//! | an entry | 8: commit or writer; 1: flags; 2: length of the key; the key; the value or the additions |
//!
//! An entry ends where the next one starts. It has a value if flag 1 is set, additions if flag 4 is
//! set, and a writer instead of a commit if flag 8 is set.
//!
//! Integers are little-endian. A key is the tree's number, big-endian, followed by the key in the
//! tree, so that one order covers all trees. These bytes never outlive the process, and
//! [`clearway_storage::SpillFile`] checks that they are the ones that were packed.

use super::filter::{Filter, hash};
use super::writers::WriterId;
use crate::versions::change::{PackedAddends, Prior};
use clearway_types::{Lsn, TreeId};
use std::sync::Arc;

const HAS_VALUE: u8 = 1;
const MOVED: u8 = 2;
const ADDED: u8 = 4;
const ACTIVE: u8 = 8;
const HEAD: usize = 8 + 1 + 2;

/// Length of the tree's number before a key, in bytes.
pub(in crate::versions) const TREE: usize = 4;

/// Returns a key prefixed with its tree's number.
pub(in crate::versions) fn joined(tree: TreeId, key: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(TREE + key.len());
    all.extend_from_slice(&tree.0.to_be_bytes());
    all.extend_from_slice(key);
    all
}

/// Who made the change of an image in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::versions) enum By {
    /// A transaction whose commit record ends here.
    Commit(Lsn),
    /// A transaction that was active when the image was packed.
    Writer(WriterId),
}

/// An image in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::versions) struct Entry<'b> {
    /// The key, prefixed with its tree's number.
    pub key: &'b [u8],
    pub by: By,
    pub moved: bool,
    pub prior: Prior<'b>,
}

impl Entry<'_> {
    /// Returns its size in a block in bytes.
    pub(in crate::versions) fn size(key: usize, prior: usize) -> usize {
        4 + HEAD + TREE + key + prior
    }
}

/// A block that is being filled.
#[derive(Default)]
pub(in crate::versions) struct Packer {
    starts: Vec<u32>,
    entries: Vec<u8>,
    hashes: Vec<u64>,
    first: Vec<u8>,
    last: Vec<u8>,
    newest: Lsn,
    writers: Vec<WriterId>,
}

/// A full block, and the metadata that is known without reading its bytes.
pub(super) struct Packed {
    pub bytes: Arc<[u8]>,
    pub first: Arc<[u8]>,
    pub last: Box<[u8]>,
    /// The newest commit.
    pub newest: Lsn,
    /// The writers that were active.
    pub writers: Arc<[WriterId]>,
    pub filter: Filter,
}

impl Packer {
    pub(in crate::versions) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the size so far in bytes.
    pub(in crate::versions) fn size(&self) -> usize {
        4 + 4 * self.starts.len() + self.entries.len()
    }

    /// Appends an image; keys must come in order, and the images of a key oldest first.
    pub(in crate::versions) fn push(&mut self, entry: Entry<'_>) {
        let Entry { key, by, moved, prior } = entry;
        let (kind, bytes) = match prior {
            Prior::Value(None) => (0, &[][..]),
            Prior::Value(Some(value)) => (HAS_VALUE, value),
            Prior::Added(PackedAddends(bytes)) => (ADDED, bytes),
        };
        debug_assert!(self.last.as_slice() <= key, "keys are pushed in order");
        if self.is_empty() {
            self.first = key.to_vec();
        }
        if self.is_empty() || self.last != key {
            self.hashes.push(hash(key));
            self.last.clear();
            self.last.extend_from_slice(key);
        }
        let (number, active) = match by {
            By::Commit(commit) => {
                self.newest = self.newest.max(commit);
                (commit.0, 0)
            }
            By::Writer(writer) => {
                if !self.writers.contains(&writer) {
                    self.writers.push(writer);
                }
                (writer.0, ACTIVE)
            }
        };
        self.starts.push(self.entries.len() as u32);
        self.entries.extend_from_slice(&number.to_le_bytes());
        self.entries.push(kind | active | if moved { MOVED } else { 0 });
        self.entries.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(bytes);
    }

    pub(super) fn finish(self) -> Packed {
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend_from_slice(&(self.starts.len() as u32).to_le_bytes());
        let base = (4 + 4 * self.starts.len()) as u32;
        self.starts.iter().for_each(|start| bytes.extend_from_slice(&(base + start).to_le_bytes()));
        bytes.extend_from_slice(&self.entries);
        Packed {
            bytes: bytes.into(),
            first: self.first.into(),
            last: self.last.into(),
            newest: self.newest,
            writers: self.writers.into(),
            filter: Filter::new(&self.hashes),
        }
    }
}

/// A block's bytes, for reading.
#[derive(Clone, Copy)]
pub(in crate::versions) struct Block<'b>(pub &'b [u8]);

impl<'b> Block<'b> {
    fn number(&self, at: usize) -> usize {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(bytes) as usize
    }

    pub(in crate::versions) fn len(&self) -> usize {
        self.number(0)
    }

    pub(in crate::versions) fn entry(&self, n: usize) -> Entry<'b> {
        let end = if n + 1 < self.len() { self.number(4 + 4 * (n + 1)) } else { self.0.len() };
        let entry = &self.0[self.number(4 + 4 * n)..end];
        let (mut number, mut len) = ([0; 8], [0; 2]);
        number.copy_from_slice(&entry[..8]);
        len.copy_from_slice(&entry[9..HEAD]);
        let (key, value) = entry[HEAD..].split_at(usize::from(u16::from_le_bytes(len)));
        let (number, flags) = (u64::from_le_bytes(number), entry[8]);
        Entry {
            key,
            by: match flags & ACTIVE != 0 {
                true => By::Writer(WriterId(number)),
                false => By::Commit(Lsn(number)),
            },
            moved: flags & MOVED != 0,
            prior: match flags & ADDED != 0 {
                true => Prior::Added(PackedAddends(value)),
                false => Prior::Value((flags & HAS_VALUE != 0).then_some(value)),
            },
        }
    }

    /// Returns the number of entries whose key satisfies `holds`; the entries must be partitioned
    /// by it.
    pub(in crate::versions) fn partition_point(
        &self,
        mut holds: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(self.entry(middle).key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the images of a key, oldest first.
    pub(in crate::versions) fn of_key(&self, key: &[u8]) -> impl Iterator<Item = Entry<'b>> {
        let (block, from) = (*self, self.partition_point(|k| k < key));
        (from..self.len()).map(move |n| block.entry(n)).take_while(move |entry| entry.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_return_what_was_packed() {
        let keys: Vec<Vec<u8>> =
            [1, 1, 2, 7].iter().zip(0..).map(|(t, n)| joined(TreeId(*t), &[n / 2; 3])).collect();
        let added = [7; PackedAddends::SIZE];
        let values = [
            Prior::Value(Some(&b"old"[..])),
            Prior::Value(None),
            Prior::Value(Some(&b""[..])),
            Prior::Added(PackedAddends(&added)),
        ];
        let by = [
            By::Commit(Lsn(10)),
            By::Writer(WriterId(3)),
            By::Commit(Lsn(13)),
            By::Commit(Lsn(12)),
        ];
        let mut packer = Packer::default();
        let mut size = 4;
        for (n, key) in keys.iter().enumerate() {
            packer.push(Entry { key, by: by[n], moved: n == 1, prior: values[n] });
            size += Entry::size(key.len() - TREE, [3, 0, 0, added.len()][n]);
        }
        assert_eq!(packer.size(), size);
        let packed = packer.finish();
        assert_eq!((packed.bytes.len(), packed.newest), (size, Lsn(13)));
        assert_eq!(*packed.writers, [WriterId(3)]);
        assert_eq!((&*packed.first, &*packed.last), (&*keys[0], &*keys[3]));
        let block = Block(&packed.bytes);
        let first: Vec<_> = block.of_key(&keys[0]).collect();
        assert_eq!(
            first.iter().map(|e| (e.by, e.moved, e.prior)).collect::<Vec<_>>(),
            [(by[0], false, values[0]), (by[1], true, values[1])]
        );
        assert_eq!(block.of_key(&keys[2]).next().map(|e| e.prior), Some(values[2]));
        assert_eq!(block.of_key(&keys[3]).next().map(|e| e.prior), Some(values[3]));
        assert_eq!(block.of_key(&joined(TreeId(2), b"no")).count(), 0);
        assert!(keys.iter().all(|key| packed.filter.may_have(hash(key))));
    }
}
