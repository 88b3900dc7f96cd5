//! The server process: its log output, its signals and its exit.

use crate::exit::{ExitCode, ExitFailure};
use crate::{Config, Server, output};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// How often the engine is checked for failure.
const WATCH: Duration = Duration::from_millis(200);

/// Runs the server until a signal stops it.
///
/// # Errors
/// Why the server did not start or did not stop cleanly. If the running server fails, the process
/// exits here.
pub fn serve(config: Config) -> Result<(), ExitFailure> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log_filter)
        .map_err(|e| ExitFailure::new(ExitCode::Usage, format!("log_filter: {e}")))?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        // It would report a failed write to standard error there, and panic when that fails, too.
        .log_internal_errors(false)
        .init();
    survive_file_limits()
        .map_err(|e| ExitFailure::new(ExitCode::Other, format!("cannot handle signals: {e}")))?;
    let stop = signals().map_err(|message| ExitFailure::new(ExitCode::Other, message))?;
    let server = Server::start(config)?;
    if let Err(failure) = output::print(server.banner()) {
        tracing::warn!("{}", failure.message);
    }
    while let Err(mpsc::RecvTimeoutError::Timeout) = stop.recv_timeout(WATCH) {
        if let Some(why) = server.failed() {
            // A failed fsync is never retried: the next start's recovery decides what is on disk.
            // No orderly shutdown either, since it could wait for I/O that never completes.
            let failure = ExitFailure::stopped(why);
            output::report(format_args!("clearway: {failure}"));
            std::process::exit(failure.code as i32);
        }
    }
    tracing::info!("stopping");
    server.stop().map_err(ExitFailure::stopped)?;
    tracing::info!("stopped");
    Ok(())
}

/// Makes a write beyond the limit on file sizes (`ulimit -f`) fail like a write to a full disk. By
/// default SIGXFSZ would kill the process silently.
fn survive_file_limits() -> std::io::Result<()> {
    let exceeded = std::sync::Arc::default();
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), exceeded).map(drop)
}

/// Returns true if the process ignores SIGHUP, as `nohup` arranges. `status`: /proc/self/status.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// Returns a channel that receives a message at the first SIGINT, SIGTERM or SIGHUP. The second
/// signal exits at once. SIGHUP stops the server too: it comes when the terminal is closed, and no
/// setting can be reloaded. If it is ignored at the start, it stays ignored.
fn signals() -> Result<mpsc::Receiver<()>, String> {
    let (tell, stop) = mpsc::channel();
    let mut handled = vec![SIGINT, SIGTERM];
    // Without /proc, a hang-up stops the server.
    if !ignores_hangup(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        handled.push(SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(handled)
        .map_err(|e| format!("cannot handle signals: {e}"))?;
    let watch = move || {
        for (earlier, _) in signals.forever().enumerate() {
            if earlier > 0 || tell.send(()).is_err() {
                std::process::exit(1);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_of_ignored_signals_is_read() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup("SigIgn:\tmany\n") && !ignores_hangup(""));
    }
}
