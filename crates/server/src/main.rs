//! `clearway`: reads the configuration, runs the server, waits for a signal.

#![forbid(unsafe_code)]

use clap::Parser;
use clearway_server::config::{Cli, Command};
use clearway_server::{Config, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// How often the log is asked whether it still works.
const WATCH: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let Command::Serve(flags) = Cli::parse().command;
    match Config::load(*flags).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("clearway: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log_filter).map_err(|e| format!("log_filter: {e}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let stop = signals()?;
    let server = Server::start(config)?;
    println!("{}", server.banner());
    while let Err(mpsc::RecvTimeoutError::Timeout) = stop.recv_timeout(WATCH) {
        if let Some(why) = server.failed() {
            // A failed fsync is never retried: what is on disk is decided by the next start's recovery.
            tracing::error!("{why}");
            std::process::exit(1);
        }
    }
    tracing::info!("stopping");
    server.stop();
    Ok(())
}

/// A channel that says something at the first SIGINT or SIGTERM; the second ends the process at once.
fn signals() -> Result<mpsc::Receiver<()>, String> {
    let (tell, stop) = mpsc::channel();
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(|e| format!("cannot handle signals: {e}"))?;
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
