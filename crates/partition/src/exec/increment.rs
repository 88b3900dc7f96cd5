//! An UPDATE that only adds to integers of one row (`Program::Update::adds`), concurrently with
//! others that add to the same row.
//!
//! It locks the row in [`Mode::Increment`], which is compatible with itself, and adds to the
//! integers in place. The addend is the difference that its expressions make to the current row, so
//! its errors are those of any UPDATE.
//!
//! Invariants
//! 1. Whichever of the lock's holders abort, every integer stays within its [`Bounds`]: those of
//!    its type and of CHECK constraints. An addition is made only if both extremes are within them
//!    ([`fits`]): the values if all open additions that have raised integers are undone, or all
//!    that have lowered integers. The *spread* has these sums, including the addition itself.
//! 2. Nothing happens between the test and the change.
//! 3. If the test or an expression fails, or the row has no integer to add to, the statement takes
//!    the exclusive lock and becomes an ordinary UPDATE. It waits until the others have ended, and
//!    its result is exact. While it waits, it holds nothing on the row unless its transaction has
//!    used the row before. Otherwise a holder that uses the row once more would deadlock with it.
//! 4. The same applies unless transactions of its plan rarely read anything, or change the row in
//!    another way, after the addition ([`super::learning`]). Before a read without locks,
//!    increment locks are converted (`partition/increments.rs`).
//!
//! Source: O'Neil, The escrow transactional method, TODS 11 (1986), without its journal of
//! quantities.

use super::modify::Modify;
use super::{Cx, Output, Stop};
use crate::lock::{Mode, Spread, Target};
use clearway_ir::increment::MOST_ADDED;
use clearway_ir::program::{Access, Env};
use clearway_ir::{Bounds, Expr};
use clearway_storage::{Addend, Addends, Incremented, Trees};
use clearway_sync::canary::{self, Bug};
use clearway_types::{DatumRef, RowView};

const _: () = assert!(MOST_ADDED <= Addends::MOST);

/// The amounts that a statement adds to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    pub addends: Addends,
    /// How far the integers move if these are undone.
    pub spread: Spread,
}

/// An integer and its width in bytes, or NULL.
pub(super) type Integer = Option<(i64, u8)>;

/// Returns what the statement adds to this row, whose integers may move by `spread`. Returns `None`
/// if that is unknown or might violate their bounds.
///
/// `open` means that this addition may be undone; `new` returns a column's new value.
pub(super) fn addends(
    (set, bounds): (&[(usize, Expr)], &[Bounds]),
    row: RowView<'_>,
    (mut spread, open): (Spread, bool),
    mut new: impl FnMut(&(usize, Expr)) -> Option<Integer>,
) -> Option<Added> {
    let mut added = Added { addends: Addends::default(), spread: Spread::default() };
    let mut news = [None; MOST_ADDED];
    for ((one, bounds), into) in set.iter().zip(bounds).zip(&mut news) {
        let (column, _) = one;
        let (old, new) = match (integer(row.get(*column).ok()?)?, new(one)?) {
            (Some((old, _)), Some(new)) => (old, new),
            (None, None) => continue,
            _ => return None,
        };
        let delta = new.0.checked_sub(old)?;
        let encoded = row.column(*column).ok()?;
        // Skip the tag.
        let offset = (encoded.as_ptr() as usize).checked_sub(row.bytes().as_ptr() as usize)? + 1;
        let addend = Addend { offset: u16::try_from(offset).ok()?, width: new.1, delta };
        if !added.addends.push(addend) {
            return None;
        }
        added.spread.widen(Spread::of(delta));
        *into = Some((new.0, *bounds));
    }
    if open {
        spread.widen(added.spread);
    }
    if canary::on(Bug::UncheckedSpread) {
        spread = Spread::default();
    }
    let all_fit = news.into_iter().flatten().all(|(new, bounds)| fits(new, bounds, spread));
    let some = added.addends.iter().next().is_some();
    (some && all_fit).then_some(added)
}

/// Returns `None` if the value is neither an integer nor NULL.
pub(super) fn integer(value: DatumRef<'_>) -> Option<Integer> {
    Some(match value {
        DatumRef::Int2(value) => Some((value.into(), 2)),
        DatumRef::Int4(value) => Some((value.into(), 4)),
        DatumRef::Int8(value) => Some((value, 8)),
        DatumRef::Null => None,
        _ => return None,
    })
}

/// Returns true if the value is within the bounds, wherever it moves.
fn fits(value: i64, bounds: Bounds, spread: Spread) -> bool {
    let value = i128::from(value);
    value - i128::from(spread.fall) >= i128::from(bounds.low)
        && value + i128::from(spread.rise) <= i128::from(bounds.high)
}

impl Modify {
    /// Adds to the row under this key concurrently with others. Returns false if the row must be
    /// changed under the exclusive lock. The caller holds the table's intent lock.
    #[track_caller]
    pub(super) fn add<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        access: &Access,
        key: &[u8],
        (set, bounds): (&[(usize, Expr)], &[Bounds]),
        env: &Env,
        out: &mut Output,
    ) -> Result<bool, Stop> {
        let table = &*access.table;
        let (tree, row) = (table.tree, Target::Key(table.tree, key));
        // After a wait for the lock the transaction holds it, and the statement comes here again.
        self.first |= cx.locks.holds_nothing_on(cx.txn, tree, key);
        if !cx.lock_add(access, key)? {
            return Ok(false);
        }
        let whole =
            cx.locks.covered(cx.txn, Target::Table(table.id), Mode::NoKeyExclusive.of_table());
        if whole || cx.locks.covered(cx.txn, row, Mode::NoKeyExclusive) {
            return Ok(false);
        }
        let spread = cx.locks.spread(tree, key);
        let mut own = Spread::default();
        let done = cx.trees.increment(cx.log, cx.mode, tree, key, &mut |value| {
            let row = RowView::new(value);
            let new = |(_, e): &(usize, Expr)| integer(e.eval_ref(row, env).ok()?.as_ref());
            let added = addends((set, bounds), row, (spread, true), new)?;
            own = added.spread;
            Some(added.addends)
        })?;
        match done {
            Incremented::Missing => {}
            Incremented::Refused => {
                if self.first {
                    cx.locks.release_increment(cx.txn, tree, key);
                } else {
                    // Two such transactions deadlock.
                    cx.uses(tree, key, Mode::NoKeyExclusive);
                }
                return Ok(false);
            }
            Incremented::Done(_) => {
                cx.locks.widen(tree, key, own);
                out.count += 1;
            }
        }
        Ok(true)
    }
}
