//! Where a test's server runs: a directory that goes with the test, or a small file system of its
//! own.

use clearway_harness::process::{self, Finished};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a program may run that a test waits for.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The server's binary.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_clearway"))
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Finished {
    process::run(command, "", LIMIT).unwrap()
}

/// Whether the test may mount file systems and become another user.
pub fn is_root() -> bool {
    run(Command::new("id").arg("-u")).output.trim() == "0"
}

/// A directory of the test's own.
pub struct Place {
    path: PathBuf,
    mounted: bool,
}

impl Place {
    pub fn new(name: &str) -> Self {
        // A developer's umask may let the group write to what tests make, and servers would refuse
        // it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let path =
            std::env::temp_dir().join(format!("clearway-faults-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path, mounted: false }
    }

    /// A file system in memory with these mount options. `None`, and a line that says so, if the
    /// test must not mount one.
    pub fn mount(name: &str, options: &str) -> Option<Self> {
        if !is_root() {
            println!("SKIPPED {name}: mounting a file system takes root");
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
            // What is left mounted would be seen by whoever looks; there is nobody to tell while
            // dropping.
            let _ = process::run(Command::new("umount").arg("-l").arg(&self.path), "", LIMIT);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
