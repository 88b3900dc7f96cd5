//! The control file: what a start must know before it can read anything else.
//!
//! Two slots of one sector each, 4096 bytes apart, written in turn: the valid one with the higher generation counts. A
//! crash while one is written leaves the other. The bytes are specified in `docs/format.md`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use clearway_env::{Disk, File, Open};
use clearway_types::Lsn;

use crate::error::OpenError;

const MAGIC: &[u8; 8] = b"CLEARWAY";
const VERSION: u32 = 1;
const SLOT_STRIDE: u64 = 4096;
const SLOT: usize = 64;
const CRC_AT: usize = SLOT - 4;

/// What the control file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether the directory was made to the end; if not, nothing in it counts.
    pub(crate) complete: bool,
    pub(crate) partitions: u16,
    /// Pages have all changes of records before it.
    pub(crate) redo: Lsn,
    /// The log is there from here on: all records of transactions that were active at the checkpoint.
    pub(crate) scan_from: Lsn,
    /// Above every transaction id in the log before `scan_from`.
    pub(crate) next_txn: u64,
}

/// The open control file.
pub(crate) struct Control {
    file: Arc<dyn File>,
    name: String,
    generation: u64,
    state: State,
}

fn encode(state: &State, generation: u64) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12] = u8::from(state.complete);
    out[14..16].copy_from_slice(&state.partitions.to_le_bytes());
    for (i, word) in [generation, state.redo.0, state.scan_from.0, state.next_txn].into_iter().enumerate() {
        out[16 + 8 * i..24 + 8 * i].copy_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c::crc32c(&out[..CRC_AT]);
    out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The version, generation and state of a slot, if it is whole.
fn decode(slot: &[u8; SLOT]) -> Option<(u32, u64, State)> {
    let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap_or_default());
    let crc = u32::from_le_bytes(slot[CRC_AT..].try_into().ok()?);
    if !slot.starts_with(MAGIC) || crc32c::crc32c(&slot[..CRC_AT]) != crc {
        return None;
    }
    let version = word(8) as u32;
    let state = State {
        complete: slot[12] != 0,
        partitions: u16::from_le_bytes([slot[14], slot[15]]),
        redo: Lsn(word(24)),
        scan_from: Lsn(word(32)),
        next_txn: word(40),
    };
    Some((version, word(16), state))
}

impl Control {
    /// Opens the file, or makes an empty one; in that case the state is the default one.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        let io = |doing: &str| OpenError::io(format!("{doing} {name}"));
        let file = disk.open(path, Open::OpenOrCreate).map_err(io("cannot open"))?;
        let mut best: Option<(u32, u64, State)> = None;
        for slot in 0..2 {
            let mut bytes = [0; SLOT];
            match file.read_exact_at(&mut bytes, slot * SLOT_STRIDE) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                Err(error) => return Err(io("cannot read")(error)),
            }
            best = best.into_iter().chain(decode(&bytes)).max_by_key(|(_, generation, _)| *generation);
        }
        let (version, generation, state) = best.unwrap_or((VERSION, 0, State::default()));
        if version != VERSION {
            return Err(OpenError::Refused(format!(
                "{name} is of format version {version}; this server reads version {VERSION}"
            )));
        }
        Ok(Self { file, name, generation, state })
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Writes a new state; it counts, and survives a crash, when this returns.
    pub(crate) fn write(&mut self, state: State) -> Result<(), OpenError> {
        let generation = self.generation + 1;
        let io = || OpenError::io(format!("cannot write {}", self.name));
        self.file.write_all_at(&encode(&state, generation), generation % 2 * SLOT_STRIDE).map_err(io())?;
        self.file.sync_data().map_err(io())?;
        (self.generation, self.state) = (generation, state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_the_way_to_disk_and_no_damage_passes() {
        let state = State { complete: true, partitions: 7, redo: Lsn(8), scan_from: Lsn(16), next_txn: 99 };
        let slot = encode(&state, 5);
        assert_eq!(decode(&slot), Some((VERSION, 5, state)));
        for at in 0..SLOT {
            let mut bad = slot;
            bad[at] ^= 4;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
    }
}
