//! Latches that exist only to be measured: the lab compares them with the engine's latch, and the
//! server uses none of them.
//!
//! [`SLock`] is PostgreSQL's, [`TicketLatch`] and [`McsLatch`] are queues, and [`ElidedLatch`] runs
//! sections as memory transactions. Latches that only spin, by each instruction, are
//! [`clearway_latch::SpinLatch`]. All of them implement [`clearway_latch::RawLatch`], which users
//! can implement, too.
//!
//! The crate is separate from the lab because it needs `unsafe`, and because loom tests it.

mod elide;
mod mcs;
mod s_lock;
mod ticket;

pub use elide::{ElidedLatch, TRIALS, Transactions, available as elision_available};
pub use mcs::McsLatch;
pub use s_lock::{InSLock, SLock, SLockCas, SLockTas};
pub use ticket::TicketLatch;

/// Every interleaving of a few threads at each latch:
/// `RUSTFLAGS="--cfg loom" cargo test -p clearway-specimens --release --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use clearway_latch::conformance::excludes_in_every_interleaving as excludes;

    #[test]
    fn loom_compare_and_swap_excludes() {
        excludes::<SLockCas>(2, 2, 3);
        excludes::<ElidedLatch>(2, 2, 3);
    }

    #[test]
    fn loom_ticket_latches_exclude() {
        excludes::<TicketLatch>(2, 2, 3);
        excludes::<TicketLatch>(3, 1, 1);
    }

    #[test]
    fn loom_queue_latches_exclude() {
        excludes::<McsLatch>(2, 2, 3);
        excludes::<McsLatch>(3, 1, 1);
    }
}
