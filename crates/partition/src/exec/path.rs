//! Access paths: evaluate expressions to keys and key ranges, and take the locks that cover the
//! keys they find and those they do not find.

use super::buffers::Buffers;
use super::newer::Search;
use super::{Cx, Locking, Stop};
use crate::lock::{Mode, Target};
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{Expr, LockWait, Program};
use clearway_storage::Trees;
use clearway_types::{RowView, SqlResult, TreeId, key};
use std::ops::{Bound, RangeBounds};

/// The marker of NULL in a key; greater than the marker of any value.
const NULL_MARKER: u8 = 2;

/// A path with its expressions evaluated, and the progress along it.
pub(super) enum Keys {
    /// These keys of the table's tree.
    Points { keys: Vec<Vec<u8>>, next: usize },
    /// The rest of a range of a tree.
    Range(Range),
}

pub(super) struct Range {
    pub tree: TreeId,
    /// Whether it is an index, whose entries lead to rows.
    pub by_index: bool,
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
    pub reverse: bool,
    /// Whether the range is all rows.
    full: bool,
    pub done: bool,
    /// The original bounds, if rows are checked against them.
    whole: Option<Bounds>,
    /// Set if the index lacks rows of the snapshot.
    pub search: Option<Box<Search>>,
}

impl Range {
    /// Creates a range of all keys of a table's tree.
    pub(super) fn all(tree: TreeId) -> Self {
        Self {
            tree,
            by_index: false,
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            reverse: false,
            full: true,
            done: false,
            whole: None,
            search: None,
        }
    }
    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice))
    }
    /// Returns true if a key is within the original bounds.
    pub(super) fn originally_contains(&self, key: &[u8]) -> bool {
        self.whole.as_ref().is_none_or(|(from, to)| {
            let whole = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            RangeBounds::<[u8]>::contains(&whole, key)
        })
    }
    /// Continues after `key`.
    pub(super) fn advance(&mut self, key: Vec<u8>) {
        *(if self.reverse { &mut self.to } else { &mut self.from }) = Bound::Excluded(key);
    }
}

/// Appends the key encoding of the expressions; returns false if one is NULL.
pub(super) fn push_exprs(exprs: &[Expr], env: &Env, out: &mut Vec<u8>) -> SqlResult<bool> {
    for e in exprs {
        let value = e.eval_ref(RowView::new(&[]), env)?;
        if value.is_null() {
            return Ok(false);
        }
        key::push(out, value.as_ref());
    }
    Ok(true)
}

/// Appends the key of the single row that a program looks up; returns false if it looks up no row,
/// or not by one key.
pub(crate) fn push_point(program: &Program, env: &Env, out: &mut Vec<u8>) -> SqlResult<bool> {
    match program {
        Program::Scan { access: Access { path: Path::Point(exprs), .. }, .. } => {
            push_exprs(exprs, env, out)
        }
        _ => Ok(false),
    }
}

/// Appends the key of the row that a blind update changes. An update is blind if its reply does not
/// depend on the row's contents, and no key, index or home changes. Returns false if the program is
/// not a blind update or the key has a NULL. `adds` means that additions share the row.
pub(crate) fn push_blind(
    program: &Program,
    env: &Env,
    adds: bool,
    out: &mut Vec<u8>,
) -> SqlResult<bool> {
    match blind_key(program, adds) {
        Some(exprs) => push_exprs(exprs, env, out),
        None => Ok(false),
    }
}

/// Returns true if the program is a blind update; see [`push_blind`].
pub(crate) fn is_blind(program: &Program, adds: bool) -> bool {
    blind_key(program, adds).is_some()
}

/// Returns the key expressions of a blind update; see [`push_blind`].
fn blind_key(program: &Program, adds: bool) -> Option<&[Expr]> {
    let Program::Update { access, set, returning, moves, adds: only_adds, .. } = program else {
        return None;
    };
    let Path::Point(key) = &access.path else { return None };
    let indexed =
        |column: &usize| access.table.indexes.iter().any(|index| index.columns.contains(column));
    let blind = access.filter.is_none()
        && returning.is_empty()
        && !moves
        && !(only_adds.is_some() && adds)
        && !set.iter().any(|(column, _)| indexed(column))
        && access.write_lock() == clearway_ir::RowLock::NoKeyUpdate;
    blind.then_some(key)
}

impl Keys {
    /// Evaluates the path; takes the memory for a single key from `buffers`.
    pub(super) fn of(access: &Access, env: &Env, buffers: &mut Buffers) -> SqlResult<Self> {
        let table = &access.table;
        Ok(match &access.path {
            Path::Point(exprs) => {
                let mut k = std::mem::take(&mut buffers.key);
                let mut keys = std::mem::take(&mut buffers.keys);
                if push_exprs(exprs, env, &mut k)? {
                    keys.push(k);
                }
                Self::Points { keys, next: 0 }
            }
            Path::Points(exprs) => {
                let mut keys = Vec::with_capacity(exprs.len());
                for e in exprs {
                    let mut k = Vec::with_capacity(16);
                    if push_exprs(std::slice::from_ref(e), env, &mut k)? {
                        keys.push(k);
                    }
                }
                keys.sort_unstable();
                keys.dedup();
                Self::Points { keys, next: 0 }
            }
            Path::Range { index, prefix, low, high, reverse } => {
                let tree = index.map_or(table.tree, |i| table.indexes[i].tree);
                match range(prefix, low.as_ref(), high.as_ref(), env)? {
                    Some((from, to)) => Self::Range(Range {
                        tree,
                        by_index: index.is_some(),
                        from,
                        to,
                        reverse: *reverse,
                        full: false,
                        done: false,
                        whole: None,
                        search: None,
                    }),
                    None => Self::Points { keys: Vec::new(), next: 0 },
                }
            }
            Path::Full => Self::Range(Range::all(table.tree)),
        })
    }

    /// Remembers the bounds. Called before the path is followed, by statements that lock rows of a
    /// snapshot.
    pub(super) fn keep_bounds(&mut self) {
        if let Self::Range(range) = self {
            range.whole = range.by_index.then(|| (range.from.clone(), range.to.clone()));
        }
    }

    /// Searches the table instead of the index. Called before the path is followed, if
    /// [`Cx::by_table`] is set.
    pub(super) fn search_table(&mut self, table: TreeId) {
        self.keep_bounds();
        if let Self::Range(range) = self
            && range.by_index
        {
            range.search = Some(Box::new(Search::new(table)));
        }
    }

    /// Locks the table and the range for a change; single keys are locked as they are visited.
    #[track_caller]
    pub(super) fn lock<T: Trees>(
        &self,
        cx: &mut Cx<'_, T>,
        access: &Access,
        mode: Mode,
    ) -> Result<(), Stop> {
        self.try_lock(cx, access, mode, LockWait::Wait).map(drop)
    }

    /// Locks the table and the range. SKIP LOCKED and statements under a snapshot lock rows only.
    /// Returns false if the whole table is skipped.
    #[track_caller]
    pub(super) fn try_lock<T: Trees>(
        &self,
        cx: &mut Cx<'_, T>,
        access: &Access,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        if cx.locking == Locking::None {
            return Ok(true);
        }
        let table = &*access.table;
        match self {
            Self::Range(r) if wait != LockWait::Skip && cx.as_of.is_none() => {
                // Tables have no modes for FOR KEY SHARE and FOR NO KEY UPDATE: their readers and
                // writers may be in one table concurrently. A table without a primary key has no
                // key that such a reader could share with a writer.
                if r.full && (mode == mode.of_table() || table.primary_key.is_empty()) {
                    return cx.try_lock_table(table, mode.of_table(), wait);
                }
                cx.try_lock_table(table, mode.intent(), wait)?;
                let (from, to) = r.bounds();
                cx.try_lock_in(table, Target::Range(r.tree, from, to), mode, wait)
            }
            _ => cx.try_lock_table(table, mode.intent(), wait),
        }
    }
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the key range of a prefix and bounds on the column after it; `None` if a NULL makes the
/// range empty.
fn range(
    prefix: &[Expr],
    low: Option<&(Expr, bool)>,
    high: Option<&(Expr, bool)>,
    env: &Env,
) -> SqlResult<Option<Bounds>> {
    let mut start = Vec::with_capacity(32);
    if !push_exprs(prefix, env, &mut start)? {
        return Ok(None);
    }
    let mut from = Bound::Included(start.clone());
    if let Some((e, inclusive)) = low {
        let mut k = start.clone();
        if !push_exprs(std::slice::from_ref(e), env, &mut k)? {
            return Ok(None);
        }
        from = if *inclusive {
            Bound::Included(k)
        } else {
            above(&k).map_or(Bound::Unbounded, Bound::Included)
        };
    } else if start.is_empty() {
        from = Bound::Unbounded;
    }
    let to = if let Some((e, inclusive)) = high {
        let mut k = start;
        if !push_exprs(std::slice::from_ref(e), env, &mut k)? {
            return Ok(None);
        }
        if *inclusive {
            above(&k).map_or(Bound::Unbounded, Bound::Excluded)
        } else {
            Bound::Excluded(k)
        }
    } else if low.is_some() {
        // A comparison with NULL is not true.
        start.push(NULL_MARKER);
        Bound::Excluded(start)
    } else {
        above(&start).map_or(Bound::Unbounded, Bound::Excluded)
    };
    Ok(Some((from, to)))
}

fn above(prefix: &[u8]) -> Option<Vec<u8>> {
    key::successor(prefix)
}
