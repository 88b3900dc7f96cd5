//! Latches and the baton: what protects a structure for a short time.
//!
//! [`Combiner`] is the baton of a partition: whoever submits a message while the partition is free runs it, and whoever
//! submits one while it is busy leaves it to the thread that is inside.

pub mod combiner;
mod padded;
mod sync;

pub use combiner::{Combiner, DRAIN_LIMIT, Submitted};
pub use padded::CachePadded;
