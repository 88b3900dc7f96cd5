//! A scan that can be suspended and resumed.
//!
//! Invariant: the position is a key, not a place in a page. So it stays valid whatever happens to
//! the tree in between, and no key is visited twice.

use std::ops::Bound;

use clearway_types::TreeId;

use crate::attempt::Blocked;
use crate::scan::Visit;
use crate::store::Store;
use crate::trees::Trees;

/// A scan of a range of one tree, between two visits.
#[derive(Clone, Debug)]
pub struct Cursor {
    tree: TreeId,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reverse: bool,
}

impl Cursor {
    /// Creates a scan of the keys between the bounds; if `reverse`, in descending order.
    pub fn new(tree: TreeId, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>, reverse: bool) -> Self {
        Self { tree, from, to, reverse }
    }
    /// Continues until `visit` breaks (false) or the range ends (true). After
    /// `Blocked::MissingPage`, fetch the pages and call again.
    pub fn run(&mut self, store: &Store, visit: &mut Visit<'_>) -> Result<bool, Blocked> {
        let mut last: Option<Vec<u8>> = None;
        let mut broke = false;
        let (from, to) =
            (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice));
        let result = store.scan(self.tree, from, to, self.reverse, &mut |key, value| {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            let flow = visit(key, value);
            broke = flow.is_break();
            flow
        });
        if let Some(last) = last {
            *(if self.reverse { &mut self.to } else { &mut self.from }) = Bound::Excluded(last);
        }
        result.map(|()| !broke)
    }
}
