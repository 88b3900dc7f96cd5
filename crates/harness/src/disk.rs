//! What a server and its children have read from disks, from Linux's `/proc`.

use crate::cpu::children;

/// Bytes that `pid`, its living children, and those it has waited for, had the system fetch from a
/// disk: what its page cache answered is not among them. `None` where `/proc` does not tell, or not
/// us.
pub fn read(pid: u32) -> Option<u64> {
    let of_children = children(pid)?.into_iter().filter_map(of);
    Some(of(pid)? + of_children.sum::<u64>())
}

/// Of one process, and of those it has waited for.
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
    fn only_reads_of_the_disk_count() {
        assert_eq!(
            parse("rchar: 7\nread_bytes: 4096\nwrite_bytes: 5\ncancelled_write_bytes: 0\n"),
            Some(4096)
        );
        assert_eq!(parse("rchar: 7\n"), None);
    }
}
