//! The limit on open files: connections must not take the descriptors that the engine needs.
//!
//! While the server runs, the engine opens files: log segments, backups, old row versions. If it
//! cannot open the next segment of the log, the server stops.
//!
//! Invariants
//! 1. Connections leave the last [`RESERVE`] descriptors below the limit free; those of the control
//!    socket leave half of them. A new descriptor has the lowest free number, so it suffices to
//!    close a connection whose number is one of the last.
//! 2. `max_connections` connections, and [`EXTRA`] others, fit below these. The others are told
//!    that there are too many connections, or cancel a statement.
//!
//! Locking: none. A crash leaves nothing.

use crate::exit::{ExitCode, ExitFailure};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Descriptors for the engine's files, and for the metrics endpoint's connections.
const RESERVE: u64 = 64;
/// Descriptors for connections beyond `max_connections`.
const EXTRA: u64 = 32;
/// Minimum time between two lines in the log about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Raises the limit on open files to its maximum.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit on open files: {e}");
    }
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers `max_connections` to what the limit on open files permits. The files that the server
/// opens at its start must be open.
///
/// # Errors
/// The limit permits no connection.
pub(crate) fn fit(max_connections: usize) -> Result<usize, ExitFailure> {
    // Without /proc, the reserve must do for the files that are open.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let limit = limit();
    let fits = connections(limit, open);
    if fits == 0 {
        let least = open + RESERVE + EXTRA + 1;
        let message =
            format!("the limit of {limit} open files is too low: at least {least} are needed");
        let hint = "Raise it: `ulimit -n`, or LimitNOFILE= of the systemd unit.";
        return Err(ExitFailure { hint: Some(hint), ..ExitFailure::new(ExitCode::Usage, message) });
    }
    if fits < max_connections {
        tracing::warn!(
            "max_connections is lowered from {max_connections} to {fits}: the limit on open files is {limit} (`ulimit -n`, LimitNOFILE=)"
        );
    }
    Ok(max_connections.min(fits))
}

/// Returns how many connections fit below the limit beside `open` files.
fn connections(limit: u64, open: u64) -> usize {
    let fits = limit.saturating_sub(RESERVE + EXTRA).saturating_sub(open);
    usize::try_from(fits).unwrap_or(usize::MAX)
}

/// Finds connections that must be closed for lack of descriptors, and logs that there are some.
#[derive(Debug, Default)]
pub(crate) struct DescriptorWatch {
    logged: Option<Instant>,
}

impl DescriptorWatch {
    /// Returns true if a new connection's descriptor is reserved for files. `control`: whether the
    /// connection is one of the control socket.
    pub(crate) fn is_reserved(&mut self, connection: impl AsFd, control: bool) -> bool {
        // An administrator can change the limit of a running process.
        let limit = limit();
        let reserve = if control { RESERVE / 2 } else { RESERVE };
        let reserved = is_last(connection.as_fd().as_raw_fd(), limit, reserve);
        if reserved && self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            tracing::warn!(
                "new connections are closed: the last {RESERVE} of {limit} file descriptors are for files (`ulimit -n`, LimitNOFILE=)"
            );
        }
        reserved
    }
}

fn is_last(descriptor: i32, limit: u64, reserve: u64) -> bool {
    u64::try_from(descriptor).is_ok_and(|number| number >= limit.saturating_sub(reserve))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_1_last_descriptors_are_reserved() {
        assert!(!is_last(191, 256, 64) && is_last(192, 256, 64) && is_last(255, 256, 64));
        assert!(is_last(0, 10, 64) && !is_last(i32::MAX, u64::MAX, 64));
    }

    #[test]
    fn invariant_2_connections_fit_below_the_reserve() {
        assert_eq!([connections(256, 20), connections(116, 20), connections(50, 20)], [140, 0, 0]);
        assert_eq!(connections(u64::MAX, 0), usize::MAX - 96);
    }
}
