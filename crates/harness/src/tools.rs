//! Finds PostgreSQL's client tools and server, and reports clearly if they are missing.

use crate::{Res, process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum time for a program to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// Returns the full path of `pgbench`, `psql`, `initdb` or `postgres`. Searches Debian's versioned
/// directories first, newest first (there is no wrapper script in between), then `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|d| Some((d.file_name().to_str()?.parse().ok()?, d.path().join("bin"))))
        .collect();
    versions.sort_unstable_by_key(|v| std::cmp::Reverse(v.0));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let rest: Vec<PathBuf> = std::env::split_paths(&path).collect();
    versions.into_iter().map(|v| v.1).chain(rest).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// Like [`find`], but returns an error with advice if the tool is missing.
pub fn need(name: &str) -> Res<PathBuf> {
    find(name).ok_or_else(|| {
        format!("`{name}` is not installed; on Debian: apt-get install postgresql (see .ci/run)")
    })
}

/// Returns true if [`find`] finds a PostgreSQL 15 that is complete enough to start a server.
pub fn has_postgres_15() -> bool {
    let (Some(postgres), Some(_)) = (find("postgres"), find("initdb")) else { return false };
    let version = process::run(Command::new(postgres).arg("--version"), "", VERSION_LIMIT);
    version.is_ok_and(|version| version.output.contains("(PostgreSQL) 15."))
}

/// Returns true if no check may be skipped: `CI` is set to anything except empty, `0` or `false`.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"))
}

/// A directory below the system's temporary directory, removed on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory named `clearway-<what>-...`. Other users may enter it, since PostgreSQL
    /// may run as another user.
    pub fn new(what: &str) -> Res<Self> {
        let name = format!(
            "clearway-{what}-{}-{:08x}",
            std::process::id(),
            clearway_testkit::Rng::fresh_seed() as u32
        );
        let path = std::env::temp_dir().join(name);
        let open = std::fs::Permissions::from_mode(0o755);
        let made =
            std::fs::create_dir_all(&path).and_then(|()| std::fs::set_permissions(&path, open));
        made.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Keeps the directory for inspection and returns its path.
    pub fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the root of the repository that this binary was built from.
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns a command for the Cargo that started us, or the one in `PATH`, in the repository root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository_root());
    command
}

/// Builds the release server in the target directory of this binary and returns its path.
pub fn build_server() -> Res<PathBuf> {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    // <target>/<profile>/<this binary>
    let target = here.ancestors().nth(2).ok_or("this binary has no target directory above it")?;
    let mut command = cargo();
    command.args(["build", "--release", "-p", "clearway-server", "--target-dir"]).arg(target);
    let status = command.status().map_err(|e| format!("cargo build: {e}"))?;
    if status.success() {
        Ok(target.join("release/clearway"))
    } else {
        Err(format!("cargo build: {status}"))
    }
}
