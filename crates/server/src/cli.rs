//! The command line. The flags of `serve` are settings and therefore defined in [`crate::config`].

use crate::config::{Flags, Size};
use crate::top::TopFlags;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Columns of the help texts. Texts after the flags are tables and are therefore wrapped by hand:
/// clap would break the indentation of a longer line.
const HELP_WIDTH: usize = 80;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "clearway",
    version,
    about = "An OLTP database that speaks PostgreSQL's protocol, built to avoid lock and latch bottlenecks.",
    max_term_width = HELP_WIDTH,
    after_help = crate::exit::TABLE
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the server until it receives SIGINT, SIGTERM or SIGHUP. SIGHUP stays ignored if it is
    /// ignored at the start, as by nohup.
    #[command(after_help = crate::exit::TABLE)]
    Serve(Box<Flags>),
    /// Copies a database to a new directory and verifies every page. The server may be running.
    Backup(BackupFlags),
    /// Creates a data directory from a backup and verifies every page.
    Restore(RestoreFlags),
    /// Verifies the pages, trees, free lists, rows, indexes and log of a data directory without
    /// changing it. No server may have the directory open.
    Check(CheckFlags),
    /// Shows the activity of a running server and what its threads and sessions wait for.
    Top(TopFlags),
}

/// The exit status of `check`.
const CHECK_STATUS: &str = "\
Each finding is one line on standard output: damage or note, file, page,
offset, and what was expected and found. Progress goes to standard error. A
directory that was not shut down cleanly is checked in the state that its next
start would recover; the directory itself is not changed.

Exit codes:
   0  sound; there may be notes about things that the next start repairs
   1  any other failure
   2  the command line is wrong
   4  a server has the directory open; nothing was checked
   5  not a data directory, or of another version; nothing was checked
   6  permission denied; nothing was checked
   7  no space for the scratch file; nothing was checked
   8  the disk failed; nothing was checked
   9  damage was found";

/// Flags of `check`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = CHECK_STATUS)]
pub struct CheckFlags {
    /// The data directory
    pub dir: PathBuf,
    /// Memory for keys, in bytes or with KiB, MiB, GiB or TiB. Tree nodes that do not fit are read
    /// twice
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub memory: Size,
    /// Directory for a scratch file. It grows to the size of the pages that recovery changes
    /// [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// The exit status of `backup` and `restore`.
const BACKUP_STATUS: &str = "Exit codes:
   0  done
   1  any other failure
   2  the command line is wrong
   4  a server has the directory open, or another backup is running
   5  the target is not empty, or the source is not a database or backup
   6  permission denied, or the file system is read-only
   7  no space at the target
   8  the disk failed
   9  the database or the backup is damaged: nothing damaged is copied";

/// Flags of `backup`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = BACKUP_STATUS)]
pub struct BackupFlags {
    /// The data directory
    pub dir: PathBuf,
    /// Directory for the backup; must be empty (except for `lost+found`) or not exist. A running
    /// server writes it itself, so it needs permission to do that
    pub target: PathBuf,
    /// Maximum rate in bytes per second, or with KiB, MiB, GiB or TiB; above 0 [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub rate: Option<Size>,
}

/// Flags of `restore`.
#[derive(Debug, Args)]
#[command(next_line_help = true, after_help = BACKUP_STATUS)]
pub struct RestoreFlags {
    /// The backup's directory
    pub backup: PathBuf,
    /// The new data directory; must be empty (except for `lost+found`) or not exist
    #[arg(required_unless_present = "verify")]
    pub dir: Option<PathBuf>,
    /// Verify the backup without restoring it
    #[arg(long, conflicts_with = "dir")]
    pub verify: bool,
}

/// Replaces `_` by `-` in the names of flags. The configuration file uses underscores and the
/// command line uses dashes; both accept both.
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
        if size.0 > 0 { Ok(size) } else { Err("the rate must be above 0".to_owned()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Checks that clap wraps no line of a text after the flags, which would break its table.
    #[test]
    fn every_help_fits_80_columns() {
        use clap::CommandFactory;
        let mut cli = Cli::command();
        cli.build();
        let mut commands: Vec<_> = cli.get_subcommands().cloned().collect();
        commands.push(cli);
        for mut command in commands {
            let name = command.get_name().to_owned();
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for help in [command.render_help(), command.render_long_help()] {
                let lines: Vec<String> = help.to_string().lines().map(str::to_owned).collect();
                assert!(lines.len() > 5, "{name}: {help}");
                for line in &lines {
                    assert!(line.chars().count() <= HELP_WIDTH, "{name}: {line}");
                }
                for line in after.lines() {
                    assert!(lines.iter().any(|shown| shown == line), "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn flags_accept_underscores() {
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
