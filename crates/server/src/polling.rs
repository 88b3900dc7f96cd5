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
//! 3. After a yield that took longer than [`LONG`] it does not poll for a pause of [`SHORTEST`]. If
//!    the next long yield follows a pause sooner than that pause lasted, the next pause is twice as
//!    long, at most [`LONGEST`]. So a program that computes costs a long yield a second, and a core
//!    that was lost once, to the kernel or to the host, costs little polling.
//!
//! Locking: none; each worker has its own. A crash leaves nothing.

use std::time::{Duration, Instant};

/// Maximum time for which the client, or the flusher, is expected to use the core.
const LONG: Duration = Duration::from_millis(1);
/// For how long a worker does not poll after a single yield that took longer.
const SHORTEST: Duration = Duration::from_millis(16);
/// For how long it does not poll, at most.
const LONGEST: Duration = Duration::from_secs(1);

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
    /// End of the last pause.
    not_before: Option<Instant>,
    /// Length of the last pause.
    pause: Duration,
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
            let again = self.not_before.is_some_and(|at| began < at + self.pause);
            self.pause = if again { (self.pause * 2).min(LONGEST) } else { SHORTEST };
            self.not_before = Some(ended + self.pause);
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

    /// Yields for longer than `LONG` at `began`. Returns how long the worker then does not poll.
    fn pause_after(polling: &mut Polling, began: Instant) -> Duration {
        let ended = began + LONG + Duration::from_nanos(1);
        assert!(!polling.yielded(began, ended));
        let pauses = |pause: &Duration| !polling.pays(ended + *pause, ONE);
        (1..).map(Duration::from_millis).find(|pause| !pauses(pause)).unwrap()
    }

    #[test]
    fn invariant_3_a_long_yield_is_followed_by_a_pause() {
        let (mut polling, began) = (Polling::default(), Instant::now());
        assert!(polling.yielded(began, began + LONG));
        assert!(polling.pays(began + LONG, ONE));
        assert_eq!(pause_after(&mut polling, began), SHORTEST);
    }

    #[test]
    fn invariant_3_long_yields_in_a_row_make_longer_pauses() {
        let (mut polling, mut at) = (Polling::default(), Instant::now());
        for expected in [16, 32, 64, 128, 256, 512, 1000, 1000] {
            let pause = pause_after(&mut polling, at);
            assert_eq!(pause.as_millis(), expected);
            at += LONG + pause + pause / 2;
        }
        assert_eq!(pause_after(&mut polling, at + LONGEST), SHORTEST);
    }
}
