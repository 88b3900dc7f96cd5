//! The commit of a checkout. Also part of the build script, which stores the commit that the lab is
//! built from.

use std::path::Path;
use std::process::Command;

/// Returns what a command of git prints about the checkout at `root`; `None` outside a checkout.
pub fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["-c", "safe.directory=*"]).args(arguments);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the commit of the checkout at `root`, with `-dirty` if tracked files have changes;
/// `unknown` outside a checkout.
pub fn describe(root: &Path) -> String {
    git(root, &["describe", "--always", "--dirty", "--abbrev=12"])
        .unwrap_or_else(|| "unknown".into())
}
