//! When a worker polls for a short time before it sleeps: a client often answers within
//! microseconds, and to be woken takes longer than that.
//!
//! Between two polls the worker yields its core, which a client or the log's flusher may need. A
//! program that computes gives it back only at the end of its slice of time, a few milliseconds
//! later; a sleeping worker that is woken would get it at once. So the worker does not poll beside
//! such a program.
//!
//! Invariants
//! 1. A worker polls only if one of its sessions was busy lately.
//! 2. While one of its sessions waits for a sync, it polls only if the server has more busy
//!    sessions than workers. Fewer do not bring enough work during a sync, and the flusher needs a
//!    core.
//! 3. After a yield that took longer than [`LONG`] it does not poll for [`PAUSE`].
//!
//! Locking: none; each worker has its own. A crash leaves nothing.

use std::time::{Duration, Instant};

/// Maximum time for which the client, or the flusher, is expected to use the core.
const LONG: Duration = Duration::from_millis(1);
/// For how long a worker does not poll after a yield that took longer.
const PAUSE: Duration = Duration::from_secs(1);

/// What a worker knows about the load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of the worker's sessions that were busy lately.
    pub own_busy: usize,
    /// Number of the worker's sessions that wait for a sync.
    pub awaiting: usize,
    /// Approximate number of the server's sessions that were busy lately.
    pub busy: usize,
    /// Number of workers.
    pub workers: usize,
}

/// Decides whether a worker polls.
#[derive(Default)]
pub struct Polling {
    not_before: Option<Instant>,
}

impl Polling {
    /// Returns true if the worker should poll before it sleeps.
    pub fn pays(&self, now: Instant, load: Load) -> bool {
        load.own_busy > 0
            && (load.awaiting == 0 || load.busy > load.workers)
            && self.not_before.is_none_or(|at| at <= now)
    }

    /// Notes a yield. Returns false if the worker should stop polling.
    pub fn yielded(&mut self, began: Instant, ended: Instant) -> bool {
        let long = ended - began > LONG;
        if long {
            self.not_before = Some(ended + PAUSE);
        }
        !long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Load = Load { own_busy: 1, awaiting: 0, busy: 1, workers: 2 };

    #[test]
    fn invariant_1_an_idle_worker_does_not_poll() {
        let (polling, now) = (Polling::default(), Instant::now());
        assert!(polling.pays(now, ONE));
        assert!(!polling.pays(now, Load { own_busy: 0, busy: 9, ..ONE }));
    }

    #[test]
    fn invariant_2_few_sessions_do_not_poll_during_a_sync() {
        let (polling, now) = (Polling::default(), Instant::now());
        assert!(!polling.pays(now, Load { awaiting: 1, ..ONE }));
        assert!(!polling.pays(now, Load { awaiting: 1, busy: 2, ..ONE }));
        assert!(polling.pays(now, Load { awaiting: 1, busy: 3, ..ONE }));
    }

    #[test]
    fn invariant_3_a_long_yield_is_followed_by_a_pause() {
        let (mut polling, began) = (Polling::default(), Instant::now());
        assert!(polling.yielded(began, began + LONG));
        assert!(polling.pays(began + LONG, ONE));
        let ended = began + LONG + Duration::from_nanos(1);
        assert!(!polling.yielded(began, ended));
        assert!(!polling.pays(ended + PAUSE - Duration::from_nanos(1), ONE));
        assert!(polling.pays(ended + PAUSE, ONE));
    }
}
