//! Crash of the machine, and death of the process that uses the disk.

use std::sync::{Arc, Mutex};

use super::names::Names;
use super::space::Room;
use super::{FaultProfile, MemDisk, Shared, guard};
use clearway_env::SeededEntropy;

/// Sectors per page of the system's cache.
const BLOCK: u64 = 8;

impl MemDisk {
    /// Returns the disk that a crash now would leave, as `seed` decides. This disk stays usable.
    /// The new disk keeps the capacity and the damage at rest. It has no plan, hook or locks, is
    /// writable, and fails no operations.
    pub fn crash(&self, seed: u64) -> MemDisk {
        let tear = if guard(&self.shared.profile).tears_blocks { BLOCK } else { 1 };
        let names = guard(&self.shared.names).survivors(&SeededEntropy::new(seed), tear);
        self.successor(names)
    }

    /// Returns the disk as the next process finds it after the current one was killed. All written
    /// data is there, synced or not; a later crash may still lose unsynced data. This disk can no
    /// longer be changed. The new disk has no plan, hook or locks, and fails no operations.
    pub fn kill(&self) -> MemDisk {
        self.fail_after(0);
        self.set_faults(None);
        self.set_hook(None);
        let names = guard(&self.shared.names).clone();
        self.successor(names)
    }

    /// Returns a disk with everything that can be read from this one, all of it synced. It has no
    /// plan, hook or locks, and fails no operations.
    pub fn copy(&self) -> MemDisk {
        let names = guard(&self.shared.names).at_rest();
        self.successor(names)
    }

    /// Makes crashes of this disk and its successors tear files between 4 KiB blocks instead of
    /// sectors. Each block is then as it was at one moment.
    pub fn tear_blocks(&self, blocks: bool) {
        guard(&self.shared.profile).tears_blocks = blocks;
    }

    fn successor(&self, names: Names) -> MemDisk {
        let used = names.files.values().map(|content| guard(content).space() as u64).sum();
        let room = Room::new(used, self.shared.room.capacity());
        let tears_blocks = guard(&self.shared.profile).tears_blocks;
        let profile = Mutex::new(FaultProfile { tears_blocks, ..FaultProfile::default() });
        MemDisk {
            shared: Arc::new(Shared {
                names: Mutex::new(names),
                room,
                profile,
                ..Shared::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use clearway_env::{Disk, Open};

    fn read(disk: &MemDisk, path: &str) -> Vec<u8> {
        let file = disk.open(Path::new(path), Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn kill_keeps_unsynced_data_until_a_crash() {
        let disk = MemDisk::new();
        let file = disk.open(Path::new("a"), Open::Create).unwrap();
        file.write_all_at(&[1; 512], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        file.write_all_at(&[2; 512], 0).unwrap();
        disk.open(Path::new("b"), Open::Create).unwrap();
        let next = disk.kill();
        assert!(file.write_all_at(&[3; 512], 0).is_err(), "the process is dead");
        assert_eq!(read(&next, "a"), [2; 512]);
        assert_eq!(next.copy().list(Path::new("")).unwrap(), ["a", "b"]);
        let lost = (0..50).any(|seed| read(&next.crash(seed), "a") == [1; 512]);
        assert!(lost, "it was never synced");
        assert!(
            (0..50).any(|seed| next.crash(seed).list(Path::new("")).unwrap() == ["a"]),
            "nor was its name"
        );
        assert!((0..50).all(|seed| read(&next.copy().crash(seed), "a") == [2; 512]));
    }

    #[test]
    fn crash_keeps_each_block_atomic() {
        let disk = MemDisk::new();
        disk.tear_blocks(true);
        let file = disk.open(Path::new("a"), Open::Create).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        for version in 1..=3 {
            file.write_all_at(&[version; 8192], 0).unwrap();
            if version == 1 {
                file.sync_data().unwrap();
            }
        }
        // Changes only a part of the second block.
        file.write_all_at(&[4; 512], 5120).unwrap();
        let mut torn = false;
        for seed in 0..200 {
            let after = read(&disk.crash(seed), "a");
            let (first, second) = after.split_at(4096);
            assert!((1..=3).any(|version| *first == [version; 4096]), "{seed}");
            let mut newest = [3; 4096];
            newest[1024..1536].fill(4);
            assert!(
                (1..=3).any(|version| *second == [version; 4096]) || *second == newest,
                "{seed}"
            );
            torn |= first[0] != second[0];
        }
        assert!(torn);
    }
}
