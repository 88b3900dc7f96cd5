//! How a server ends: the exit codes, and what is said with them.
//!
//! Each code names what its operator, or the operator's scripts, can do next: most starts that fail
//! would fail again, a server that has stopped itself ([`ExitCode::Failed`]) may be started again.

use clearway_coordinator::OpenErrorKind;
use std::fmt;

/// The exit codes other than 0, which means: stopped when asked to, with a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Anything that has no code of its own.
    Other = 1,
    /// The command line or the configuration file is wrong (clap's code, too).
    Usage = 2,
    /// The address or the socket cannot be listened on.
    Listen = 3,
    /// Another server has the directory.
    InUse = 4,
    /// The directory is not ours, of another version, or made with other settings.
    Refused = 5,
    /// Permissions are wrong, of us or of others, or the file system is read-only.
    Access = 6,
    /// The file system has no room for the start.
    Full = 7,
    /// The disk failed at the start.
    Disk = 8,
    /// Data or log are damaged.
    Damaged = 9,
    /// The running server stopped itself: log or data could not be written, or a thread panicked.
    Failed = 10,
}

/// The table of exit codes, for `--help`.
pub const TABLE: &str = "Exit codes of serve:
   0  stopped by SIGINT, SIGTERM or SIGHUP, after a checkpoint
   1  another failure
   2  the command line or the configuration file is wrong
   3  the address or socket cannot be listened on
   4  another server has the data directory
   5  the data directory is not Clearway's, of another version, or made with other settings
   6  permission denied, others may write to the data directory, or the file system is read-only
   7  the file system is full: nothing committed is lost, free space and start again
   8  the disk failed at the start
   9  data or log are damaged: keep a copy, restore from a backup
  10  stopped by itself, because log or data could not be written or a thread panicked:
      start again to recover";

/// Why the server ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: ExitCode,
    /// What stands in the way, in one line.
    pub message: String,
    /// What can be done about it.
    pub hint: Option<&'static str>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// A data directory that could not be opened.
    pub(crate) fn open(message: String, hindrance: OpenErrorKind) -> Self {
        let code = match hindrance {
            OpenErrorKind::InUse => ExitCode::InUse,
            OpenErrorKind::Refused => ExitCode::Refused,
            OpenErrorKind::Access | OpenErrorKind::Shared => ExitCode::Access,
            OpenErrorKind::Full => ExitCode::Full,
            OpenErrorKind::Disk => ExitCode::Disk,
            OpenErrorKind::Damaged => ExitCode::Damaged,
            OpenErrorKind::Panicked => ExitCode::Other,
        };
        Self { code, message, hint: Some(hindrance.hint()) }
    }

    /// A panic of the start.
    pub(crate) fn panicked(doing: &str, message: &str) -> Self {
        Self::open(format!("{doing}: a thread panicked: {message}"), OpenErrorKind::Panicked)
    }

    /// The running server cannot go on.
    pub fn stopped(message: impl Into<String>) -> Self {
        let hint = "Nothing more was acknowledged; the next start recovers what was committed. A panic is a bug: please report it. \
                    Otherwise look into the system's log for errors of the disk.";
        Self { hint: Some(hint), ..Self::new(ExitCode::Failed, message) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Failure {}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
