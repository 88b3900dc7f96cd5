//! Tests of the operations that the ring requests from the kernel.

use std::io::Write as _;

use super::*;
use crate::test_files::Scratch;
use crate::{ALIGN, Disk, Open, OsDisk};
use io_uring::opcode;

/// A part of a memory, as the target of a read.
struct Part(IoMemory, usize, usize);

// SAFETY: the part keeps the memory alive, and nobody reads or writes it here.
unsafe impl ReadTarget for Part {
    fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: the test's parts are inside the memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr().add(self.1), self.2) }
    }
    fn done(self: Box<Self>, _: io::Result<usize>) {}
}

#[test]
fn only_transfers_within_one_buffer_use_it() {
    let limits = Limits { buffer: 4 * ALIGN, buffers: 2 };
    let (memory, other) = (IoMemory::new(8 * ALIGN, ALIGN), IoMemory::new(ALIGN, ALIGN));
    let mut table = Table::new(limits);
    let registered = make_ring().and_then(|ring| table.add(&ring, memory.clone()).map(|()| ring));
    let Ok(ring) = registered.inspect_err(|error| {
        writeln!(io::stderr(), "SKIPPED registered buffers: {error}").expect("said");
    }) else {
        return;
    };
    let scratch = Scratch::new("ring-operations");
    let file = OsDisk.open_pages(&scratch.0.join("file"), Open::Create).expect("created");
    let operation = |memory: &IoMemory, at: usize, len: usize, done: usize| {
        let batch = Arc::new(Batch(Monitor::new(&BATCH, (1, None))));
        [End::Read(Box::new(Part(memory.clone(), at, len))), End::Write(0, batch)].map(|end| {
            let memory = memory.start().as_ptr().wrapping_add(at);
            let mut flight = Flight {
                file: Arc::clone(&file),
                offset: 0,
                memory,
                progress: Progress::new(len),
                end,
            };
            assert!(done == 0 || flight.completed(done as i32).is_none(), "there is more to do");
            flight.operation(0, &table).expect("a file with a descriptor").entry().get_opcode()
                as u8
        })
    };
    let fixed = [opcode::ReadFixed::CODE, opcode::WriteFixed::CODE];
    let plain = [opcode::Read::CODE, opcode::Write::CODE];
    assert_eq!(operation(&memory, 0, ALIGN, 0), fixed);
    assert_eq!(operation(&memory, 3 * ALIGN, ALIGN, 0), fixed);
    assert_eq!(operation(&memory, 3 * ALIGN, 2 * ALIGN, 0), plain, "in two buffers");
    assert_eq!(
        operation(&memory, 3 * ALIGN, 2 * ALIGN, ALIGN),
        fixed,
        "the rest of the transfer is in one buffer"
    );
    assert_eq!(operation(&other, 0, ALIGN, 0), plain);
    drop(ring);
}
