//! A worker's cache of key locations. An entry is a hint, to be verified under the row's lock.

use super::layout::StoreKey;
use crate::RowId;

/// Locations of keys, direct-mapped: a newer key replaces an older one in the same place.
pub struct LocationCache {
    places: Vec<Option<(StoreKey, RowId)>>,
}

impl LocationCache {
    /// Creates a cache of at most `places` keys; 0 disables it.
    pub fn new(places: usize) -> Self {
        Self { places: vec![None; places] }
    }

    pub fn get(&self, key: StoreKey) -> Option<RowId> {
        let (found, row) = self.places.get(self.place(key))?.as_ref()?;
        (*found == key).then_some(*row)
    }

    pub fn insert(&mut self, key: StoreKey, row: RowId) {
        let place = self.place(key);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some((key, row));
        }
    }

    pub fn remove(&mut self, key: StoreKey) {
        if self.get(key).is_some() {
            let place = self.place(key);
            self.places[place] = None;
        }
    }

    fn place(&self, key: StoreKey) -> usize {
        // Multiplies by the golden ratio's fraction. The upper half of the product depends on all
        // bits of the key. Its share of 2^32 is the place's share of all places, so successive keys
        // are spread evenly: 4 places for each key leave each of them a place of its own.
        let hash = key.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((u128::from(hash) * self.places.len() as u128) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_keys_keep_their_places() {
        const KEYS: u32 = 20_000;
        let mut cache = LocationCache::new(4 * KEYS as usize);
        let key = |index: u32| StoreKey::new(u64::from(index) + 1).unwrap();
        let row = |index| RowId { owner: 1, index };
        (0..KEYS).for_each(|index| cache.insert(key(index), row(index)));
        assert!((0..KEYS).all(|index| cache.get(key(index)) == Some(row(index))));
    }
}
