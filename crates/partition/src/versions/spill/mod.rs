//! The images that do not fit in memory: blocks in a temporary file, and their metadata in memory.
//!
//! A sweep visits the images in the order of trees and keys and packs those it takes into blocks;
//! one pass is a *round*. So the blocks of a round do not overlap, and a key's images in an older
//! round are older than those in a later one, which are older than those in memory. A reader looks
//! into the one block of each round that may contain its key.
//!
//! For each block, its first and last key, its newest commit, a filter over its keys and its
//! position in the file stay in memory: about 1.3 bytes per image, plus 200 bytes and two keys per
//! block. A block that is being written stays in memory as well, and so does one that could not be
//! written.
//!
//! Invariants
//! 1. A block is removed when its newest commit is visible to every snapshot that has not failed
//!    here, and not earlier. A block with images of an active transaction stays (`writers`).
//! 2. A block's bytes are in memory until it has been written.
//! 3. An attempt that misses blocks ends with [`Stop::Spilled`], which names all blocks that it
//!    misses at this point. The next attempt finds these and the ones that it used last
//!    ([`Loaded`]). So an attempt that needs at most one block of each round for two keys makes
//!    progress.
//! 4. At most [`ROUNDS`] rounds exist, and at most [`IN_FLIGHT`] blocks are being written.
//!
//! Locking: none, it belongs to the partition. A crash leaves nothing relevant.
//!
//! Source: the log-structured merge tree (O'Neil and others, 1996), with rounds as its components
//! and no merging: the contents are removed when snapshots close.

mod block;
mod filter;
mod range;
mod writers;

pub(super) use block::{By, Entry, Packer, TREE, joined};
pub(super) use range::{At, Spilled};
pub(super) use writers::{Outcome, Reader, Sight, WriterId};

use self::block::{Block, Packed};
use self::filter::{Filter, hash};
use self::writers::Writers;
use super::change::Older;
use crate::exec::Stop;
use clearway_storage::{SpillBlock, SpillFile, SpillRead, SpillResults, SpillWrite};
use clearway_types::{Lsn, TreeId, TxnId};
use hashbrown::HashMap;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Maximum number of rounds, of each of which a reader may need a block. Beyond it the file counts
/// as full.
pub(super) const ROUNDS: usize = 128;

/// Maximum number of blocks being written; further images wait.
const IN_FLIGHT: usize = 64;

/// Approximate bytes in memory per block, without its keys and its filter.
const META: usize = 250;

/// Number of blocks that a reader keeps, in addition to two of each round.
const KEPT: usize = 32;

/// A block that a reader needs but that is not in memory.
#[derive(Debug)]
pub(crate) struct MissingBlock {
    id: u64,
    images: Images,
    stored: Arc<SpillBlock>,
}

/// Whose images a block has.
#[derive(Clone, Debug)]
pub(super) struct Images {
    /// The newest commit of an image, as far as it is known.
    pub newest: Lsn,
    /// The writers that were active when the block was packed.
    pub writers: Arc<[WriterId]>,
}

/// A block's metadata.
struct Meta {
    id: u64,
    last: Box<[u8]>,
    images: Images,
    /// The number of writers that are still active.
    active: usize,
    filter: Filter,
    /// `None` if it could not be written.
    stored: Option<Arc<SpillBlock>>,
    /// Its bytes, unless they are in the file.
    resident: Option<Arc<[u8]>>,
}

impl Meta {
    fn missing(&self) -> Option<MissingBlock> {
        let stored = self.stored.clone()?;
        Some(MissingBlock { id: self.id, images: self.images.clone(), stored })
    }

    /// Returns true if this snapshot sees everything in it.
    fn is_seen(&self, at: Lsn) -> bool {
        self.active == 0 && self.images.newest <= at
    }

    /// Returns the bytes in memory, without those of the block.
    fn memory(&self, first: &[u8]) -> usize {
        META + first.len() + self.last.len() + self.filter.bytes()
    }
}

/// Blocks by their first key.
type Round = BTreeMap<Arc<[u8]>, Meta>;

/// Whether a block can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Yes,
    /// Once some of the pending writes have completed.
    Later,
    /// Not before blocks have been removed.
    No,
}

/// The spilled images; see the module.
pub(crate) struct Spill {
    file: Option<Arc<SpillFile>>,
    rounds: BTreeMap<u32, Round>,
    /// The round of the next block.
    round: u32,
    /// All blocks without images of active transactions, by their newest commits.
    by_newest: BTreeSet<(Lsn, u32, Arc<[u8]>)>,
    writers: Writers,
    /// The positions of the blocks that are being written.
    writing: HashMap<u64, (u32, Arc<[u8]>)>,
    outgoing: Vec<(u64, Arc<SpillBlock>, Arc<[u8]>)>,
    results: Arc<SpillResults<bool>>,
    next_id: u64,
    /// Bytes in memory, without those in flight.
    memory: usize,
    /// The part of `memory` for the metadata of blocks with images of active transactions.
    active: usize,
    /// Bytes of blocks that are being written.
    in_flight: usize,
    /// Whether a write has failed since the store was last empty.
    broken: bool,
    /// The blocks of the running attempt.
    loaded: Option<Box<Loaded>>,
}

/// Blocks that a reader has, and those that are being read for it.
#[derive(Default)]
pub(crate) struct Loaded {
    blocks: Vec<(u64, Arc<[u8]>, Cell<u64>)>,
    uses: Cell<u64>,
    coming: Vec<(u64, Images)>,
    results: Arc<SpillResults<Option<Arc<[u8]>>>>,
}

impl Loaded {
    fn get(&self, id: u64) -> Option<&[u8]> {
        let (_, bytes, used) = self.blocks.iter().find(|(n, ..)| *n == id)?;
        self.uses.set(self.uses.get() + 1);
        used.set(self.uses.get());
        Some(bytes)
    }

    /// Takes the blocks that have arrived. Returns whose images the others have.
    fn absorb(&mut self) -> Vec<Images> {
        let mut failed = Vec::new();
        for (id, bytes) in self.results.take() {
            match bytes {
                Some(bytes) => self.blocks.push((id, bytes, self.uses.clone())),
                None => failed.extend(
                    self.coming.extract_if(.., |(n, _)| *n == id).map(|(_, images)| images),
                ),
            }
        }
        self.coming.clear();
        failed
    }

    /// Keeps the most recently used blocks.
    fn keep(&mut self, most: usize) {
        if self.blocks.len() > most {
            self.blocks.sort_by_key(|(.., used)| std::cmp::Reverse(used.get()));
            self.blocks.truncate(most);
        }
    }
}

impl Spill {
    pub(super) fn new() -> Self {
        Self {
            file: None,
            rounds: BTreeMap::new(),
            round: 0,
            by_newest: BTreeSet::new(),
            writers: Writers::default(),
            writing: HashMap::new(),
            outgoing: Vec::new(),
            results: Arc::default(),
            next_id: 0,
            memory: 0,
            active: 0,
            in_flight: 0,
            broken: false,
            loaded: None,
        }
    }

    /// Sets the file for blocks.
    pub(crate) fn use_file(&mut self, file: Option<Arc<SpillFile>>) {
        self.file = file;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Returns true if at most one more round can begin.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn lacks_rounds(&self) -> bool {
        self.rounds.len() + 1 >= ROUNDS
    }

    /// Returns the bytes in memory, without those of blocks that are being written.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the part of [`Spill::memory`] for blocks with images of active transactions.
    pub(super) fn active_memory(&self) -> usize {
        self.active
    }

    /// Returns all bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.memory + self.in_flight
    }

    /// Returns the size of a full block in bytes; `None` without a file.
    pub(super) fn block_bytes(&self) -> Option<usize> {
        self.file.as_ref().map(|file| file.slot_bytes())
    }

    /// Returns whether there is room for a block, which may be the first of its round.
    pub(super) fn room(&self) -> Room {
        let rounds = self.rounds.len() + usize::from(!self.rounds.contains_key(&self.round));
        match &self.file {
            Some(file) if !self.broken && rounds <= ROUNDS && file.has_room() => {
                if self.writing.len() < IN_FLIGHT { Room::Yes } else { Room::Later }
            }
            _ => Room::No,
        }
    }

    /// Adds a block after all others of the round; returns false if the file has no room for it.
    pub(super) fn add(&mut self, packer: Packer) -> bool {
        let Packed { bytes, first, last, newest, writers, filter } = packer.finish();
        let Some(stored) = self.file.as_ref().and_then(|file| file.reserve(&bytes)) else {
            return false;
        };
        let id = self.next_id;
        self.next_id += 1;
        let meta = Meta {
            id,
            last,
            active: writers.len(),
            images: Images { newest, writers: writers.clone() },
            filter,
            stored: Some(stored.clone()),
            resident: Some(bytes.clone()),
        };
        self.memory += meta.memory(&first);
        self.in_flight += bytes.len();
        if writers.is_empty() {
            self.by_newest.insert((newest, self.round, first.clone()));
        } else {
            self.active += meta.memory(&first);
        }
        for writer in writers.iter() {
            self.writers.add(*writer, (self.round, first.clone()));
        }
        self.writing.insert(id, (self.round, first.clone()));
        self.outgoing.push((id, stored, bytes));
        self.rounds.entry(self.round).or_default().insert(first, meta);
        true
    }

    /// Records the end of a transaction.
    pub(super) fn ended(&mut self, writer: TxnId, outcome: Outcome) {
        for (number, first) in self.writers.end(writer, outcome) {
            let round = self.rounds.get_mut(&number);
            let Some(meta) = round.and_then(|round| round.get_mut(&first)) else { continue };
            if let Outcome::Committed(commit) = outcome {
                meta.images.newest = meta.images.newest.max(commit);
            }
            meta.active -= 1;
            if meta.active == 0 {
                self.active -= meta.memory(&first);
                self.by_newest.insert((meta.images.newest, number, first));
            }
        }
    }

    /// Returns the number of an active transaction whose images go to a block.
    pub(super) fn writer(&mut self, txn: TxnId) -> WriterId {
        self.writers.number(txn)
    }

    /// Returns the transaction of a writer and its outcome; `None` if no block has an image of it.
    pub(super) fn outcome(&self, writer: WriterId) -> Option<(TxnId, Outcome)> {
        self.writers.outcome(writer)
    }

    /// Returns true if a block may have images of this active transaction.
    pub(super) fn has_active(&self, txn: TxnId) -> bool {
        self.writers.is_active(txn)
    }

    /// Starts a new round.
    pub(super) fn next_round(&mut self) {
        self.round += u32::from(self.rounds.contains_key(&self.round));
    }

    /// Returns the blocks to write.
    pub(crate) fn take_writes(&mut self) -> Option<SpillWrite> {
        if self.outgoing.is_empty() {
            return None;
        }
        Some(SpillWrite {
            blocks: std::mem::take(&mut self.outgoing),
            results: self.results.clone(),
        })
    }

    /// Records completed writes.
    pub(super) fn absorb(&mut self) {
        if self.writing.is_empty() {
            return;
        }
        for (id, written) in self.results.take() {
            let Some((round, first)) = self.writing.remove(&id) else { continue };
            // The block may have been removed, and another one of that place added.
            let meta = self.rounds.get_mut(&round).and_then(|round| round.get_mut(&first));
            let Some(meta) = meta.filter(|meta| meta.id == id) else { continue };
            if written {
                self.in_flight -= meta.resident.take().map_or(0, |bytes| bytes.len());
            } else {
                let bytes = meta.resident.as_ref().map_or(0, |bytes| bytes.len());
                meta.stored = None;
                self.in_flight -= bytes;
                self.memory += bytes;
                self.broken = true;
            }
        }
    }

    /// Removes the blocks in which no snapshot at or above this LSN needs an image.
    pub(super) fn trim(&mut self, horizon: u64) {
        while let Some((newest, ..)) = self.by_newest.first()
            && newest.0 <= horizon
            && let Some((_, number, first)) = self.by_newest.pop_first()
        {
            let Some(round) = self.rounds.get_mut(&number) else { continue };
            let Some(meta) = round.remove(&first) else { continue };
            if round.is_empty() {
                self.rounds.remove(&number);
            }
            meta.images.writers.iter().for_each(|writer| self.writers.remove(*writer));
            self.memory -= meta.memory(&first);
            let resident = meta.resident.as_ref().map_or(0, |bytes| bytes.len());
            if meta.stored.is_some() {
                self.in_flight -= resident;
            } else {
                self.memory -= resident;
            }
        }
        self.broken &= !self.rounds.is_empty();
    }

    /// Removes all blocks.
    pub(super) fn clear(&mut self) {
        self.rounds.clear();
        self.by_newest.clear();
        self.writers.clear();
        (self.memory, self.active, self.in_flight, self.broken) = (0, 0, 0, false);
        self.loaded = None;
    }

    /// Provides these blocks to the running task. Returns whose images are in blocks that could not
    /// be read for it.
    #[inline]
    pub(super) fn lend(&mut self, loaded: Option<Box<Loaded>>) -> Vec<Images> {
        self.loaded = loaded;
        self.loaded.as_mut().map_or_else(Vec::new, |loaded| loaded.absorb())
    }

    /// Returns the blocks of the task that ran, for its next attempt.
    #[inline]
    pub(crate) fn set_aside(&mut self) -> Option<Box<Loaded>> {
        self.loaded.take()
    }

    /// Returns the read of the blocks that a reader misses, and where its next attempt finds them.
    pub(crate) fn read(
        &self,
        loaded: Option<Box<Loaded>>,
        missing: Vec<MissingBlock>,
    ) -> (SpillRead, Box<Loaded>) {
        let mut loaded = loaded.unwrap_or_default();
        loaded.keep(2 * self.rounds.len() + KEPT);
        loaded.coming = missing.iter().map(|block| (block.id, block.images.clone())).collect();
        let blocks = missing.into_iter().map(|block| (block.id, block.stored)).collect();
        (SpillRead { blocks, results: loaded.results.clone() }, loaded)
    }

    fn bytes_of<'v>(&'v self, meta: &'v Meta) -> Option<&'v [u8]> {
        match &meta.resident {
            Some(bytes) => Some(bytes),
            None => self.loaded.as_ref()?.get(meta.id),
        }
    }

    /// Returns true if this snapshot sees everything in the blocks, as those of most statements do.
    fn sees_all(&self, at: Lsn) -> bool {
        self.active == 0 && self.by_newest.last().is_none_or(|(newest, ..)| *newest <= at)
    }

    /// Returns the blocks that may have images of the key that this snapshot does not see, oldest
    /// round first.
    fn blocks_of<'v>(&'v self, key: &[u8], at: Lsn) -> impl Iterator<Item = &'v Meta> {
        let hash = hash(key);
        self.rounds.values().filter_map(move |round| {
            let (_, meta) =
                round.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
            (!meta.is_seen(at) && *meta.last >= *key && meta.filter.may_have(hash)).then_some(meta)
        })
    }

    /// Returns the combined effect of the key's images that the reader does not see.
    pub(super) fn before(
        &self,
        tree: TreeId,
        key: &[u8],
        reader: Reader<'_>,
    ) -> Result<Older<'_>, Stop> {
        let (mut older, own) = (Older::default(), self.has_own(reader));
        self.visit(tree, key, reader, |sight, entry| {
            older.then(sight, entry.prior);
            if older.is_settled() && !own {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(older)
    }

    /// Returns whether there is an image of the key that the reader does not see, and whether such
    /// an image is of a row that moved. Images of active transactions count if `open` is true.
    pub(super) fn since(
        &self,
        tree: TreeId,
        key: &[u8],
        reader: Reader<'_>,
        open: bool,
    ) -> Result<(bool, bool), Stop> {
        let (mut changed, mut moved, mut undecided) = (false, false, None);
        self.visit(tree, key, reader, |sight, entry| {
            match sight {
                Sight::Unseen { active } if open || !active => {
                    changed = true;
                    moved |= entry.moved;
                }
                Sight::Undecided(writer) => undecided = Some(writer),
                Sight::Unseen { .. } | Sight::Seen | Sight::Own => {}
            }
            ControlFlow::Continue(())
        })?;
        undecided.map_or(Ok((changed, moved)), |writer| Err(Stop::Commit(writer)))
    }

    /// Returns true if the reader itself may have images in the blocks.
    fn has_own(&self, reader: Reader<'_>) -> bool {
        self.has_active(reader.as_of.me)
    }

    /// Visits the key's images, oldest first, until `visit` breaks.
    fn visit<'v>(
        &'v self,
        tree: TreeId,
        key: &[u8],
        reader: Reader<'_>,
        mut visit: impl FnMut(Sight, Entry<'v>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let at = reader.as_of.at;
        if self.sees_all(at) {
            return Ok(());
        }
        let (key, mut missing) = (joined(tree, key), Vec::new());
        for meta in self.blocks_of(&key, at) {
            match self.bytes_of(meta) {
                None => missing.extend(meta.missing()),
                Some(bytes) => {
                    let (block, mut flow) = (Block(bytes), ControlFlow::Continue(()));
                    for entry in block.of_key(&key) {
                        flow = visit(self.writers.sight(entry.by, reader), entry);
                        if flow.is_break() {
                            break;
                        }
                    }
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Stop::Spilled(missing)) }
    }
}
