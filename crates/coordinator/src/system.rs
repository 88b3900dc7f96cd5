//! What a server tells of itself in SQL: the engine asks it when a statement reads a system view.

use clearway_plan::system::SystemView;
use clearway_types::RowBatch;

/// A server, as the statements of its sessions see it. Called in workers' threads: nothing in it waits for anything.
pub trait System: Send + Sync {
    /// The view's rows as they are now: each has exactly the view's columns, in their types.
    fn rows(&self, view: SystemView) -> RowBatch;
    /// Sets the counts of `clearway.contention` to 0.
    fn reset_contention(&self);
}
