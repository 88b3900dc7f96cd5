//! The memory that this process can use: the machine's, or the limit of its control groups.
//!
//! A container's limit is one of a control group. A process is also subject to the limits of all
//! parents of its group. Inside a container, the file system of control groups often begins at the
//! container's own group, while `/proc/self/cgroup` names the path outside. So the root is read,
//! too.
//!
//! Source: Linux's `cgroup-v2.rst` (`memory.max`) and `cgroup-v1/memory.rst`
//! (`memory.limit_in_bytes`).

use std::path::Path;

/// Where both versions are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the memory that this process can use, in bytes.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = lowest_limit(&groups, |path| std::fs::read_to_string(path).ok());
    limit.map_or(machine, |limit| limit.min(machine))
}

/// Returns the lowest limit, in bytes, of the groups in the text of `/proc/self/cgroup` and their
/// parents. `read` returns the text of a file. A file that is missing or has another format sets no
/// limit.
fn lowest_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        // The hierarchy's number, its controllers, and the group's path.
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (mount, file) = match controllers {
            "" => (Path::new(CONTROL_GROUPS).to_owned(), "memory.max"),
            v1 if v1.split(',').any(|name| name == "memory") => {
                (Path::new(CONTROL_GROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let parents = Path::new(group.trim_start_matches('/')).ancestors();
        parents.filter_map(|group| parse(&read(&mount.join(group).join(file))?)).min()
    });
    limits.min()
}

/// Parses a limit. `max` is none, and so is 0, under which no process could run.
fn parse(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest limit if these are the files below the mount point.
    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        lowest_limit(groups, |path| {
            let path = path.strip_prefix(CONTROL_GROUPS).unwrap();
            let found = files.iter().find(|(name, _)| path == Path::new(name));
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn lowest_limit_of_group_and_parents_counts() {
        let groups = "0::/a.slice/b.service\n";
        let files =
            |a, b| limit(groups, &[("a.slice/memory.max", a), ("a.slice/b.service/memory.max", b)]);
        assert_eq!(files("2147483648\n", "max\n"), Some(2 << 30));
        assert_eq!(files("max\n", "1073741824\n"), Some(1 << 30));
        assert_eq!(files("2147483648\n", "1073741824\n"), Some(1 << 30));
        assert_eq!(files("max\n", "max\n"), None);
    }

    #[test]
    fn container_sees_its_limit_at_the_root() {
        assert_eq!(limit("0::/\n", &[("memory.max", "2147483648\n")]), Some(2 << 30));
        // A path of the host, which does not exist in the container.
        let groups = "13:pids:/docker/1f\n4:cpu,memory:/docker/1f\n0::/docker/1f\n";
        let v1 = ("memory/memory.limit_in_bytes", "536870912\n");
        assert_eq!(limit(groups, &[v1]), Some(512 << 20));
        assert_eq!(limit(groups, &[v1, ("memory.max", "1048576\n")]), Some(1 << 20));
    }

    #[test]
    fn missing_or_odd_files_set_no_limit() {
        let only = |groups, text| limit(groups, &[("memory.max", text)]);
        assert_eq!(limit("0::/a\n", &[]), None);
        for text in ["", "0\n", "-1\n", "max\n", "1 GiB\n", "99999999999999999999999\n"] {
            assert_eq!(only("0::/\n", text), None, "{text:?}");
        }
        for groups in ["", "0", "0:\n", "0:memory\n", "\n\n", "1:cpu:/\n"] {
            assert_eq!(only(groups, "4096\n"), None, "{groups:?}");
        }
        assert_eq!(only("0::/../..\n", "4096\n"), Some(4096));
    }
}
