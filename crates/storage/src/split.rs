//! Splits nodes: planned from the leaf up, with shared latches only; executed when all pages are
//! taken.
//!
//! Invariants
//! 1. The plan matches the pages at the time of the change: only the partition's thread changes
//!    them, and it plans and executes without a break.
//! 2. A root keeps its page; its content moves to two new children.
//! 3. Both halves fit, because a cell uses at most a quarter of a page.

use crate::attempt::Blocked;
use crate::descend::Path;
use crate::mini::{Core, Mini};
use crate::page::{Cell, MAX_CELL, Node, ROOM, SLOT};
use crate::record::{PageOp, push_op};

/// A node with one cell inserted or replaced.
#[derive(Clone, Copy)]
struct View<'a> {
    node: Node<'a>,
    at: usize,
    replaces: bool,
    cell: Cell<'a>,
    /// The key that a rollback has put back into the tree before; empty if there is none.
    after: &'a [u8],
}

impl<'a> View<'a> {
    fn count(&self) -> usize {
        self.node.count() + usize::from(!self.replaces)
    }
    fn get(&self, i: usize) -> Cell<'a> {
        if i == self.at {
            self.cell
        } else {
            self.node.cell(if i > self.at && !self.replaces { i - 1 } else { i })
        }
    }
    fn fits(&self, most: usize) -> bool {
        if self.replaces {
            self.node.free() + self.node.cell(self.at).value.len() >= self.cell.value.len()
        } else {
            self.node.free() >= self.cell.size() + SLOT && self.node.count() < most
        }
    }
    /// Returns true if there are two halves that fit. By invariant 3 that holds for every valid
    /// node.
    fn can_be_split(&self) -> bool {
        let sizes = || (0..self.count()).map(|i| self.get(i).size());
        let all: usize = sizes().map(|size| size + SLOT).sum();
        self.node.count() >= 2
            && sizes().all(|size| size <= MAX_CELL)
            && all <= ROOM + MAX_CELL + SLOT
            && self.node.level() < u8::MAX
    }
    /// Returns true if the cell at `i` is the one that the rollback has put back before.
    fn is_run(&self, i: Option<usize>) -> bool {
        let cell = |i: &usize| {
            !self.after.is_empty() && *i < self.count() && self.get(*i).key == self.after
        };
        i.filter(cell).is_some()
    }
    /// Returns true if these cells fit in a page.
    fn fit(&self, mut range: std::ops::Range<usize>) -> bool {
        range
            .try_fold(0, |all, i| Some(all + self.get(i).size() + SLOT).filter(|all| *all <= ROOM))
            .is_some()
    }
    /// Returns the first cell of the right half. Keys inserted in ascending or descending order
    /// leave full nodes behind. In a rollback such a run may also be between other keys: the
    /// rollback has no more pages than were freed, and inserts in reverse order what a scan has
    /// deleted.
    fn split_point(&self) -> usize {
        let (at, count) = (self.at, self.count());
        if !self.replaces {
            // The new cell goes with the adjacent run if that half fits. Otherwise, the cells on
            // its other side are together smaller than it, so it fits with them.
            if at + 1 == count || at > 0 && self.is_run(Some(at + 1)) {
                return if self.fit(at..count) { at } else { at + 1 };
            }
            if at == 0 || self.is_run(at.checked_sub(1)) {
                return if self.fit(0..at + 1) { at + 1 } else { at };
            }
        }
        let size = |i: usize| self.get(i).size() + SLOT;
        let total: usize = (0..self.count()).map(size).sum();
        let (mut left, mut best) = (0, (usize::MAX, 1));
        for m in 1..self.count() {
            left += size(m - 1);
            best = best.min((left.max(total - left), m));
        }
        best.1
    }
    /// Returns the shortest key that separates the halves of a leaf. In an inner node it must be
    /// the right half's first key. Keys between the halves go to the half with the new cell,
    /// because they may come next.
    fn separator(&self, m: usize) -> Vec<u8> {
        let (last, first) = (self.get(m - 1).key, self.get(m).key);
        if self.node.level() > 0 {
            return first.to_vec();
        }
        let common = last.iter().zip(first).take_while(|(a, b)| a == b).count();
        if !self.replaces && m == self.at {
            // Just above the left half.
            let next = last.get(common).map_or(0, |byte| byte.saturating_add(1));
            return [&first[..common.min(first.len())], &[next]].concat();
        }
        first[..first.len().min(common + 1)].to_vec()
    }
    fn cells(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut out = Vec::new();
        range.for_each(|i| self.get(i).write(&mut out));
        out
    }
}

/// The change of one node.
struct Step {
    no: u32,
    at: usize,
    replaces: bool,
    key: Vec<u8>,
    /// The first cell of the right half, if the node splits.
    split: Option<usize>,
    root: bool,
    /// The right half's page, or both halves' pages for a root.
    pages: Vec<u32>,
}

/// The changes of the nodes from a leaf upwards when a cell is inserted there.
pub(crate) struct Plan {
    steps: Vec<Step>,
}

/// Placeholder for a value of which only the length is known.
static BLANK: [u8; crate::page::MAX_CELL] = [0; MAX_CELL];

/// A cell to insert into a leaf.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) slot: usize,
    /// True if it replaces the cell in the slot.
    pub(crate) replaces: bool,
    pub(crate) key: &'a [u8],
    /// Length of its value in bytes.
    pub(crate) len: usize,
    /// See `View`.
    pub(crate) after: &'a [u8],
}

/// Plans to insert a cell into `leaf`.
pub(crate) fn plan(
    core: &Core,
    path: &Path,
    leaf: u32,
    incoming: Incoming<'_>,
) -> Result<Plan, Blocked> {
    let Incoming { slot, replaces, key, mut len, mut after } = incoming;
    let mut steps: Vec<Step> = Vec::new();
    let mut above = path.nodes();
    let new_step = |no, at, replaces, key| Step {
        no,
        at,
        replaces,
        key,
        split: None,
        root: false,
        pages: Vec::new(),
    };
    let mut step = new_step(leaf, slot, replaces, key.to_vec());
    loop {
        let page = core.read(step.no).map_err(|want| path.blocked(core, want))?;
        let value = BLANK.get(..len).ok_or_else(|| core.corrupt(step.no, "a cell is too large"))?;
        let cell = Cell { key: &step.key, value, overflow: false };
        let view =
            View { node: Node::new(&page), at: step.at, replaces: step.replaces, cell, after };
        if view.fits(core.node_cells) {
            steps.push(step);
            break;
        }
        if !view.can_be_split() {
            return Err(core.corrupt(step.no, "its cells are not those of a node").into());
        }
        let m = view.split_point();
        let separator = view.separator(m);
        step.split = Some(m);
        step.root = above.is_empty();
        steps.push(step);
        let Some((&(no, slot), rest)) = above.split_last() else { break };
        above = rest;
        let at = usize::from(slot) + 1;
        step = new_step(no, at, false, separator);
        (len, after) = (size_of::<u32>(), &[]);
    }
    Ok(Plan { steps })
}

impl Plan {
    /// Takes all pages that the plan changes.
    pub(crate) fn take(&mut self, mini: &mut Mini<'_>) -> Result<(), Blocked> {
        for step in &mut self.steps {
            mini.take(step.no)?;
        }
        for step in &mut self.steps {
            let pages = usize::from(step.split.is_some()) + usize::from(step.root);
            step.pages = (0..pages).map(|_| mini.alloc()).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Writes the plan's changes into the record; `value` is that of the leaf's cell.
    pub(crate) fn push(&self, mini: &Mini<'_>, buf: &mut Vec<u8>, value: &[u8]) {
        self.push_steps(mini, buf, value.to_vec(), false);
    }

    /// Like [`Self::push`], for a value in overflow pages, which `reference` names.
    pub(crate) fn push_reference(&self, mini: &Mini<'_>, buf: &mut Vec<u8>, reference: &[u8]) {
        self.push_steps(mini, buf, reference.to_vec(), true);
    }

    fn push_steps(
        &self,
        mini: &Mini<'_>,
        buf: &mut Vec<u8>,
        mut value: Vec<u8>,
        mut overflow: bool,
    ) {
        for step in &self.steps {
            let cell = Cell { key: &step.key, value: &value, overflow };
            let node = Node::new(mini.page(step.no));
            step.push(&View { node, at: step.at, replaces: step.replaces, cell, after: &[] }, buf);
            value = step.pages.last().copied().unwrap_or(0).to_le_bytes().to_vec();
            overflow = false;
        }
    }
}

impl Step {
    fn push(&self, view: &View<'_>, buf: &mut Vec<u8>) {
        let Some(m) = self.split else {
            self.put(view, buf);
            return;
        };
        let level = view.node.level();
        let mut fill = |no: u32, range: std::ops::Range<usize>| {
            push_op(buf, no, &PageOp::InitNode { level });
            push_op(buf, no, &PageOp::Cells { cells: &view.cells(range) });
        };
        match *self.pages {
            [left, right] => {
                let separator = view.separator(m);
                fill(left, 0..m);
                fill(right, m..view.count());
                push_op(buf, self.no, &PageOp::InitNode { level: level + 1 });
                for (slot, key, child) in [(0, &[][..], left), (1, &separator, right)] {
                    let cell = Cell { key, value: &child.to_le_bytes(), overflow: false };
                    push_op(buf, self.no, &PageOp::Insert { slot, cell });
                }
            }
            _ => {
                fill(self.pages.first().copied().unwrap_or(0), m..view.count());
                let stays = self.at < m;
                let keep = m - usize::from(stays && !self.replaces);
                push_op(buf, self.no, &PageOp::Truncate { keep: keep as u16 });
                if stays {
                    self.put(view, buf);
                }
            }
        }
    }

    fn put(&self, view: &View<'_>, buf: &mut Vec<u8>) {
        let (slot, cell) = (self.at as u16, view.cell);
        let op = if self.replaces {
            PageOp::Replace { slot, overflow: cell.overflow, value: cell.value }
        } else {
            PageOp::Insert { slot, cell }
        };
        push_op(buf, self.no, &op);
    }
}
