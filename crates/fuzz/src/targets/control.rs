//! The control file of a directory that the engine made. The directory opens or fails with an
//! error. If it opens, it can be opened again.

use super::directory::{base, walk};
use crate::input::Input;
use crate::seal;
use std::path::Path;

/// Corrects the slots' checksums.
pub(crate) const SEAL: u8 = 1;
const SLOT: usize = 64;
const STRIDE: usize = 4096;

/// Runs an input: flags, then up to two slots of the control file.
pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let mut file = vec![0; STRIDE + SLOT];
    for at in [0, STRIDE] {
        let slot = input.bytes(SLOT);
        file[at..at + slot.len()].copy_from_slice(slot);
        if flags & SEAL != 0 && !slot.is_empty() {
            seal::control_slot(&mut file[at..at + SLOT]);
        }
    }
    let mut image = base().clone();
    for (path, bytes) in &mut image.0 {
        if *path == Path::new("db/control") {
            bytes.clone_from(&file);
        }
    }
    walk(&image);
}
