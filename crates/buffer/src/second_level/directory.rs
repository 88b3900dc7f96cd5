//! The directory of the second level, in memory only: which page's copy is in which slot.
//!
//! Chains of slots hang from buckets, as in the page table. A slot costs 16 bytes here, and 4 to 8
//! bytes of buckets.
//!
//! # Invariants
//! 1. A page has at most one slot, and is in its bucket's chain exactly while it has one.
//! 2. A slot is found only while its region is ready: from the end of the region's write until the
//!    region is taken again.
//! 3. A page that was invalidated since `epoch` returned a value is not reserved with that value.

use clearway_types::PageId;

const END: u32 = u32::MAX;
const NO_PAGE: u64 = u64::MAX;

/// A copy of a page, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub slot: u32,
    /// The checksum of the page when it was put there. It identifies the page's version.
    pub crc: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    page: u64,
    crc: u32,
    next: u32,
}

pub(crate) struct Directory {
    slots: Vec<Slot>,
    buckets: Vec<u32>,
    /// Whether the region's slots may be read.
    ready: Vec<bool>,
    region_slots: u32,
    pages: u32,
    epoch: u64,
}

impl Directory {
    /// Creates a directory for `regions` regions of `region_slots` slots each.
    pub fn new(regions: u32, region_slots: u32) -> Self {
        let slots = (regions * region_slots) as usize;
        Self {
            slots: vec![Slot { page: NO_PAGE, crc: 0, next: END }; slots],
            buckets: vec![END; slots.next_power_of_two().max(2)],
            ready: vec![false; regions as usize],
            region_slots,
            pages: 0,
            epoch: 0,
        }
    }

    fn bucket(&self, page: PageId) -> usize {
        (page.hash_bits() >> (64 - self.buckets.len().trailing_zeros())) as usize
    }

    fn slot_of(&self, page: PageId) -> Option<u32> {
        let mut at = self.buckets[self.bucket(page)];
        while at != END {
            let slot = &self.slots[at as usize];
            if slot.page == page.to_u64() {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Returns the number of pages that have slots.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the number of invalidations so far.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the page's copy, if it can be read.
    pub fn find(&self, page: PageId) -> Option<Copy> {
        let slot = self.slot_of(page)?;
        self.ready[(slot / self.region_slots) as usize]
            .then(|| Copy { slot, crc: self.slots[slot as usize].crc })
    }

    /// Gives the page a slot of a region that is not ready. Returns false if it already has one.
    pub fn reserve(&mut self, page: PageId, slot: u32) -> bool {
        debug_assert!(!self.ready[(slot / self.region_slots) as usize], "slot {slot} is in use");
        if self.slot_of(page).is_some() {
            return false;
        }
        let bucket = self.bucket(page);
        self.slots[slot as usize] =
            Slot { page: page.to_u64(), crc: 0, next: self.buckets[bucket] };
        self.buckets[bucket] = slot;
        self.pages += 1;
        true
    }

    fn remove(&mut self, page: PageId) {
        let Some(found) = self.slot_of(page) else { return };
        let bucket = self.bucket(page);
        let next = self.slots[found as usize].next;
        if self.buckets[bucket] == found {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.slots[at as usize].next != found {
                at = self.slots[at as usize].next;
            }
            self.slots[at as usize].next = next;
        }
        self.slots[found as usize] = Slot { page: NO_PAGE, crc: 0, next: END };
        self.pages -= 1;
    }

    /// Invalidates the copies of these pages, because newer versions are about to be written.
    pub fn invalidate(&mut self, pages: impl Iterator<Item = PageId>) {
        self.epoch += 1;
        pages.for_each(|page| self.remove(page));
    }

    /// Removes the page if this is still its copy. Returns true if it was.
    pub fn remove_copy(&mut self, page: PageId, copy: Copy) -> bool {
        let is = self.find(page) == Some(copy);
        if is {
            self.remove(page);
        }
        is
    }

    /// Takes the region's slots from their pages.
    pub fn take_region(&mut self, region: u32) {
        self.ready[region as usize] = false;
        for slot in region * self.region_slots..(region + 1) * self.region_slots {
            let page = self.slots[slot as usize].page;
            if page != NO_PAGE {
                self.remove(PageId::from_u64(page));
            }
        }
    }

    /// Marks the region ready: its slots have copies with these checksums.
    pub fn written(&mut self, region: u32, crcs: &[u32]) {
        let first = (region * self.region_slots) as usize;
        for (slot, &crc) in self.slots[first..].iter_mut().zip(crcs) {
            slot.crc = crc;
        }
        self.ready[region as usize] = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use clearway_env::SeededEntropy;
    use clearway_types::PartitionId;
    use std::collections::HashMap;

    fn page(no: u64) -> PageId {
        PageId::new(PartitionId(3), no as u32)
    }

    /// Invariants 1 and 2, against a map, with long chains.
    #[test]
    fn directory_behaves_like_a_map() {
        let (regions, each) = (5, 4);
        let (mut directory, random) = (Directory::new(regions, each), SeededEntropy::new(1));
        // The slots of pages, with the checksums of those that can be read.
        let mut model: HashMap<PageId, (u32, Option<u32>)> = HashMap::new();
        let (mut region, mut used) = (0, 0);
        directory.take_region(0);
        for step in 0..20_000_u32 {
            let one = page(random.below(40));
            match random.below(4) {
                0 if used < each => {
                    let slot = region * each + used;
                    assert_eq!(directory.reserve(one, slot), !model.contains_key(&one));
                    if let std::collections::hash_map::Entry::Vacant(free) = model.entry(one) {
                        free.insert((slot, None));
                        used += 1;
                    }
                }
                0 => {
                    let crcs: Vec<u32> = (0..each).map(|at| step + at).collect();
                    directory.written(region, &crcs);
                    let of_region = |slot: u32, region: u32| slot / each == region;
                    for (slot, crc) in
                        model.values_mut().filter(|(slot, _)| of_region(*slot, region))
                    {
                        *crc = Some(crcs[(*slot % each) as usize]);
                    }
                    (region, used) = ((region + 1) % regions, 0);
                    directory.take_region(region);
                    model.retain(|_, (slot, _)| !of_region(*slot, region));
                }
                1 => {
                    directory.invalidate([one].into_iter());
                    model.remove(&one);
                }
                _ => {
                    let found =
                        model.get(&one).and_then(|&(slot, crc)| Some(Copy { slot, crc: crc? }));
                    assert_eq!(directory.find(one), found, "step {step}");
                    if let Some(copy) = found
                        && random.below(8) == 0
                    {
                        assert!(!directory.remove_copy(one, Copy { crc: copy.crc ^ 1, ..copy }));
                        assert!(directory.remove_copy(one, copy));
                        model.remove(&one);
                    }
                }
            }
            assert_eq!(directory.pages() as usize, model.len());
        }
    }
}
