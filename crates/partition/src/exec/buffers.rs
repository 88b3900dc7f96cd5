//! The memory in which a statement keeps the keys and rows that it works on. A partition passes it
//! from one statement to the next, so that a short statement allocates nothing for them.

use super::change::Steps;

/// Maximum memory of a buffer that is kept for the next statement, in bytes.
const KEPT: usize = 4096;

/// A statement's buffers; empty when it begins.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Memory for the key of a path to a single row.
    pub(super) key: Vec<u8>,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) steps: Steps,
    pub(super) old: Vec<u8>,
    pub(super) new: Vec<u8>,
}

impl Buffers {
    /// Empties the buffers of a statement that has ended. Returns false if they are large.
    pub(super) fn empty(&mut self) -> bool {
        if let Some(key) = self.keys.pop() {
            self.key = key;
        }
        let Self { key, keys, steps, old, new } = self;
        [&mut *key, old, new].into_iter().for_each(Vec::clear);
        keys.clear();
        steps.clear();
        let sizes = [
            key.capacity(),
            keys.capacity() * size_of::<Vec<u8>>(),
            steps.allocated(),
            old.capacity(),
            new.capacity(),
        ];
        sizes.iter().all(|bytes| *bytes <= KEPT)
    }
}
