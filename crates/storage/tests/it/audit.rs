//! Reads a partition's file by `docs/format.md` alone and checks that each page has exactly one use.

use clearway_env::{Disk, MemDisk, Open};

const PAGE: usize = 8192;

struct File {
    bytes: Vec<u8>,
    uses: Vec<u32>,
}

impl File {
    fn u16(&self, page: u32, at: usize) -> usize {
        let at = page as usize * PAGE + at;
        usize::from(u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap()))
    }
    fn u32(&self, page: u32, at: usize) -> u32 {
        let at = page as usize * PAGE + at;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }
    fn used(&mut self, page: u32, kind: u8) {
        assert_eq!(self.bytes[page as usize * PAGE + 5], kind, "page {page}");
        self.uses[page as usize] += 1;
    }

    fn chain(&mut self, mut page: u32, kind: u8) {
        while page != 0 {
            self.used(page, kind);
            page = self.u32(page, 24);
        }
    }

    /// Key range, level and order of a node and all below it; `leaf` sees the page and offset of each leaf cell's value.
    fn node(
        &mut self,
        page: u32,
        range: (&[u8], Option<&[u8]>),
        root: bool,
        leaf: &mut dyn FnMut(&mut Self, u32, usize),
    ) {
        self.used(page, 2);
        let (count, level) = (self.u16(page, 24), self.u16(page, 30) & 0xff);
        assert!(root || count > 0, "page {page} is empty");
        let at = |slot: usize, file: &Self| file.u16(page, 48 + 6 * slot);
        let key = |slot: usize, file: &Self| {
            let start = page as usize * PAGE + at(slot, file);
            file.bytes[start + 4..start + 4 + file.u16(page, at(slot, file))].to_vec()
        };
        let keys: Vec<Vec<u8>> = (0..count).map(|slot| key(slot, self)).collect();
        for slot in 0..count {
            let value = at(slot, self) + 4 + keys[slot].len();
            if level == 0 {
                assert!(keys[slot][..] >= *range.0 && range.1.is_none_or(|end| keys[slot][..] < *end), "page {page}");
                assert!(slot == 0 || keys[slot - 1] < keys[slot], "page {page}");
                if self.u16(page, at(slot, self) + 2) & 0x8000 != 0 {
                    self.chain(self.u32(page, value + 4), 3);
                }
                leaf(self, page, value);
            } else {
                let child = self.u32(page, value);
                assert_eq!(self.u16(child, 30) & 0xff, level - 1, "page {child}");
                let low = if slot == 0 { range.0 } else { &keys[slot] };
                self.node(child, (low, keys.get(slot + 1).map(Vec::as_slice).or(range.1)), false, leaf);
            }
        }
    }
}

/// Checks the files of a node that was shut down after a checkpoint.
pub fn audit(disk: &MemDisk, partitions: usize) {
    for partition in 0..partitions {
        let path = format!("db/data/p{partition:04}.data");
        let file = disk.open(path.as_ref(), Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let mut file = File { bytes, uses: Vec::new() };
        let count = file.u32(0, 36);
        file.uses = vec![0; count as usize];
        file.used(0, 1);
        file.chain(file.u32(0, 32), 4);
        let mut roots = Vec::new();
        file.node(1, (&[], None), true, &mut |file, page, value| roots.push(file.u32(page, value)));
        for root in roots {
            file.node(root, (&[], None), true, &mut |_, _, _| ());
        }
        for (page, uses) in file.uses.iter().enumerate() {
            assert_eq!(*uses, 1, "partition {partition} page {page}");
        }
    }
}
