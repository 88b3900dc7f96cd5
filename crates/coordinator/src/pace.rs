//! Keeping a copy to a rate: how long to wait after so many bytes.

use clearway_sync::time::{Duration, Instant};

/// A rate that began when it was made. Time is measured from there, so that what was slow may catch
/// up.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_a_second: Option<u64>,
    began: Instant,
}

impl Pace {
    /// At most so many bytes a second, more than 0; `None`: as fast as it goes.
    pub fn new(bytes_a_second: Option<u64>) -> Self {
        Self { bytes_a_second, began: Instant::now() }
    }

    /// How long to wait before going on, `done` bytes after the beginning; `None`: not at all.
    pub fn wait(&self, done: u64) -> Option<Duration> {
        let due = Duration::from_secs_f64(done as f64 / self.bytes_a_second? as f64);
        due.checked_sub(self.began.elapsed()).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_asks_for_the_time_that_is_left() {
        let pace = Pace::new(Some(1 << 20));
        let wait = pace.wait(100 << 20).unwrap();
        assert!(wait <= Duration::from_secs(100) && wait > Duration::from_secs(90), "{wait:?}");
        assert_eq!(pace.wait(0), None);
        assert_eq!(Pace::new(None).wait(u64::MAX), None);
    }
}
