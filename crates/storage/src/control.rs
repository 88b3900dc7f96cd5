//! The control file: what start-up must know before it can read anything else.
//!
//! It has two slots of one sector each, 4096 bytes apart. A new state is written to both, the older
//! slot first. The valid slot with the higher generation counts. A crash while one is written
//! leaves the other. Afterwards either slot alone is sufficient. So damage to one of them is
//! harmless, although log that only an older state needs is removed. `docs/format.md` specifies the
//! bytes.
//!
//! What start-up reads may be only in the operating system's cache. So it is rewritten before
//! anything depends on it.
//!
//! A slot is one sector, so a crash leaves it old or new, never mixed. A slot that is neither valid
//! nor empty is therefore damage, or not ours. Such a directory is never treated as a new one.
//!
//! Opening a directory of an older readable version upgrades it: [`Control::renew`] runs before the
//! first record that the older version does not know.

use std::io;
use std::path::Path;
use std::sync::Arc;

use clearway_buffer::{PAGE_SIZE, SECOND_LEVEL_FILE};
use clearway_env::{Disk, File, Open};
use clearway_types::Lsn;

use crate::error::OpenError;

const MAGIC: &[u8; 8] = b"CLEARWAY";
/// The version that is written. Since version 2 the log may have additions, and since version 3 the
/// catalog may have CHECK constraints, which older releases would ignore.
const VERSION: u32 = 3;
/// The oldest version that can be read.
const OLDEST: u32 = 1;
const SLOT_STRIDE: u64 = 4096;
const SLOT: usize = 64;
const CRC_AT: usize = SLOT - 4;
const PAGE_SIZE_AT: usize = 48;
const BYTE_ORDER_AT: usize = 52;
const DURABLE_AT: usize = 56;
/// Little-endian, like all integers of the format, so that a directory can be moved between
/// machines.
const BYTE_ORDER: [u8; 4] = 0x0102_0304_u32.to_le_bytes();

/// Returns true for a name that the root of a new file system contains.
pub(crate) fn is_in_new_file_system(name: &str) -> bool {
    name == "lost+found"
}

/// Refuses a directory that holds other files, before anything is created in it.
pub(crate) fn refuse_foreign(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let shown = dir.display();
    let names = disk.list(dir).map_err(OpenError::io(format!("cannot look into {shown}")))?;
    // Files that may exist without a control file: those of a start that crashed, a socket and a
    // second-level cache that are configured to be here, and what a new file system contains.
    let ours = |n: &String| {
        matches!(n.as_str(), "lock" | "wal" | "data" | SECOND_LEVEL_FILE)
            || is_in_new_file_system(n)
            || n.starts_with(".s.PGSQL.")
    };
    match names.iter().find(|name| !ours(name)) {
        Some(other) if !names.iter().any(|name| name == "control") => {
            Err(OpenError::Refused(format!(
                "{shown} is not empty and has no control file: it is not a Clearway data directory (it contains {other})"
            )))
        }
        _ => Ok(()),
    }
}

/// The content of the control file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// True if the directory was completely created. If not, nothing in it counts.
    pub(crate) complete: bool,
    pub(crate) partitions: u16,
    /// Pages contain all changes of records before this LSN.
    pub(crate) redo: Lsn,
    /// The log is kept from here on: it has all records of transactions that were active at the
    /// checkpoint.
    pub(crate) scan_from: Lsn,
    /// Greater than every transaction id in the log before `scan_from`.
    pub(crate) next_txn: u64,
    /// The log was durable up to here when this was written. If log before it is missing, it was
    /// lost.
    pub(crate) durable: Lsn,
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
    for (i, word) in
        [generation, state.redo.0, state.scan_from.0, state.next_txn].into_iter().enumerate()
    {
        out[16 + 8 * i..24 + 8 * i].copy_from_slice(&word.to_le_bytes());
    }
    out[PAGE_SIZE_AT..PAGE_SIZE_AT + 4].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    out[BYTE_ORDER_AT..BYTE_ORDER_AT + 4].copy_from_slice(&BYTE_ORDER);
    let beyond =
        u32::try_from(state.durable.0.saturating_sub(state.redo.0) / 8).unwrap_or(u32::MAX);
    out[DURABLE_AT..DURABLE_AT + 4].copy_from_slice(&beyond.to_le_bytes());
    let crc = crc32c::crc32c(&out[..CRC_AT]);
    out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Why a slot that is not empty cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unusable {
    /// The slot is damaged, or not ours; the other slot may be usable.
    Damaged,
    /// The slot is ours and valid, but this program does not support its format.
    Foreign(String),
}

/// Checks that this program supports the slot's format.
fn check_maker(slot: &[u8; SLOT], whole: bool) -> Result<(), Unusable> {
    let u32_at =
        |at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
    let mut swapped = BYTE_ORDER;
    swapped.reverse();
    let foreign = |why: String| Err(Unusable::Foreign(why));
    match (u32_at(8), u32_at(PAGE_SIZE_AT)) {
        _ if slot[BYTE_ORDER_AT..BYTE_ORDER_AT + 4] == swapped => {
            foreign("was made on a machine with the other byte order".to_owned())
        }
        _ if !whole => Err(Unusable::Damaged),
        (version, _) if version > VERSION => foreign(format!(
            "is of format version {version}, made by a newer release; this one reads versions {OLDEST} to {VERSION}"
        )),
        (version, _) if version < OLDEST => foreign(format!(
            "is of format version {version}; this release reads versions {OLDEST} to {VERSION}"
        )),
        // Directories created before the size was recorded have 0.
        (_, size) if size != 0 && size != PAGE_SIZE as u32 => foreign(format!(
            "has pages of {size} bytes; this release has pages of {PAGE_SIZE} bytes"
        )),
        _ => Ok(()),
    }
}

/// Decodes the generation and state of a slot. Returns `None` if the slot is empty.
fn decode(slot: &[u8; SLOT]) -> Result<Option<(u64, State)>, Unusable> {
    if slot.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap_or_default());
    let crc = u32::from_le_bytes(slot[CRC_AT..].try_into().unwrap_or_default());
    if !slot.starts_with(MAGIC) {
        return Err(Unusable::Damaged);
    }
    check_maker(slot, crc32c::crc32c(&slot[..CRC_AT]) == crc)?;
    let state = State {
        complete: slot[12] != 0,
        partitions: u16::from_le_bytes([slot[14], slot[15]]),
        redo: Lsn(word(24)),
        scan_from: Lsn(word(32)),
        next_txn: word(40),
        durable: Lsn(word(24).saturating_add((word(56) & u64::from(u32::MAX)) * 8)),
    };
    Ok(Some((word(16), state)))
}

impl Control {
    /// Opens the file. Creates an empty one, with the default state, if there is none.
    ///
    /// # Errors
    /// The disk's errors. Also fails if the file is not ours, has another version, byte order or
    /// page size, or has no valid slot but a damaged one.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        let io = |doing: &str| OpenError::io(format!("{doing} {name}"));
        let file = disk.open(path, Open::OpenOrCreate).map_err(io("cannot open"))?;
        let (mut best, mut damaged) = (None::<(u64, State)>, 0);
        for slot in 0..2 {
            let mut bytes = [0; SLOT];
            file.read_zero_filled_at(&mut bytes, slot * SLOT_STRIDE).map_err(io("cannot read"))?;
            match decode(&bytes) {
                Ok(found) => {
                    best = best.into_iter().chain(found).max_by_key(|(generation, _)| *generation)
                }
                Err(Unusable::Damaged) => damaged += 1,
                Err(Unusable::Foreign(why)) => {
                    return Err(OpenError::Refused(format!("{name} {why}")));
                }
            }
        }
        if best.is_none() && damaged > 0 {
            let what = "it is damaged or not a Clearway control file";
            return Err(io("cannot use")(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let (generation, state) = best.unwrap_or_default();
        Ok(Self { file, name, generation, state })
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns the offsets of the slots that are neither valid nor empty.
    pub(crate) fn damaged_slots(&self) -> io::Result<Vec<u64>> {
        let mut damaged = Vec::new();
        for offset in [0, SLOT_STRIDE] {
            let mut bytes = [0; SLOT];
            self.file.read_zero_filled_at(&mut bytes, offset)?;
            if decode(&bytes).is_err() {
                damaged.push(offset);
            }
        }
        Ok(damaged)
    }

    /// Rewrites the state. The process that wrote it may have been killed before syncing it, or may
    /// have failed to sync it.
    pub(crate) fn renew(&mut self) -> Result<(), OpenError> {
        self.write(self.state)
    }

    /// Writes a new state to both slots. When this returns, the state is in effect and survives a
    /// crash, and damage to one slot.
    pub(crate) fn write(&mut self, state: State) -> Result<(), OpenError> {
        for _slot in 0..2 {
            let generation = self.generation + 1;
            let io = || OpenError::io(format!("cannot write {}", self.name));
            self.file
                .write_all_at(&encode(&state, generation), generation % 2 * SLOT_STRIDE)
                .map_err(io())?;
            self.file.sync_data().map_err(io())?;
            (self.generation, self.state) = (generation, state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_round_trips_and_damage_is_detected() {
        let state = State {
            complete: true,
            partitions: 7,
            redo: Lsn(8),
            scan_from: Lsn(16),
            next_txn: 99,
            durable: Lsn(808),
        };
        let slot = encode(&state, 5);
        assert_eq!(decode(&slot), Ok(Some((5, state))));
        assert_eq!(decode(&[0; SLOT]), Ok(None));
        for at in 0..SLOT {
            let mut bad = slot;
            bad[at] ^= 4;
            assert_eq!(decode(&bad), Err(Unusable::Damaged), "byte {at}");
        }
    }

    /// Disks outlive releases: these bytes are format version 3.
    #[test]
    fn the_format_stays() {
        let state = State {
            complete: true,
            partitions: 7,
            redo: Lsn(8),
            scan_from: Lsn(16),
            next_txn: 99,
            durable: Lsn(808),
        };
        let expected: [u8; SLOT] = *b"CLEARWAY\x03\0\0\0\x01\0\x07\0\x05\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\
            \x10\0\0\0\0\0\0\0\x63\0\0\0\0\0\0\0\0\x20\0\0\x04\x03\x02\x01\x64\0\0\0\x26\xeb\x97\x8d";
        assert_eq!(encode(&state, 5), expected);
    }

    fn resealed(change: impl Fn(&mut [u8; SLOT])) -> Result<Option<(u64, State)>, Unusable> {
        let mut slot = encode(&State::default(), 1);
        change(&mut slot);
        let crc = crc32c::crc32c(&slot[..CRC_AT]);
        slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        decode(&slot)
    }

    #[test]
    fn unsupported_directory_error_names_the_reason() {
        let says = |change: &dyn Fn(&mut [u8; SLOT]), what: &str| match resealed(change) {
            Err(Unusable::Foreign(why)) => assert!(why.contains(what), "{why}"),
            other => panic!("{other:?}, not {what}"),
        };
        says(&|slot| slot[8] = 4, "made by a newer release");
        says(&|slot| slot[8] = 0, "format version 0");
        says(&|slot| slot[PAGE_SIZE_AT + 1] = 0x40, "pages of 16384 bytes");
        says(&|slot| slot[BYTE_ORDER_AT..BYTE_ORDER_AT + 4].reverse(), "byte order");
        for older in [1, 2] {
            assert_eq!(resealed(|slot| slot[8] = older), Ok(Some((1, State::default()))));
        }
        // Directories created before page size and byte order were recorded.
        assert_eq!(
            resealed(|slot| slot[PAGE_SIZE_AT..CRC_AT].fill(0)),
            Ok(Some((1, State::default())))
        );
    }
}
