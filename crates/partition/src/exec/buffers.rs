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

#[cfg(test)]
mod tests {
    use super::super::change::Kind;
    use super::*;
    use clearway_types::TreeId;

    #[test]
    fn small_buffers_are_kept_empty_and_large_ones_are_not() {
        let fill = |len: usize| {
            let mut buffers = Buffers::default();
            buffers.steps.push(Kind::Update, TreeId(1), b"key", &vec![7; len]);
            buffers.keys.push(b"key".to_vec());
            (buffers.old, buffers.new) = (vec![1], vec![2]);
            buffers
        };
        let mut small = fill(10);
        assert!(small.empty());
        assert_eq!([&small.key, &small.old, &small.new].map(Vec::len), [0; 3]);
        assert!(small.keys.is_empty() && small.key.capacity() >= 3);
        assert!(!fill(KEPT + 1).empty());
        let mut keys = fill(10);
        keys.keys = vec![Vec::new(); KEPT];
        assert!(!keys.empty());
        let mut row = fill(10);
        row.old = vec![0; KEPT + 1];
        assert!(!row.empty());
    }
}
