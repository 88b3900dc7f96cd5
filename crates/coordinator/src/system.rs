//! What a server tells of itself in SQL: the engine asks it when a statement reads a system view.

use crate::core::Core;
use clearway_ir::system::SystemView;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{RowBatch, SqlResult};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Takes a view's rows, in any thread.
pub type TakeRows = Box<dyn FnOnce(RowBatch) + Send>;

/// A server, as the statements of its sessions see it. Called in workers' threads: nothing in it
/// waits for anything.
pub trait System: Send + Sync {
    /// Gives the view's rows to `take`, at once or when they have been gathered. Each row has
    /// exactly the view's columns, in their types.
    fn rows(&self, view: SystemView, take: TakeRows);
    /// Sets the counts of `clearway.contention` to 0.
    fn reset_contention(&self);
}

static ROWS: Class = Class::new("coordinator.view_rows");

/// Asks for a view's rows and waits for them, or until the statement is cancelled.
pub(crate) async fn rows(core: &Core, view: SystemView) -> SqlResult<RowBatch> {
    let rows = Arc::new(Latch::new(&ROWS, None));
    let (set, wake) = (rows.clone(), core.port.waker(core.token));
    let take = move |found| {
        *set.lock() = Some(found);
        wake();
    };
    core.engine().system()?.rows(view, Box::new(take));
    poll_fn(|_| match rows.lock().take() {
        Some(rows) => Poll::Ready(Ok(rows)),
        None => core.check_cancelled().map_or_else(|e| Poll::Ready(Err(e)), |()| Poll::Pending),
    })
    .await
}
