//! The files that tidy reads: everything in the tree that could be committed and is text.

use clearway_harness::Res;
use std::path::Path;
use std::process::Command;

/// Paths, relative to `root`, of tracked and of new files that git does not ignore; binary fixtures
/// left out.
pub fn text_files(root: &Path) -> Res<Vec<String>> {
    let mut command = Command::new("git");
    // A checkout may belong to another user than the one that CI runs as.
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
