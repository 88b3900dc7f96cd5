//! Log records: a parsed record encodes to the same bytes. Any sequence of records, applied to a
//! new page as redo does, leaves a page that can be read.

use clearway_buffer::PAGE_SIZE;
use clearway_storage::fuzzing;

/// Runs an input: a sequence of records, each after its length as a u16.
pub(super) fn run(data: &[u8]) {
    let mut page = [0; PAGE_SIZE];
    let mut rest = data;
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (payload, tail) = tail.split_at(usize::from(u16::from_le_bytes(*len)).min(tail.len()));
        rest = tail;
        if let Some(again) = fuzzing::reencode(payload) {
            assert_eq!(payload, again);
        }
        fuzzing::redo(&mut page, payload);
    }
    fuzzing::read_page(&page, data);
}
