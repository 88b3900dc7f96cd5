//! An UPDATE that only adds to integers of one row (`Program::Update::adds`), beside others that
//! add to the same row.
//!
//! It locks the row in [`Mode::Increment`], which is compatible with itself, and adds to the
//! integers where they are. What it adds is the difference that its expressions make of the present
//! row, so errors are those of any UPDATE.
//!
//! Invariants
//! 1. Whatever subset of the transactions that hold the lock aborts, every integer stays within its
//!    type: an addition is made only if the new value, and all that is up to a *spread* from it,
//!    are ([`fits`]). The spread has the addition in it. A constraint on the value, where there is
//!    one, is to be tested at the same two extremes.
//! 2. Nothing lies between the test and the change.
//! 3. Where the test fails, where an expression does, or where the row has no integer to add to,
//!    the statement takes the exclusive lock and is any other UPDATE: it waits until the others
//!    have ended, and its result is exact.
//! 4. So it does where transactions of its plan mostly read the row under a lock, or change it
//!    otherwise, after the addition ([`super::learning`]).
//!
//! Source: O'Neil, The escrow transactional method, TODS 11 (1986), without its journal of
//! quantities.

use super::modify::Modify;
use super::{Cx, Output, Stop};
use crate::lock::{Mode, Target};
use crate::trees::Trees;
use clearway_ir::Expr;
use clearway_ir::increment::MOST_ADDED;
use clearway_ir::program::{Access, Env};
use clearway_storage::{Addend, Addends, Incremented};
use clearway_sync::canary::{self, Bug};
use clearway_types::{DatumRef, RowView};

const _: () = assert!(MOST_ADDED <= Addends::MOST);

/// What a statement adds to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    pub addends: Addends,
    /// The sum of it, without signs.
    pub size: u64,
}

/// An integer with its width in bytes, or NULL.
pub(super) type Integer = Option<(i64, u8)>;

/// What the statement adds to this row, of which the integers may be up to `spread` from where they
/// are; `None`: that is not known, or might not be possible. `open`: what it adds may be taken
/// back; `new`: the new value of a column.
pub(super) fn addends(
    set: &[(usize, Expr)],
    row: RowView<'_>,
    (spread, open): (u64, bool),
    mut new: impl FnMut(&(usize, Expr)) -> Option<Integer>,
) -> Option<Added> {
    let mut added = Added { addends: Addends::default(), size: 0 };
    let mut news = [None; MOST_ADDED];
    for (one, into) in set.iter().zip(&mut news) {
        let (column, _) = one;
        let (old, new) = match (integer(row.get(*column).ok()?)?, new(one)?) {
            (Some((old, _)), Some(new)) => (old, new),
            (None, None) => continue,
            _ => return None,
        };
        let delta = new.0.checked_sub(old)?;
        let encoded = row.column(*column).ok()?;
        // Behind the tag.
        let offset = (encoded.as_ptr() as usize).checked_sub(row.bytes().as_ptr() as usize)? + 1;
        let addend = Addend { offset: u16::try_from(offset).ok()?, width: new.1, delta };
        if !added.addends.push(addend) {
            return None;
        }
        added.size = added.size.saturating_add(delta.unsigned_abs());
        *into = Some(new);
    }
    let spread = if open { spread.saturating_add(added.size) } else { spread };
    let all_fit = news.into_iter().flatten().all(|(new, width)| fits(new, width, spread));
    let some = added.addends.iter().next().is_some();
    (some && (all_fit || canary::on(Bug::UncheckedSpread))).then_some(added)
}

/// `None`: it is something else.
pub(super) fn integer(value: DatumRef<'_>) -> Option<Integer> {
    Some(match value {
        DatumRef::Int2(value) => Some((value.into(), 2)),
        DatumRef::Int4(value) => Some((value.into(), 4)),
        DatumRef::Int8(value) => Some((value, 8)),
        DatumRef::Null => None,
        _ => return None,
    })
}

/// Whether all integers that are up to a spread from this one have its width.
fn fits(value: i64, width: u8, spread: u64) -> bool {
    let most = (1_i128 << (8 * u32::from(width) - 1)) - 1;
    let (value, spread) = (i128::from(value), i128::from(spread));
    value + spread <= most && value - spread >= -most - 1
}

impl Modify {
    /// Adds to the row under this key beside others; false if it must be changed under the
    /// exclusive lock. The table's intent is held.
    #[track_caller]
    pub(super) fn add<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        access: &Access,
        key: &[u8],
        set: &[(usize, Expr)],
        env: &Env,
        out: &mut Output,
    ) -> Result<bool, Stop> {
        let table = &*access.table;
        let (tree, row) = (table.tree, Target::Key(table.tree, key));
        if !cx.lock_add(access, key)? {
            return Ok(false);
        }
        let whole =
            cx.locks.covered(cx.txn, Target::Table(table.id), Mode::NoKeyExclusive.of_table());
        if whole || cx.locks.covered(cx.txn, row, Mode::NoKeyExclusive) {
            return Ok(false);
        }
        let spread = cx.locks.spread(tree, key);
        let mut size = 0;
        let done = cx.trees.increment(cx.log, cx.mode, tree, key, &mut |value| {
            let row = RowView::new(value);
            let new = |(_, e): &(usize, Expr)| integer(e.eval_ref(row, env).ok()?.as_ref());
            let added = addends(set, row, (spread, true), new)?;
            size = added.size;
            Some(added.addends)
        })?;
        match done {
            Incremented::Missing => {}
            Incremented::Refused => return Ok(false),
            Incremented::Done(_) => {
                cx.locks.widen(tree, key, size);
                out.count += 1;
            }
        }
        Ok(true)
    }
}
