//! The spilled images in a range of keys, as a snapshot needs them: the rounds are merged.
//!
//! Invariant: a block is loaded only when the merge reaches it. All blocks that must be loaded at
//! one point are requested together, along with the next ones in their rounds.

use super::super::change::Older;
use super::block::{Block, joined};
use super::{Meta, Reader, Round, Sight, Spill, TREE};
use crate::exec::Stop;
use clearway_types::{Lsn, TreeId};
use std::cmp::Ordering;
use std::collections::btree_map;
use std::ops::Bound;
use std::sync::Arc;

/// Number of blocks of a round that are loaded together.
const AHEAD: usize = 4;

/// Maximum number of blocks requested at once, unless more rounds miss one.
const AT_ONCE: usize = 32;

/// Where the merge continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::versions) enum At<'v> {
    /// Unknown until a block is loaded.
    Start,
    /// At this key of the tree.
    Key(&'v [u8]),
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The images of a range that a snapshot does not see.
pub(in crate::versions) struct Spilled<'v> {
    spill: &'v Spill,
    reader: Reader<'v>,
    /// The reader itself may have images in the blocks.
    has_own: bool,
    reverse: bool,
    /// The bounds, prefixed with the tree's number.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    cursors: Vec<Cursor<'v>>,
    head: Option<At<'v>>,
}

struct Cursor<'v> {
    /// Blocks not reached yet.
    blocks: btree_map::Range<'v, Arc<[u8]>, Meta>,
    front: Front<'v>,
}

enum Front<'v> {
    /// The combined effect of this key's images in its block, and the remaining entries of the
    /// block.
    Image {
        id: Option<u64>,
        key: &'v [u8],
        older: Older<'v>,
        block: Block<'v>,
        left: (usize, usize),
    },
    /// This block is not loaded.
    Missing(&'v Meta, At<'v>),
    End,
}

impl<'v> Spilled<'v> {
    pub(in crate::versions) fn new(
        spill: &'v Spill,
        tree: TreeId,
        bounds: Bounds<'_>,
        reverse: bool,
        reader: Reader<'v>,
    ) -> Self {
        let has_own = spill.has_own(reader);
        let from = match bounds.0 {
            Bound::Unbounded => Bound::Included(joined(tree, &[])),
            bound => bound.map(|key| joined(tree, key)),
        };
        let to = match (bounds.1, tree.0.checked_add(1)) {
            (Bound::Unbounded, None) => Bound::Unbounded,
            (Bound::Unbounded, Some(next)) => Bound::Excluded(joined(TreeId(next), &[])),
            (bound, _) => bound.map(|key| joined(tree, key)),
        };
        let mut all =
            Self { spill, reader, has_own, reverse, from, to, cursors: Vec::new(), head: None };
        for round in spill.rounds.values() {
            let mut cursor = Cursor { blocks: all.blocks(round), front: Front::End };
            all.advance(&mut cursor);
            if !matches!(cursor.front, Front::End) {
                all.cursors.push(cursor);
            }
        }
        all.find_head();
        all
    }

    /// Returns the blocks of a round that overlap the range.
    fn blocks(&self, round: &'v Round) -> btree_map::Range<'v, Arc<[u8]>, Meta> {
        let (from, to) = (as_slices(&self.from), as_slices(&self.to));
        let low = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let across = round.range::<[u8], _>((Bound::Unbounded, Bound::Included(low))).next_back();
        match across.filter(|(_, meta)| is_behind(from, &meta.last)) {
            Some((first, _)) => round.range::<[u8], _>((Bound::Included(&**first), to)),
            None => round.range::<[u8], _>((from, to)),
        }
    }

    fn at(&self) -> Lsn {
        self.reader.as_of.at
    }

    /// Returns where the merge continues; `None` if it is complete.
    pub(in crate::versions) fn head(&self) -> Option<At<'v>> {
        self.head
    }

    fn find_head(&mut self) {
        let fronts = self.cursors.iter().filter_map(|cursor| cursor.front.at());
        self.head = fronts.min_by(|a, b| self.order(*a, *b));
    }

    fn order(&self, a: At<'_>, b: At<'_>) -> Ordering {
        match (a, b) {
            (At::Start, At::Start) => Ordering::Equal,
            (At::Start, At::Key(_)) => Ordering::Less,
            (At::Key(_), At::Start) => Ordering::Greater,
            (At::Key(a), At::Key(b)) if self.reverse => b.cmp(a),
            (At::Key(a), At::Key(b)) => a.cmp(b),
        }
    }

    /// Consumes the key at the head and returns the combined effect of its images.
    pub(in crate::versions) fn take(&mut self) -> Result<Older<'v>, Stop> {
        let mut all = Older::default();
        let Some(head) = self.head else { return Ok(all) };
        let lacks = |cursor: &Cursor<'v>| match &cursor.front {
            Front::Missing(_, at) => self.order(*at, head).is_le(),
            _ => false,
        };
        if self.cursors.iter().any(lacks) {
            return Err(self.missing(head));
        }
        let mut cursors = std::mem::take(&mut self.cursors);
        for cursor in &mut cursors {
            if cursor.front.at() == Some(head) {
                if let Front::Image { older, .. } = &cursor.front {
                    all.then_all(older);
                }
                self.advance(cursor);
            }
        }
        self.cursors = cursors;
        self.find_head();
        Ok(all)
    }

    /// Requests the blocks that the merge has reached. Marks its current blocks as recently used,
    /// so that they are kept.
    fn missing(&self, head: At<'v>) -> Stop {
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for cursor in &self.cursors {
            match &cursor.front {
                Front::Image { id: Some(id), .. } => {
                    let _used = self.spill.loaded.as_ref().and_then(|loaded| loaded.get(*id));
                }
                Front::Missing(meta, at) if self.order(*at, head).is_le() => {
                    now.extend(meta.missing());
                    let mut next = cursor.blocks.clone();
                    let next = std::iter::from_fn(|| {
                        if self.reverse { next.next_back() } else { next.next() }
                    });
                    let next = next.map(|(_, meta)| meta).filter(|meta| !meta.is_seen(self.at()));
                    let next = next.filter(|meta| self.spill.bytes_of(meta).is_none());
                    later.extend(next.take(AHEAD - 1).filter_map(Meta::missing));
                }
                _ => {}
            }
        }
        later.truncate(AT_ONCE.saturating_sub(now.len()));
        now.extend(later);
        Stop::Spilled(now)
    }

    /// Advances to the next image of a round that the snapshot does not see.
    fn advance(&self, cursor: &mut Cursor<'v>) {
        if let Front::Image { id, block, left, .. } = cursor.front
            && let Some(front) = self.next_in(id, block, left)
        {
            cursor.front = front;
            return;
        }
        loop {
            let next = if self.reverse { cursor.blocks.next_back() } else { cursor.blocks.next() };
            let Some((first, meta)) = next else {
                cursor.front = Front::End;
                return;
            };
            if meta.is_seen(self.at()) {
                continue;
            }
            let Some(bytes) = self.spill.bytes_of(meta) else {
                cursor.front = Front::Missing(meta, self.edge(first, meta));
                return;
            };
            let block = Block(bytes);
            let from = block.partition_point(|key| !is_behind(as_slices(&self.from), key));
            let to = block.partition_point(|key| is_before(as_slices(&self.to), key));
            let id = meta.resident.is_none().then_some(meta.id);
            if let Some(front) = self.next_in(id, block, (from, to)) {
                cursor.front = front;
                return;
            }
        }
    }

    /// Returns the begin, or the end, of the block that the merge reaches next.
    fn edge(&self, first: &'v [u8], meta: &'v Meta) -> At<'v> {
        let edge = if self.reverse { &*meta.last } else { first };
        let inside = is_behind(as_slices(&self.from), edge) && is_before(as_slices(&self.to), edge);
        if inside { At::Key(&edge[TREE..]) } else { At::Start }
    }

    fn next_in(
        &self,
        id: Option<u64>,
        block: Block<'v>,
        (mut low, mut high): (usize, usize),
    ) -> Option<Front<'v>> {
        while low < high {
            let key = block.entry(if self.reverse { high - 1 } else { low }).key;
            let same = |n: &usize| block.entry(*n).key == key;
            let group = if self.reverse {
                let len = (low..high).rev().take_while(same).count();
                high -= len;
                high..high + len
            } else {
                let len = (low..high).take_while(same).count();
                low += len;
                low - len..low
            };
            let seen = group.map(|n| block.entry(n));
            let seen = seen.map(|entry| (self.spill.writers.sight(entry.by, self.reader), entry));
            let mut unseen = seen.filter(|(sight, _)| *sight != Sight::Seen).peekable();
            if unseen.peek().is_some() {
                let mut older = Older::default();
                for (sight, entry) in unseen {
                    older.then(sight, entry.prior);
                    if older.is_settled() && !self.has_own {
                        break;
                    }
                }
                return Some(Front::Image {
                    id,
                    key: &key[TREE..],
                    older,
                    block,
                    left: (low, high),
                });
            }
        }
        None
    }
}

impl<'v> Front<'v> {
    fn at(&self) -> Option<At<'v>> {
        match self {
            Self::Image { key, .. } => Some(At::Key(key)),
            Self::Missing(_, at) => Some(*at),
            Self::End => None,
        }
    }
}

fn as_slices(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Returns true if a key satisfies the lower bound.
fn is_behind(from: Bound<&[u8]>, key: &[u8]) -> bool {
    match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }
}

/// Returns true if a key satisfies the upper bound.
fn is_before(to: Bound<&[u8]>, key: &[u8]) -> bool {
    match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    }
}
