//! Disk reads of a server and its children, from Linux's `/proc`.

use crate::cpu::{children, settled};

/// Returns the bytes that `pid`, its live children and the children it has waited for read from a
/// disk. Reads served by the page cache do not count. `None` if `/proc` does not report it, or not
/// to us, or if children keep ending.
pub fn read(pid: u32) -> Option<u64> {
    let of_children = || Some(children(pid)?.into_iter().filter_map(of).sum::<u64>());
    let (own, of_children) = settled(|| of(pid), of_children)?;
    Some(own + of_children)
}

/// Reads of one process and of the children it has waited for.
fn of(pid: u32) -> Option<u64> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn parse(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disk_reads_count() {
        assert_eq!(
            parse("rchar: 7\nread_bytes: 4096\nwrite_bytes: 5\ncancelled_write_bytes: 0\n"),
            Some(4096)
        );
        assert_eq!(parse("rchar: 7\n"), None);
    }
}
