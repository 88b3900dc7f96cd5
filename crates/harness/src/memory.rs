//! A limit on the memory of a server: a memory control group of Linux, version 2 or 1.
//!
//! A group counts the memory of all its processes, and the cached pages of the files that they were
//! the first to touch. So a server is put into its group before it runs, and it fills its own
//! tables there.
//!
//! 1. A group lies as near below ours as the system allows, so that it escapes no limit that we are
//!    under.
//! 2. Only a group that was made here is removed, and only its processes are killed.
//!
//! If we are killed ourselves, an empty group stays behind.

use crate::process::{self, signal};
use crate::{Res, rng::Rng};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest that the processes of a group may take to end, once killed.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Moves the shell into the group whose list of processes is its name, and runs its arguments in
/// its place.
const ENTER: &str = r#"echo $$ > "$0" && exec "$@""#;

/// The two interfaces of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One = 1,
    Two = 2,
}

impl Version {
    /// The file that holds the limit.
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// What `memory.stat` calls the cached pages of files, shared memory included; and shared
    /// memory.
    fn cached(self) -> [&'static str; 2] {
        match self {
            Self::One => ["cache", "shmem"],
            Self::Two => ["file", "shmem"],
        }
    }
}

/// How much memory a server may have, on a system that can hold it to that.
#[derive(Clone, Debug)]
pub struct Limit {
    bytes: u64,
    version: Version,
    parent: PathBuf,
}

/// A group for one server. It ends with its value, and so do the processes that are still in it.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    version: Version,
}

impl Limit {
    /// A limit for servers whose files lie in `files`; an error says why there can be none.
    pub fn new(bytes: u64, files: &Path) -> Res<Self> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let holder =
            mounts.iter().filter(|m| files.starts_with(m.point)).max_by_key(|m| m.point.len());
        if let Some(kind) = holder.map(|m| m.kind).filter(|kind| ["tmpfs", "ramfs"].contains(kind))
        {
            return Err(format!("{} is in memory itself ({kind})", files.display()));
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

    /// Which interface it is held by, as tables show it.
    pub fn version(&self) -> u32 {
        self.version as u32
    }

    /// A new group with this limit.
    pub fn group(&self) -> Res<Group> {
        let name = format!("clearway-{}-{:08x}", std::process::id(), Rng::fresh_seed() as u32);
        let path = self.parent.join(name);
        fs::create_dir(&path)
            .map_err(|e| format!("no group can be made in {}: {e}", self.parent.display()))?;
        let group = Group { path, version: self.version };
        let file = group.path.join(self.version.limit());
        fs::write(&file, self.bytes.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(group)
    }
}

impl Group {
    /// The same command, run in the group from its first instruction on.
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

    /// Bytes of the system's page cache that it has at the moment.
    pub fn page_cache(&self) -> Option<u64> {
        cached(&fs::read_to_string(self.path.join("memory.stat")).ok()?, self.version)
    }

    fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_LIMIT;
        // It can be removed once its last process has ended, which takes a moment after the signal.
        while let Err(why) = fs::remove_dir(&self.path) {
            if Instant::now() > deadline {
                eprintln!("{} stays behind: {why}", self.path.display());
                return;
            }
            let left = fs::read_to_string(self.processes()).unwrap_or_default();
            for process in left.lines().filter_map(|line| line.parse().ok()) {
                // Gone already is what we want.
                let _ = signal(process, "KILL");
            }
            std::thread::yield_now();
        }
    }
}

/// One line of `/proc/self/mountinfo`.
struct Mount<'a> {
    /// The directory of the file system that is mounted.
    root: &'a str,
    /// Where.
    point: &'a str,
    kind: &'a str,
    /// Options of the file system.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' ').skip(3), system.split(' '));
        let (root, point) = (mount.next()?, mount.next()?);
        Some(Self { root, point, kind: system.next()?, options: system.nth(1)? })
    }

    /// Where the group that the system calls `name` is.
    fn group(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new(self.point).join(Path::new(name).strip_prefix(self.root).ok()?))
    }
}

/// The groups below which ours may be, the nearest first. `groups` is what `/proc/self/cgroup`
/// says.
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
            // Groups with processes of their own, as ours, cannot limit those below them: one above
            // it may.
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
    fn our_group_of_version_one_is_found_below_what_is_mounted() {
        let mounts: Vec<Mount<'_>> = MOUNTS.lines().filter_map(Mount::parse).collect();
        let found = parents(&mounts, "5:devices:/pod/a\n4:memory:/pod/a:b\n0::/");
        assert_eq!(found, [(Version::One, PathBuf::from("/sys/fs/cgroup/memory/a:b"))]);
        assert_eq!(parents(&mounts, "4:memory:/elsewhere"), []);
    }

    #[test]
    fn a_group_of_version_two_is_below_the_nearest_that_can_limit() {
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
    fn page_cache_is_what_is_no_shared_memory() {
        assert_eq!(cached("cache 100\nrss 7\nshmem 30\ntotal_cache 900", Version::One), Some(70));
        assert_eq!(cached("anon 7\nfile 100\nfile_mapped 3\nshmem 30", Version::Two), Some(70));
        assert_eq!(cached("anon 7", Version::Two), None);
    }

    #[test]
    fn a_group_limits_all_of_a_server_and_ends_with_its_value() {
        let mebibyte = 1 << 20;
        let directory = TempDir::new("memory").unwrap();
        let limit = match Limit::new(32 * mebibyte, directory.path()) {
            Ok(limit) => limit,
            // Most users may make none; that much must be said.
            Err(why) => return assert!(!why.is_empty()),
        };
        let group = limit.group().unwrap();
        let file = directory.path().join("file");
        let copy = format!(
            "head -c {} /dev/zero > {}; cat {1} > /dev/null; echo",
            64 * mebibyte,
            file.display()
        );
        // The shell's children are in the group, and so is what they read and write.
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
