//! Progress of a long run, with an estimate of the remaining time.
//!
//! On a terminal it updates one line; elsewhere it prints one line per step. It writes to standard
//! error, since standard output has only results.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

/// Columns available on every terminal.
const WIDTH: usize = 79;

/// The steps of a run.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: usize,
    begun: usize,
    since: Instant,
    terminal: bool,
}

impl Progress {
    /// Creates the progress of `total` steps of about equal length.
    pub fn new(what: &'static str, total: usize) -> Self {
        Self {
            what,
            total,
            begun: 0,
            since: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Begins the next step.
    pub fn step(&mut self, name: &str) {
        let line = line(self.what, self.begun, self.total, self.since.elapsed(), name);
        self.begun += 1;
        if self.terminal {
            // Erases the previous line; a wrapped line could not be erased.
            eprint!("\r\x1b[2K{}", line.chars().take(WIDTH).collect::<String>());
            // An error here does not affect the measurement.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.begun > 0 {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Returns the line after `done` finished steps and `elapsed` time, as `name` begins.
fn line(what: &str, done: usize, total: usize, elapsed: Duration, name: &str) -> String {
    let mut line = format!("{what} {}/{total}: {name}", done + 1);
    if done > 0 && done < total {
        let left = elapsed.mul_f64((total - done) as f64 / done as f64).as_secs();
        let left =
            if left < 60 { format!("{left} s") } else { format!("{} min", left.div_ceil(60)) };
        let _ = write!(line, "; about {left} left");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_estimates_the_remaining_time() {
        let s = Duration::from_secs;
        assert_eq!(line("pgbench", 0, 33, s(0), "select-only"), "pgbench 1/33: select-only");
        assert_eq!(line("pgbench", 11, 33, s(11), "x"), "pgbench 12/33: x; about 22 s left");
        assert_eq!(line("pgbench", 11, 33, s(110), "x"), "pgbench 12/33: x; about 4 min left");
        // More steps than announced: no estimate.
        assert_eq!(line("pgbench", 33, 33, s(110), "x"), "pgbench 34/33: x");
    }
}
