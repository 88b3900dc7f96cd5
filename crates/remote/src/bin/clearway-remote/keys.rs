//! The keys that every node has at the start, and what a node's rows hold at the end.

use crate::options::Options;
use crate::parent::Res;
use clearway_remote::{RowClient, RowId, StoreContents, StoreKey, StoreWorker};

/// Cached locations for each key of the store: enough for each to have its own place.
const PLACES_PER_KEY: usize = 4;

/// The keys at the start; the same in every process. Each owner has the lowest numbers that hash to
/// it and find room.
pub struct Keys {
    contents: StoreContents,
    by_owner: Vec<Vec<(StoreKey, RowId)>>,
}

impl Keys {
    pub fn new(options: &Options) -> Self {
        let mut contents = StoreContents::new(options.layout(), options.nodes as usize);
        let mut by_owner = vec![Vec::new(); options.nodes as usize];
        let mut missing = u64::from(options.nodes) * u64::from(options.rows);
        for key in (1..).map_while(StoreKey::new) {
            if missing == 0 {
                break;
            }
            let of_owner = &mut by_owner[contents.owner(key) as usize];
            if of_owner.len() < options.rows as usize
                && let Some(row) = contents.add(key)
            {
                of_owner.push((key, row));
                missing -= 1;
            }
        }
        Self { contents, by_owner }
    }

    /// Returns a key by its owner and its number there.
    pub fn key(&self, place: RowId) -> StoreKey {
        self.by_owner[place.owner as usize][place.index as usize].0
    }

    /// Returns the payloads that an owner's rows and buckets begin with.
    pub fn payloads(&self, owner: u32) -> Vec<(u32, Vec<u64>)> {
        self.contents.payloads(owner)
    }

    /// Returns the size of a cache for the locations of all keys.
    pub fn places(&self) -> usize {
        PLACES_PER_KEY * self.by_owner.iter().map(Vec::len).sum::<usize>()
    }

    /// Caches the locations of all keys.
    pub fn teach<C: RowClient>(&self, store: &mut StoreWorker<C>) {
        self.by_owner.iter().flatten().for_each(|(key, row)| store.learn(*key, *row));
    }
}

/// Sums the values of a node's keys, which count their updates. `read` returns a row's metadata and
/// payload. Verifies that all locks are free, that all words of a value are equal, and that the
/// index names exactly the rows that have keys.
pub fn sum(options: &Options, read: impl Fn(u32) -> (Vec<u64>, Vec<u64>)) -> Res<u64> {
    let free = |row| {
        let (metadata, payload) = read(row);
        if metadata.iter().all(|word| *word == 0) {
            Ok(payload)
        } else {
            Err(format!("row {row} is locked: {metadata:?}"))
        }
    };
    let mut sum: u64 = 0;
    for (bucket, rows) in options.layout().rows_by_bucket() {
        for (row, entry) in rows.zip(&free(bucket)?[1..]) {
            let payload = free(row)?;
            let value = &payload[1..];
            if payload[0] != *entry {
                return Err(format!("the index names row {row} for {entry}: {payload:?}").into());
            }
            if value.iter().any(|word| *word != value[0]) {
                return Err(format!("row {row} is torn: {payload:?}").into());
            }
            sum = sum.wrapping_add(value[0]);
        }
    }
    Ok(sum)
}
