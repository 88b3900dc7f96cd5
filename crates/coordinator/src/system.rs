//! What a server reports about itself in SQL: the engine asks it when a statement reads a system
//! view.

use clearway_ir::system::SystemView;
use clearway_types::RowBatch;

/// Accepts a view's rows, in any thread.
pub type TakeRows = Box<dyn FnOnce(RowBatch) + Send>;

/// A server, as seen by its sessions' statements. Called in workers' threads, so no method may
/// block.
pub trait System: Send + Sync {
    /// Passes the view's rows to `take`, at once or when they have been gathered. Each row has
    /// exactly the view's columns, in their types.
    fn rows(&self, view: SystemView, take: TakeRows);
    /// Resets the counts of `clearway.contention` to 0.
    fn reset_contention(&self);
}
