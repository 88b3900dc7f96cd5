//! Reads system views.

use crate::core::Core;
use clearway_ir::system::SystemView;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{RowBatch, SqlResult};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

static ROWS: Class = Class::new("coordinator.view_rows");

/// Requests a view's rows and waits for them, or until the statement is cancelled.
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
