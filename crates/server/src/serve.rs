//! A process that is a server: its log, its signals, its end.

use crate::exit::{ExitCode, Failure};
use crate::{Config, Server};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// How often the log is asked whether it still works.
const WATCH: Duration = Duration::from_millis(200);

/// Runs the server until a signal ends it.
///
/// # Errors
/// Why it did not start, or did not stop cleanly. A server that has failed ends the process.
pub fn serve(config: Config) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log_filter)
        .map_err(|e| Failure::new(ExitCode::Usage, format!("log_filter: {e}")))?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .init();
    survive_file_limits()
        .map_err(|e| Failure::new(ExitCode::Other, format!("cannot handle signals: {e}")))?;
    let stop = signals().map_err(|message| Failure::new(ExitCode::Other, message))?;
    let server = Server::start(config)?;
    println!("{}", server.banner());
    while let Err(mpsc::RecvTimeoutError::Timeout) = stop.recv_timeout(WATCH) {
        if let Some(why) = server.failed() {
            // A failed fsync is never retried: what is on disk is decided by the next start's
            // recovery. Nothing is torn down either, which could wait for what will not come.
            let failure = Failure::stopped(why);
            eprintln!("clearway: {failure}");
            std::process::exit(failure.code as i32);
        }
    }
    tracing::info!("stopping");
    server.stop().map_err(Failure::stopped)?;
    tracing::info!("stopped");
    Ok(())
}

/// Lets a write beyond a limit on the size of files (`ulimit -f`) fail, as one on a full disk does;
/// by default it would kill the process without a word.
fn survive_file_limits() -> std::io::Result<()> {
    let exceeded = std::sync::Arc::default();
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), exceeded).map(drop)
}

/// A channel that says something at the first SIGINT, SIGTERM or SIGHUP; the second ends the
/// process at once. SIGHUP stops as the others do: it comes when the terminal is closed, and no
/// setting can be read anew while the server runs.
fn signals() -> Result<mpsc::Receiver<()>, String> {
    let (tell, stop) = mpsc::channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
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
