//! Raw operations on rows of the catalog, by their bytes.

use super::{Cx, Stop};
use crate::lock::{Mode, Target};
use crate::message::{RawOp, Reply};
use clearway_storage::{Inserted, Trees};
use clearway_types::SqlError;
use std::ops::{Bound, ControlFlow};

/// Runs an operation. It changes nothing or everything; a scan that stops restarts from the
/// beginning.
pub(crate) fn run_raw<T: Trees>(cx: &mut Cx<'_, T>, op: &RawOp) -> Result<Reply, Stop> {
    let mut reply = Reply::default();
    match op {
        RawOp::Get { tree, key } => {
            cx.lock(Target::Key(*tree, key), Mode::Shared)?;
            let found = cx.trees.get(*tree, key, &mut |value| reply.rows.push_encoded(value))?;
            reply.count = u64::from(found);
        }
        RawOp::Put { tree, key, value } => {
            cx.lock(Target::Key(*tree, key), Mode::Exclusive)?;
            if cx.trees.insert(cx.log, cx.mode, *tree, key, value)? == Inserted::Exists
                && !cx.trees.update(cx.log, cx.mode, *tree, key, value)?
            {
                return Err(SqlError::internal("a key neither exists nor can be inserted").into());
            }
            reply.count = 1;
        }
        RawOp::Delete { tree, key } => {
            cx.lock(Target::Key(*tree, key), Mode::Exclusive)?;
            reply.count = u64::from(cx.trees.delete(cx.log, cx.mode, *tree, key)?);
        }
        RawOp::Scan { tree } => {
            cx.lock(Target::Range(*tree, Bound::Unbounded, Bound::Unbounded), Mode::Shared)?;
            cx.trees.scan(*tree, Bound::Unbounded, Bound::Unbounded, false, &mut |_, value| {
                reply.rows.push_encoded(value);
                ControlFlow::Continue(())
            })?;
            reply.count = reply.rows.len() as u64;
        }
    }
    Ok(reply)
}
