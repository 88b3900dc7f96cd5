//! The memory and the disk that an experiment's tables may take.

use clearway_harness::Res;
use std::path::Path;

/// Available bytes of memory, and free bytes of the disk with the temporary directories.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    memory: u64,
    disk: u64,
}

impl Room {
    /// Returns what this machine has now.
    pub fn here() -> Res<Self> {
        let directory = std::env::temp_dir();
        let file_system =
            rustix::fs::statvfs(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let memory = std::fs::read_to_string(Path::new("/proc/meminfo")).unwrap_or_default();
        Ok(Self {
            memory: available(&memory).unwrap_or(0),
            disk: file_system.f_bavail * file_system.f_frsize,
        })
    }

    /// Returns a machine with this much, in bytes.
    #[cfg(test)]
    pub fn of(memory: u64, disk: u64) -> Self {
        Self { memory, disk }
    }

    /// Returns the most bytes of tables that are to be in a pool: half of the memory, as the page
    /// cache holds the files, too, and a third of the disk, as there are the log and page copies.
    pub fn for_tables(self) -> u64 {
        (self.memory / 2).min(self.disk / 3)
    }
}

/// Returns the bytes of available memory in the text of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_leave_memory_and_disk() {
        let of = |memory, disk| Room::of(memory, disk).for_tables();
        assert_eq!((of(100, 900), of(900, 300), of(0, 300)), (50, 100, 0));
        assert!(Room::here().unwrap().disk > 0);
        let meminfo = "MemTotal:       24683940 kB\nMemAvailable:   20971520 kB\n";
        assert_eq!((available(meminfo), available("")), (Some(20 << 30), None));
    }
}
