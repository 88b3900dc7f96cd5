//! The files that tidy reads: every text file that is or could be committed.

use clearway_harness::Res;
use std::path::Path;
use std::process::Command;

/// Returns paths, relative to `root`, of tracked files and of new files that git does not ignore,
/// without binary fixtures.
pub fn text_files(root: &Path) -> Res<Vec<String>> {
    let mut command = Command::new("git");
    // The checkout may belong to another user than CI's.
    command.current_dir(root).args(["-c", "safe.directory=*"]);
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = command.output().map_err(|e| format!("git ls-files: {e}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let names = String::from_utf8(output.stdout).map_err(|e| e.to_string())?;
    let is_text =
        |name: &&str| !name.is_empty() && std::fs::read_to_string(root.join(name)).is_ok();
    Ok(names.split('\0').filter(is_text).map(String::from).collect())
}
