//! Where a test's server runs: a temporary directory, or a small file system of its own.

use clearway_harness::process::{self, Finished};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum running time of a program.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The server's binary.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_clearway"))
}

/// Runs a program to completion.
pub fn run(command: &mut Command) -> Finished {
    process::run(command, "", LIMIT).unwrap()
}

/// Returns true if the test may mount file systems and become another user.
pub fn is_root() -> bool {
    run(Command::new("id").arg("-u")).output.trim() == "0"
}

/// Runs a program that only some systems have or permit. Returns false, and prints a line, if it
/// fails.
pub fn is_available(test: &str, command: &mut Command) -> bool {
    let why = match process::run(command, "", LIMIT) {
        Ok(done) if done.status.success() => return true,
        Ok(done) => format!("{command:?}: {} {}", done.status, done.output.trim()),
        Err(e) => e,
    };
    println!("SKIPPED {test}: {why}");
    false
}

/// A directory for one test.
pub struct Place {
    path: PathBuf,
    mounted: bool,
}

impl Place {
    pub fn new(name: &str) -> Self {
        // With a developer's umask the group might be able to write to the test's files, which
        // servers refuse.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let path =
            std::env::temp_dir().join(format!("clearway-faults-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path, mounted: false }
    }

    /// Mounts a file system in memory with these options. Returns `None`, and prints a line, if the
    /// test may not mount.
    pub fn mount(name: &str, options: &str) -> Option<Self> {
        if !is_root() {
            println!("SKIPPED {name}: mounting a file system requires root");
            return None;
        }
        let mut place = Self::new(name);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "clearway-test"]).arg(&place.path);
        let done = run(&mut mount);
        if !done.status.success() {
            println!("SKIPPED {name}: {}", done.output.trim());
            return None;
        }
        place.mounted = true;
        Some(place)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            // An error cannot be reported while dropping; the mount stays visible.
            let _ = process::run(Command::new("umount").arg("-l").arg(&self.path), "", LIMIT);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
