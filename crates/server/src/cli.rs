//! The command line: what the program can be asked to do. The flags of `serve` are settings, and so
//! in [`crate::config`].

use crate::config::{Flags, Size};
use crate::top::TopFlags;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "clearway",
    version,
    about = "An OLTP database that speaks PostgreSQL's protocol, and in which no lock is the bottleneck.",
    after_help = crate::exit::TABLE
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the server until SIGINT, SIGTERM or SIGHUP.
    #[command(after_help = crate::exit::TABLE)]
    Serve(Box<Flags>),
    /// Copies a database to a new directory, checking all that it copies.
    Backup(BackupFlags),
    /// Makes a data directory of a backup, checking all that it copies.
    Restore(RestoreFlags),
    /// Verifies a data directory that no server has, without changing it: every page, tree, free
    /// list, row, index, and the log.
    Check(CheckFlags),
    /// Shows what a running server waits for and what it does, as long as you look.
    Top(TopFlags),
}

/// What `check` exits with.
const CHECK_STATUS: &str = "\
Each finding is one line on standard output: damage or note, file, page, offset, what was
expected and what was found. Progress goes to standard error. A directory that was not shut down
is checked as its next start would recover it; it is not changed itself.

Exit codes:
   0  sound; there may be notes, of things that the next start mends
   1  another failure
   2  the command line is wrong
   4  a server has the directory: it was not checked
   5  it is not a data directory, or of another version: it was not checked
   6  permission denied: it was not checked
   7  no room for the scratch file: it was not checked
   8  the disk failed: it was not checked
   9  damage was found";

/// Flags of `check`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = CHECK_STATUS)]
pub struct CheckFlags {
    /// The data directory
    pub dir: PathBuf,
    /// Memory for keys; nodes beyond it are read a second time
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub memory: Size,
    /// Where a scratch file may grow, by the pages that a recovery changes [default: the system's
    /// temporary directory]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// What `backup` and `restore` exit with.
const BACKUP_STATUS: &str = "Exit codes:
   0  done
   1  another failure
   2  the command line is wrong
   4  a server has the directory, or another backup is being taken
   5  the target is there already, or the source is not what it should be
   6  permission denied, or the file system is read-only
   7  no room at the target
   8  the disk failed
   9  database or backup are damaged: nothing that is damaged is copied";

/// Flags of `backup`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = BACKUP_STATUS)]
pub struct BackupFlags {
    /// The data directory
    pub dir: PathBuf,
    /// Where the backup is to be; must not exist, or be an empty directory
    pub target: PathBuf,
    /// Bytes a second at most, as 100MiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub rate: Option<Size>,
}

/// Flags of `restore`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = BACKUP_STATUS)]
pub struct RestoreFlags {
    /// The backup
    pub backup: PathBuf,
    /// The new data directory; must not exist, or be an empty directory
    #[arg(required_unless_present = "verify")]
    pub dir: Option<PathBuf>,
    /// Only check the backup
    #[arg(long, conflicts_with = "dir")]
    pub verify: bool,
}

/// The arguments with `-` for `_` in the names of flags: the configuration file has the one, the
/// command line the other, and both take both.
pub fn with_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut flags = true;
    let dashed = move |argument: OsString| {
        flags &= argument != "--";
        match argument.to_str().filter(|text| flags && text.starts_with("--")) {
            Some(text) => {
                let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                format!("{}{value}", name.replace('_', "-")).into()
            }
            None => argument,
        }
    };
    arguments.into_iter().map(dashed).collect()
}

fn rate(text: &str) -> Result<Size, String> {
    text.parse().and_then(|size: Size| {
        if size.0 > 0 { Ok(size) } else { Err("a rate must be above 0".to_owned()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_take_underscores_for_dashes() {
        let given = [
            "clearway",
            "serve",
            "--buffer_pool",
            "2MiB",
            "--log_segment=1_MiB",
            "a_b",
            "--",
            "--c_d",
        ];
        let want = [
            "clearway",
            "serve",
            "--buffer-pool",
            "2MiB",
            "--log-segment=1_MiB",
            "a_b",
            "--",
            "--c_d",
        ];
        assert_eq!(with_dashes(given.map(OsString::from)), want);
    }
}
