//! Limits a copy to a rate: computes how long to wait after a number of bytes.

use clearway_sync::time::{Duration, Instant};

/// A rate, measured from its creation, so that a copy that has fallen behind may catch up.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_a_second: Option<u64>,
    began: Instant,
}

impl Pace {
    /// Creates a rate of at most this many bytes a second, more than 0. `None`: no limit.
    pub fn new(bytes_a_second: Option<u64>) -> Self {
        Self { bytes_a_second, began: Instant::now() }
    }

    /// Returns how long to wait before continuing, `done` bytes after the start; `None` for no
    /// wait.
    pub fn wait(&self, done: u64) -> Option<Duration> {
        let due = Duration::from_secs_f64(done as f64 / self.bytes_a_second? as f64);
        due.checked_sub(self.began.elapsed()).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_returns_the_remaining_time() {
        let pace = Pace::new(Some(1 << 20));
        let wait = pace.wait(100 << 20).unwrap();
        assert!(wait <= Duration::from_secs(100) && wait > Duration::from_secs(90), "{wait:?}");
        assert_eq!(pace.wait(0), None);
        assert_eq!(Pace::new(None).wait(u64::MAX), None);
    }
}
