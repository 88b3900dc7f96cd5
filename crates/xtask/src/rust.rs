//! The compiler and where Cargo builds, for commands that build with flags of their own.

use clearway_harness::{Res, process, tools};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Returns Cargo's target directory. It is absolute, because compilers and servers run in other
/// directories.
pub fn target_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    tools::repository_root().join(target)
}

/// Returns the host's triple.
pub fn host() -> Res<String> {
    let text = rustc(&["-vV"])?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| "rustc -vV does not name the host".into())
}

/// Returns what the compiler that this repository selects prints.
pub fn rustc(args: &[&str]) -> Res<String> {
    let mut command = Command::new("rustc");
    command.args(args).current_dir(tools::repository_root());
    process::run(&mut command, "", LIMIT)?.success("rustc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_names_the_host() {
        assert!(host().is_ok_and(|host| host.contains('-')));
        assert!(target_directory().is_absolute());
    }
}
