//! CPU time used by a server and its children, from Linux's `/proc`.

use std::time::Duration;

/// A clock tick of `/proc/*/stat`: Linux reports 100 per second to user space on every
/// architecture.
const TICK: Duration = Duration::from_millis(10);

/// How often a sum is taken again because children have ended meanwhile.
const TRIES: usize = 1_000;

/// Returns user and system time of `pid`, of its live children, and of the children it has waited
/// for; `None` without a Linux `/proc`, or if children keep ending.
pub fn used(pid: u32) -> Option<Duration> {
    let of_children =
        || Some(children(pid)?.into_iter().filter_map(stat).map(|child| child.own).sum::<u32>());
    let (waited_for, of_children) = settled(|| Some(stat(pid)?.waited_for), of_children)?;
    Some(TICK * (stat(pid)?.own + waited_for + of_children))
}

/// Returns what a process shows for the children that it has waited for, and the sum over the
/// others. A child that it waits for during the sum is missing there, so the sum is taken again.
pub(crate) fn settled<W: PartialEq, S>(
    waited_for: impl Fn() -> Option<W>,
    mut sum: impl FnMut() -> Option<S>,
) -> Option<(W, S)> {
    let mut before = waited_for()?;
    for _ in 0..TRIES {
        let others = sum()?;
        let after = waited_for()?;
        if before == after {
            return Some((after, others));
        }
        before = after;
    }
    None
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
    use std::cell::Cell;

    #[test]
    fn children_that_end_during_the_sum_are_counted() {
        // Three children of 5: the first two end while the third is added up.
        let waited_for = Cell::new(0);
        let counted = settled(
            || Some(waited_for.get()),
            || {
                let missed = waited_for.replace(10) == 0;
                Some(if missed { 0 } else { 5 })
            },
        );
        assert_eq!(counted, Some((10, 5)));
    }

    #[test]
    fn a_sum_that_never_settles_is_unknown() {
        let waited_for = Cell::new(0);
        let counted = settled(
            || Some(waited_for.get()),
            || {
                waited_for.set(waited_for.get() + 1);
                Some(0)
            },
        );
        assert_eq!(counted, None);
    }

    #[test]
    fn stat_lines_with_odd_names_are_parsed() {
        let stat = parse("42 (a) b) S 7 42 42 0 -1 0 0 0 0 0 11 22 33 44 20 0").unwrap();
        assert_eq!((stat.parent, stat.own, stat.waited_for), (7, 33, 77));
        assert!(parse("42 (a) S 7").is_none());
    }
}
