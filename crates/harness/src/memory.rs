//! Memory limits for a server, by Linux memory control groups, version 2 or 1.
//!
//! A group is charged for the memory of all its processes, and for cached file pages that they
//! touched first. A server is therefore moved into its group before it runs, and loads its own
//! tables there.
//!
//! 1. A group is created as close below ours as the system allows, so it stays within every limit
//!    that applies to us.
//! 2. Only a group created here is removed, and only its processes are killed.
//!
//! If this process is killed, an empty group remains.

use crate::Res;
use crate::process::{self, signal};
use clearway_testkit::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum time for the processes of a group to end after they are killed.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Moves the shell into the group whose `cgroup.procs` is `$0`, then executes its arguments.
const ENTER: &str = r#"echo $$ > "$0" && exec "$@""#;

/// The control group interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One = 1,
    Two = 2,
}

impl Version {
    /// Returns the name of the file with the limit.
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Returns the `memory.stat` names of cached file pages (shared memory included) and of shared
    /// memory.
    fn cached(self) -> [&'static str; 2] {
        match self {
            Self::One => ["cache", "shmem"],
            Self::Two => ["file", "shmem"],
        }
    }
}

/// A memory limit that this system can enforce.
#[derive(Clone, Debug)]
pub struct Limit {
    bytes: u64,
    version: Version,
    parent: PathBuf,
}

/// A control group for one server. Dropping it kills the remaining processes and removes the group.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

impl Limit {
    /// Creates a limit for servers whose files are in `files`. The error says why that is
    /// impossible.
    pub fn new(bytes: u64, files: &Path) -> Res<Self> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let holder =
            mounts.iter().filter(|m| files.starts_with(m.point)).max_by_key(|m| m.point.len());
        if let Some(kind) = holder.map(|m| m.kind).filter(|kind| ["tmpfs", "ramfs"].contains(kind))
        {
            return Err(format!("{} is on an in-memory file system ({kind})", files.display()));
        }
        let mut refused = "the system has no memory control groups that we can see".to_owned();
        for (version, parent) in parents(&mounts, &groups) {
            let limit = Self { bytes, version, parent };
            let entered = limit.group().and_then(|group| {
                process::run(&mut group.enter(&Command::new("true")), "", END_LIMIT)?
                    .success("enter a control group")
            });
            match entered {
                Ok(_) => return Ok(limit),
                Err(why) => refused = why,
            }
        }
        Err(refused.trim_end().to_owned())
    }

    /// Returns the version of the interface, for tables.
    pub fn version(&self) -> u32 {
        self.version as u32
    }

    /// Creates a group with this limit.
    pub fn group(&self) -> Res<MemoryGroup> {
        let name = format!("clearway-{}-{:08x}", std::process::id(), Rng::fresh_seed() as u32);
        let path = self.parent.join(name);
        fs::create_dir(&path)
            .map_err(|e| format!("cannot create a group in {}: {e}", self.parent.display()))?;
        let group = MemoryGroup { path, version: self.version };
        let file = group.path.join(self.version.limit());
        fs::write(&file, self.bytes.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(group)
    }
}

impl MemoryGroup {
    /// Returns the same command, run inside the group from its first instruction.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", ENTER])
            .arg(self.processes())
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }

    /// Returns the bytes of page cache charged to the group.
    pub fn page_cache(&self) -> Option<u64> {
        cached(&fs::read_to_string(self.path.join("memory.stat")).ok()?, self.version)
    }

    fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_LIMIT;
        // The group can be removed only after its last process has ended.
        while let Err(why) = fs::remove_dir(&self.path) {
            if Instant::now() > deadline {
                eprintln!("cannot remove {}: {why}", self.path.display());
                return;
            }
            let left = fs::read_to_string(self.processes()).unwrap_or_default();
            for process in left.lines().filter_map(|line| line.parse().ok()) {
                // An error means that the process has already ended.
                let _ = signal(process, "KILL");
            }
            std::thread::yield_now();
        }
    }
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    /// Root of the mount within the file system.
    root: &'a str,
    /// Mount point.
    point: &'a str,
    kind: &'a str,
    /// File system options.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' ').skip(3), system.split(' '));
        let (root, point) = (mount.next()?, mount.next()?);
        Some(Self { root, point, kind: system.next()?, options: system.nth(1)? })
    }

    /// Returns the directory of the group `name`.
    fn group(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new(self.point).join(Path::new(name).strip_prefix(self.root).ok()?))
    }
}

/// Returns candidate parents of our groups, nearest first. `groups` is the content of
/// `/proc/self/cgroup`.
fn parents(mounts: &[Mount<'_>], groups: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(name)) = (fields.next(), fields.next()) else { continue };
        let memory = |list: &str| list.split(',').any(|option| option == "memory");
        let version = if controllers.is_empty() { Version::Two } else { Version::One };
        let ours = match version {
            Version::One if !memory(controllers) => continue,
            Version::One => mounts.iter().find(|m| m.kind == "cgroup" && memory(m.options)),
            Version::Two => mounts.iter().find(|m| m.kind == "cgroup2"),
        };
        let Some(group) = ours.and_then(|m| m.group(name)) else { continue };
        let top = ours.map_or("", |m| m.point);
        match version {
            Version::One => found.push((version, group)),
            // A group with processes of its own, like ours, cannot limit groups below it; one of
            // its ancestors may.
            Version::Two => {
                let above = group.ancestors().take_while(|above| above.starts_with(top));
                let limits = above.filter(|above| {
                    let list = fs::read_to_string(above.join("cgroup.subtree_control"))
                        .unwrap_or_default();
                    list.split_whitespace().any(|controller| controller == "memory")
                });
                found.extend(limits.map(|above| (version, above.to_owned())));
            }
        }
    }
    found
}

fn cached(stat: &str, version: Version) -> Option<u64> {
    let value = |name| {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
    };
    let [all, shared] = version.cached().map(value);
    Some(all?.saturating_sub(shared?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Running;
    use crate::tools::TempDir;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 /pod /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices";

    #[test]
    fn version_1_groups_are_found_below_their_mount() {
        let mounts: Vec<Mount<'_>> = MOUNTS.lines().filter_map(Mount::parse).collect();
        let found = parents(&mounts, "5:devices:/pod/a\n4:memory:/pod/a:b\n0::/");
        assert_eq!(found, [(Version::One, PathBuf::from("/sys/fs/cgroup/memory/a:b"))]);
        assert_eq!(parents(&mounts, "4:memory:/elsewhere"), []);
    }

    #[test]
    fn version_2_groups_are_below_a_limiting_ancestor() {
        let directory = TempDir::new("memory").unwrap();
        let top = directory.path().to_str().unwrap();
        let inner = directory.path().join("user/shell");
        fs::create_dir_all(&inner).unwrap();
        let line = format!("30 23 0:26 / {top} rw - cgroup2 cgroup2 rw,nsdelegate");
        let mounts = [Mount::parse(&line).unwrap()];
        assert_eq!(parents(&mounts, "0::/user/shell"), []);
        for (group, list) in
            [("", "cpu memory\n"), ("user", "memory pids\n"), ("user/shell", "memory.none\n")]
        {
            fs::write(directory.path().join(group).join("cgroup.subtree_control"), list).unwrap();
        }
        let found: Vec<PathBuf> =
            parents(&mounts, "0::/user/shell").into_iter().map(|p| p.1).collect();
        assert_eq!(found, [directory.path().join("user"), directory.path().to_owned()]);
    }

    #[test]
    fn page_cache_excludes_shared_memory() {
        assert_eq!(cached("cache 100\nrss 7\nshmem 30\ntotal_cache 900", Version::One), Some(70));
        assert_eq!(cached("anon 7\nfile 100\nfile_mapped 3\nshmem 30", Version::Two), Some(70));
        assert_eq!(cached("anon 7", Version::Two), None);
    }

    #[test]
    fn groups_limit_all_processes_and_are_removed() {
        let mebibyte = 1 << 20;
        let directory = TempDir::new("memory").unwrap();
        let limit = match Limit::new(32 * mebibyte, directory.path()) {
            Ok(limit) => limit,
            // Most users cannot create groups; the error must say so.
            Err(why) => return assert!(!why.is_empty()),
        };
        let group = limit.group().unwrap();
        let file = directory.path().join("file");
        let copy = format!(
            "head -c {} /dev/zero > {}; cat {1} > /dev/null; echo",
            64 * mebibyte,
            file.display()
        );
        // The group covers the shell's children and what they read and write.
        let mut command = Command::new("sh");
        command.args(["-c", &(copy + " $LEFT; sleep 60 & echo $!; wait")]).env("LEFT", "done");
        let mut running = Running::start(&mut group.enter(&command), "").unwrap();
        assert_eq!(running.line(Duration::from_secs(60)).unwrap().as_deref(), Some("done"));
        let cache = group.page_cache().unwrap();
        assert!((mebibyte..=32 * mebibyte).contains(&cache), "{cache}");
        let sleeper: u32 = running.line(END_LIMIT).unwrap().unwrap().parse().unwrap();
        let path = group.path.clone();
        running.kill();
        assert!(Path::new(&format!("/proc/{sleeper}")).exists());
        drop(group);
        assert!(!path.exists());
    }
}
