//! `clearway check`: terminal output and exit status.

use crate::cli::CheckFlags;
use crate::exit::{ExitCode, ExitFailure, NOT_A_SOURCE};
use crate::output;
use clearway_coordinator::{
    CheckOptions, CheckProgress, CheckReport, FINDINGS, Finding, OpenError, OpenErrorKind,
};
use clearway_env::{Disk, File, Open, OsDisk};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two progress lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes per page, for rates.
const PAGE: u64 = 8192;

/// Prints findings to standard output as they occur, and progress to standard error.
struct ProgressPrinter {
    began: Instant,
    last: Instant,
    /// The first failure of the output. The check continues: its result is the exit status.
    printed: Result<(), ExitFailure>,
}

impl CheckProgress for ProgressPrinter {
    fn pages(&mut self, done: u64, of: u64) {
        if self.last.elapsed() < INTERVAL {
            return;
        }
        self.last = Instant::now();
        // Each page is counted twice; see `CheckProgress`.
        let rate = (done * PAGE) as f64 / self.began.elapsed().as_secs_f64() / f64::from(1 << 20);
        let (done, of) = (done / 2, of / 2);
        output::report(format_args!("checked: {done} of {of} pages ({rate:.0} MiB/s)"));
    }

    fn found(&mut self, finding: &Finding) {
        if self.printed.is_ok() {
            self.printed = output::print(finding);
        }
    }
}

/// Creates an unlinked file.
fn scratch(dir: &Path) -> io::Result<Arc<dyn File>> {
    let path = dir.join(format!("clearway-check-{}", std::process::id()));
    let file = OsDisk.open(&path, Open::Create)?;
    OsDisk.remove(&path)?;
    Ok(file)
}

fn no_scratch(dir: &Path, error: io::Error) -> ExitFailure {
    let doing = format!("cannot create a scratch file in {}", dir.display());
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ExitFailure {
            hint: Some("Name an existing directory with --scratch, or in TMPDIR."),
            ..ExitFailure::new(ExitCode::Usage, format!("{doing}: {error}"))
        },
        _ => failure(&OpenError::Io { doing, error }),
    }
}

/// Runs `clearway check DIR`.
pub fn check(flags: &CheckFlags) -> Result<(), ExitFailure> {
    let dir = flags.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let file = scratch(&dir).map_err(|error| no_scratch(&dir, error))?;
    let options = CheckOptions { memory: flags.memory.0 as usize, ..CheckOptions::new(file) };
    let began = Instant::now();
    let mut printer = ProgressPrinter { began, last: began, printed: Ok(()) };
    let report = clearway_coordinator::check(Arc::new(OsDisk), &flags.dir, options, &mut printer);
    let report = report.map_err(|error| failure(&error))?;
    let (summary, dir) = (summary(&report, began.elapsed()), flags.dir.display());
    let sound = report.storage.is_sound();
    let last = if sound { format!("\nsound: {dir}") } else { String::new() };
    let printed = printer.printed.and_then(|()| output::print(format_args!("{summary}{last}")));
    if sound {
        return printed;
    }
    let message = format!("{dir} is damaged: {} findings of damage", report.storage.damage);
    Err(ExitFailure::open(message, OpenErrorKind::Damaged))
}

fn failure(error: &OpenError) -> ExitFailure {
    let failure = ExitFailure::open(error.to_string(), error.kind());
    let hint = match error.kind() {
        OpenErrorKind::InUse => Some("Stop the server first, or check a restored backup."),
        OpenErrorKind::Refused => Some(NOT_A_SOURCE),
        _ => failure.hint,
    };
    ExitFailure { hint, ..failure }
}

fn summary(report: &CheckReport, took: Duration) -> String {
    let storage = &report.storage;
    let mut lines = Vec::new();
    let shown = storage.findings.len() as u64;
    if storage.damage + storage.notes > shown {
        lines.push(format!(
            "{} more findings are not listed, after the first {FINDINGS}",
            storage.damage + storage.notes - shown
        ));
    }
    match &storage.recovery {
        Some(recovery) if recovery.redone + recovery.undone > 0 => lines.push(format!(
            "not shut down cleanly: checked in the state that the next start recovers, {} log records redone, {} transactions undone",
            recovery.redone, recovery.undone
        )),
        _ => {}
    }
    lines.push(format!(
        "{} partitions, {} pages ({} free), {} trees, {} keys, {} tables, {} rows, {} bytes of log",
        storage.partitions,
        storage.pages,
        storage.free,
        storage.trees,
        storage.entries,
        report.tables,
        report.rows,
        storage.log_bytes
    ));
    if report.not_compared > 0 {
        lines.push(format!(
            "{} indexes could not be compared with their rows because of damage",
            report.not_compared
        ));
    }
    let rate = (storage.pages * PAGE) as f64 / took.as_secs_f64().max(1e-9) / f64::from(1 << 20);
    lines.push(format!(
        "{} indexes compared; {:.1} s, {rate:.0} MiB/s",
        report.indexes,
        took.as_secs_f64()
    ));
    lines.join("\n")
}
