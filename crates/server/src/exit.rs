//! Exit codes, and the messages that go with them.
//!
//! Each code tells the operator, or the operator's scripts, what to do next. Most failed starts
//! would fail again; a server that stopped itself ([`ExitCode::Failed`]) can be started again.

use clearway_coordinator::OpenErrorKind;
use std::fmt;

/// The exit codes other than 0, which means: stopped on request, after a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// A failure without a code of its own.
    Other = 1,
    /// The command line or the configuration file is wrong; also clap's code.
    Usage = 2,
    /// The server cannot listen on the address or socket.
    Listen = 3,
    /// Another server has the directory open.
    InUse = 4,
    /// The directory is not Clearway's, of another version, or created with other settings.
    Refused = 5,
    /// Permission is denied, other users may write, or the file system is read-only.
    Access = 6,
    /// The file system has no space for the start.
    Full = 7,
    /// The disk failed during the start.
    Disk = 8,
    /// Data or log are damaged.
    Damaged = 9,
    /// The running server stopped itself: a write of log or data failed, or a thread panicked.
    Failed = 10,
}

/// The table of exit codes, for `--help`.
pub const TABLE: &str = "Exit codes of serve:
   0  stopped by SIGINT, SIGTERM or SIGHUP, after a checkpoint
   1  any other failure
   2  the command line or the configuration file is wrong
   3  the server cannot listen on the address or socket
   4  another server has the data directory open
   5  the data directory is not Clearway's, of another version, or created with
      other settings
   6  permission denied, data directory writable by other users, or file system
      read-only
   7  the file system is full: no committed data is lost; free space and start
      again
   8  the disk failed during the start
   9  data or log are damaged: keep a copy, restore from a backup
  10  the server stopped itself because a write of log or data failed or a
      thread panicked: start it again to recover";

/// The hint of `check` and `backup` if they cannot use the directory that they are to read.
pub(crate) const NOT_A_SOURCE: &str =
    "Nothing was changed. Name the data directory of a server, and use the release that wrote it.";

/// Why the process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitFailure {
    /// The exit code.
    pub code: ExitCode,
    /// What went wrong, in one line.
    pub message: String,
    /// What the operator can do about it.
    pub hint: Option<&'static str>,
}

impl ExitFailure {
    /// Creates a failure without a hint.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// Creates the failure of a start that could not open the data directory.
    pub(crate) fn open(message: String, kind: OpenErrorKind) -> Self {
        let code = match kind {
            OpenErrorKind::InUse => ExitCode::InUse,
            OpenErrorKind::Refused => ExitCode::Refused,
            OpenErrorKind::Access | OpenErrorKind::Shared => ExitCode::Access,
            OpenErrorKind::Full => ExitCode::Full,
            OpenErrorKind::Disk => ExitCode::Disk,
            OpenErrorKind::Damaged => ExitCode::Damaged,
            OpenErrorKind::Panicked => ExitCode::Other,
        };
        Self { code, message, hint: Some(kind.hint()) }
    }

    /// Creates the failure of a start during which a thread panicked.
    pub(crate) fn panicked(doing: &str, message: &str) -> Self {
        Self::open(format!("{doing}: a thread panicked: {message}"), OpenErrorKind::Panicked)
    }

    /// Creates the failure of a running server that cannot continue.
    pub fn stopped(message: impl Into<String>) -> Self {
        let hint = "No further commit was acknowledged; the next start recovers all committed data. A panic is a bug: please report it. \
                    Otherwise look for disk errors in the system log.";
        Self { hint: Some(hint), ..Self::new(ExitCode::Failed, message) }
    }
}

impl fmt::Display for ExitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for ExitFailure {}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
