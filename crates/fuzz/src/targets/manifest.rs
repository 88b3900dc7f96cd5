//! A backup's manifest. An accepted manifest is the same after it was written and read.

use crate::input::Input;
use clearway_storage::backup::Manifest;

/// Runs an input: whether to add a correct checksum as the last line, then the text.
pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sealed = input.u8() & 1 == 1;
    let mut text = input.rest().to_vec();
    if sealed {
        let sum = crc32c::crc32c(&text);
        text.extend_from_slice(format!("sum {sum:08x}\n").as_bytes());
    }
    let Ok(manifest) = Manifest::parse(&text) else { return };
    assert!(manifest.bytes() < u64::MAX / 2);
    assert_eq!(Manifest::parse(manifest.encode().as_bytes()).as_ref(), Ok(&manifest));
}
