//! `clearway backup` and `clearway restore`: terminal output and exit status.

use crate::cli::{BackupFlags, RestoreFlags};
use crate::client::Reply;
use crate::config::Size;
use crate::control;
use crate::exit::{ExitCode, ExitFailure, NOT_A_SOURCE};
use crate::output;
use clearway_coordinator::copy_of::{self, BackupError, BackupProgress, BackupReport, Manifest};
use clearway_coordinator::{OpenError, OpenErrorKind, Pace};
use clearway_env::{Disk, OsDisk};
use clearway_types::{Lsn, SqlError, SqlState};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two progress lines.
const INTERVAL: Duration = Duration::from_secs(1);

fn failure(error: &BackupError) -> ExitFailure {
    let hint = match (error, error.kind()) {
        (BackupError::Source(_), OpenErrorKind::Refused) => Some(NOT_A_SOURCE),
        _ => error.hint(),
    };
    ExitFailure { hint, ..ExitFailure::open(error.to_string(), error.kind()) }
}

/// Prints progress to standard error, at most once per [`INTERVAL`].
struct ProgressPrinter {
    what: &'static str,
    last: Instant,
}

impl ProgressPrinter {
    fn new(what: &'static str) -> Self {
        Self { what, last: Instant::now() }
    }

    fn step(&mut self, progress: BackupProgress) {
        if self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            let [done, total] = [progress.done, progress.total].map(size);
            output::report(format_args!("{}: {done} of {total}", self.what));
        }
    }
}

fn size(bytes: u64) -> String {
    if bytes < 10 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// Blocks for this long.
fn wait(how_long: Duration) {
    let until = Instant::now() + how_long;
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

fn done(what: &str, report: &BackupReport, began: Instant) -> Result<(), ExitFailure> {
    let BackupReport { bytes, begin, end } = report;
    let (size, took) = (size(*bytes), began.elapsed().as_secs_f64());
    output::print(format_args!("{what}: {size}, log {begin} to {end}, {took:.1} s"))
}

/// Returns true if a copy at `target` would be inside `dir`, after following symbolic links.
/// `target` need not exist.
pub(crate) fn is_inside(dir: &Path, target: &Path) -> bool {
    let real = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let there = path.ancestors().find_map(|at| Some((at, at.canonicalize().ok()?)));
        // A path component that does not exist cannot be a link.
        there.map_or(path.clone(), |(at, real)| {
            path.strip_prefix(at).map_or(real.clone(), |rest| real.join(rest))
        })
    };
    real(target).starts_with(real(dir))
}

fn refuse_inside(dir: &Path, target: &Path) -> Result<(), ExitFailure> {
    if is_inside(dir, target) {
        let message = format!(
            "{} is inside {}: a copy needs its own directory",
            target.display(),
            dir.display()
        );
        return Err(ExitFailure {
            hint: Some("Choose another target."),
            ..ExitFailure::new(ExitCode::Refused, message)
        });
    }
    Ok(())
}

/// Runs `clearway backup DIR TARGET`.
pub fn backup(flags: &BackupFlags) -> Result<(), ExitFailure> {
    let began = Instant::now();
    refuse_inside(&flags.dir, &flags.target)?;
    let (pace, mut printer) =
        (Pace::new(flags.rate.map(|rate| rate.0)), ProgressPrinter::new("copied"));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let taken = copy_of::take_offline(
        disk,
        &flags.dir,
        &flags.target,
        env!("CARGO_PKG_VERSION"),
        &mut |progress| {
            printer.step(progress);
            if let Some(how_long) = pace.wait(progress.done) {
                wait(how_long);
            }
            ControlFlow::Continue(())
        },
    );
    let report = match taken {
        Err(BackupError::Source(OpenError::InUse(_))) => {
            let report = from_server(flags)?;
            check_target(&flags.target, &report)?;
            report
        }
        taken => taken.map_err(|e| failure(&e))?,
    };
    done("backup complete", &report, began)
}

/// Asks the server that has the directory open to take the backup.
fn from_server(flags: &BackupFlags) -> Result<BackupReport, ExitFailure> {
    let other = |message: String| ExitFailure::new(ExitCode::Other, message);
    let target = std::path::absolute(&flags.target)
        .map_err(|e| other(format!("{}: {e}", flags.target.display())))?;
    let target =
        target.to_str().ok_or_else(|| other(format!("{} is not UTF-8", target.display())))?;
    let mut sql = format!("BACKUP TO '{}'", target.replace('\'', "''"));
    if let Some(Size(rate)) = flags.rate {
        sql = format!("{sql} RATE {rate}");
    }
    let mut row = Vec::new();
    let answer = control::run(&flags.dir, &sql, &mut |reply| match reply {
        Reply::Notice(text) => output::report(text),
        Reply::Row(values) => row = values,
    });
    let dir = flags.dir.display();
    match answer {
        Ok(Ok(())) => {}
        Ok(Err(e)) => return Err(refused(&e)),
        Err(e) => {
            let message = format!("{dir} is in use, and its server cannot be reached: {e}");
            let hint = "Run this command on the same machine, as the user that the server runs as; or stop the server first.";
            return Err(ExitFailure {
                hint: Some(hint),
                ..ExitFailure::new(ExitCode::InUse, message)
            });
        }
    }
    match row.iter().map(|value| value.parse()).collect::<Result<Vec<u64>, _>>().as_deref() {
        Ok([bytes, begin, end, _]) => {
            Ok(BackupReport { bytes: *bytes, begin: Lsn(*begin), end: Lsn(*end) })
        }
        _ => Err(other(format!("the server sent an invalid answer: {row:?}"))),
    }
}

/// Checks that this process sees the backup that the server reported at `target`. A server in a
/// container, or with a private `/tmp`, has other directories under the same names.
fn check_target(target: &Path, report: &BackupReport) -> Result<(), ExitFailure> {
    let path = target.join("manifest");
    let shown = path.display();
    let reported = (report.bytes, report.begin, report.end);
    let seen = match std::fs::read(&path) {
        Ok(bytes) => match Manifest::parse(&bytes) {
            Ok(seen) if (seen.bytes(), seen.begin, seen.end) == reported => return Ok(()),
            Ok(_) => format!("{shown} belongs to another backup"),
            Err(why) => format!("{shown} is not its manifest: {why}"),
        },
        // The server may run as another user.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => format!("{shown} is not there"),
        Err(e) => format!("{shown} cannot be read: {e}"),
    };
    let hint = "The server sees other files than this command, as in a container or with systemd's PrivateTmp=. Choose a directory that both see.";
    let message = format!("the server reports a complete backup, but {seen}");
    Err(ExitFailure { hint: Some(hint), ..ExitFailure::new(ExitCode::Other, message) })
}

/// Maps the server's error to an exit status.
fn refused(error: &SqlError) -> ExitFailure {
    let code = match error.state() {
        SqlState::OBJECT_IN_USE => ExitCode::InUse,
        SqlState::DUPLICATE_FILE | SqlState::INVALID_PARAMETER => ExitCode::Refused,
        SqlState::INSUFFICIENT_PRIVILEGE => ExitCode::Access,
        SqlState::DISK_FULL => ExitCode::Full,
        SqlState::IO => ExitCode::Disk,
        SqlState::DATA_CORRUPTED => ExitCode::Damaged,
        _ => ExitCode::Other,
    };
    let hint = error.get_hint().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
    ExitFailure::new(code, format!("{error}{hint}"))
}

/// Runs `clearway restore BACKUP DIR`.
pub fn restore(flags: &RestoreFlags) -> Result<(), ExitFailure> {
    let began = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let mut printer = ProgressPrinter::new(if flags.verify { "checked" } else { "copied" });
    let mut step = |progress| {
        printer.step(progress);
        ControlFlow::Continue(())
    };
    if let Some(dir) = &flags.dir {
        refuse_inside(&flags.backup, dir)?;
    }
    let (what, result) = match &flags.dir {
        Some(dir) => ("restored", copy_of::restore(disk, &flags.backup, dir, &mut step)),
        None => ("backup is complete and sound", copy_of::verify(disk, &flags.backup, &mut step)),
    };
    done(what, &result.map_err(|e| failure(&e))?, began)
}
