//! CPU time used by a server and its children, from Linux's `/proc`.

use std::time::Duration;

/// A clock tick of `/proc/*/stat`: Linux reports 100 per second to user space on every
/// architecture.
const TICK: Duration = Duration::from_millis(10);

/// Returns user and system time of `pid`, of its live children, and of the children it has waited
/// for; `None` without a Linux `/proc`.
pub fn used(pid: u32) -> Option<Duration> {
    let own = stat(pid)?;
    let of_children = children(pid)?.into_iter().filter_map(stat).map(|child| child.own);
    Some(TICK * (own.own + own.waited_for + of_children.sum::<u32>()))
}

/// Returns the children of `pid` that it has not waited for.
pub(crate) fn children(pid: u32) -> Option<Vec<u32>> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(processes.filter(|process| stat(*process).is_some_and(|s| s.parent == pid)).collect())
}

struct Stat {
    parent: u32,
    own: u32,
    waited_for: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    // The second field is the program name in parentheses, which may contain anything.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(Stat {
        parent: number(1)?,
        own: number(11)? + number(12)?,
        waited_for: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_with_odd_names_are_parsed() {
        let stat = parse("42 (a) b) S 7 42 42 0 -1 0 0 0 0 0 11 22 33 44 20 0").unwrap();
        assert_eq!((stat.parent, stat.own, stat.waited_for), (7, 33, 77));
        assert!(parse("42 (a) S 7").is_none());
    }
}
