//! The regions of a node, and the execution of peers' frames on them.

use super::frame::{self, TcpFrame};
use crate::words::Executor;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

/// A node's regions by key.
#[derive(Default)]
pub struct Regions(RwLock<HashMap<u64, Arc<[AtomicU64]>>>);

impl Regions {
    /// Adds a region of `words` zeros.
    pub fn add(&self, key: u64, words: usize) -> Arc<[AtomicU64]> {
        let memory: Arc<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        // A panic under this lock leaves the map intact; insertion and removal are its only
        // changes.
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&memory));
        memory
    }

    /// Replaces a region's key after every verb with the old key has finished.
    pub(super) fn rekey(&self, old: u64, new: u64) {
        let mut regions = self.0.write().unwrap_or_else(PoisonError::into_inner); // As in `add`.
        if let Some(memory) = regions.remove(&old) {
            regions.insert(new, memory);
        }
    }

    /// Removes a region.
    pub(super) fn remove(&self, key: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key); // As in `add`.
    }

    fn with<T>(
        &self,
        key: u64,
        word: u64,
        words: usize,
        access: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let regions = self.0.read().unwrap_or_else(PoisonError::into_inner); // As in `add`.
        let start = usize::try_from(word).ok()?;
        let range = start..start.checked_add(words)?;
        Some(access(regions.get(&key)?.get(range)?))
    }
}

/// Executes the READs, WRITEs, CASs and FAAs of one connection.
#[derive(Default)]
pub struct RegionServer {
    executor: Executor,
    words: Vec<u64>,
}

impl RegionServer {
    /// Executes a frame and appends the reply. Returns false if the key or bounds are invalid, or
    /// if the frame is not one of the four.
    pub fn serve(&mut self, regions: &Regions, request: TcpFrame<'_>, out: &mut Vec<u8>) -> bool {
        let (executor, buffer) = (&mut self.executor, &mut self.words);
        let done = match request {
            TcpFrame::Read { key, word, words } => {
                regions.with(key, word, words as usize, |memory| {
                    buffer.clear();
                    buffer.resize(memory.len(), 0);
                    executor.read(memory, buffer);
                    frame::read_done(out, buffer);
                })
            }
            TcpFrame::Write { key, word, payload } => {
                regions.with(key, word, payload.len(), |memory| {
                    buffer.clear();
                    buffer.extend(payload.values());
                    executor.write(memory, buffer);
                    frame::write_done(out);
                })
            }
            TcpFrame::Cas { key, word, expected, new } => regions.with(key, word, 1, |memory| {
                frame::atomic_done(out, executor.cas(&memory[0], expected, new));
            }),
            TcpFrame::Faa { key, word, add } => regions.with(key, word, 1, |memory| {
                frame::atomic_done(out, executor.faa(&memory[0], add));
            }),
            _ => None,
        };
        done.is_some()
    }
}
