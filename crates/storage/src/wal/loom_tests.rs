//! Interleavings of appenders and the flusher in the ring.
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-storage --release --lib loom`

use loom::sync::Arc;
use loom::thread;

use super::record::{self, HEADER, Header};
use super::record_size;
use super::ring::Ring;

/// Appends a record of 8 bytes, all of them `n`.
fn append(ring: &Ring, n: u8) -> u64 {
    let payload = [n; 8];
    let size = record_size(payload.len());
    let start = ring.reserve(size);
    while ring.filled_to(start + size) > ring.capacity() {
        thread::yield_now();
    }
    let crc = record::payload_crc(&[&payload]);
    ring.fill(start, record::seal(crc, HEADER + payload.len(), start, start), &[&payload[..3], &payload[3..]]);
    start + size
}

/// Drains until `end`; what the records held, in order.
fn drain(ring: &Ring, mut at: u64, end: u64) -> Vec<u8> {
    let mut seen = Vec::new();
    while at < end {
        let mut bytes = Vec::new();
        let next = ring.drain(at, 1 << 10, &mut bytes);
        if next == at {
            thread::yield_now();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = Header::parse(rest, at).expect("a drained record has its header");
            assert!(header.verify(&rest[..header.len()]), "a drained record is whole");
            assert!(rest[HEADER..HEADER + 8].iter().all(|byte| *byte == rest[HEADER]));
            seen.push(rest[HEADER]);
            rest = &rest[(header.end() - at) as usize..];
            at = header.end();
        }
        assert_eq!(at, next);
    }
    seen
}

/// The table of a word's states: two appenders fill at once, the flusher takes whole records only, each once.
#[test]
fn loom_two_fill_while_one_drains() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(64, 8));
        let threads: Vec<_> = [1, 2]
            .map(|n| {
                let ring = ring.clone();
                thread::spawn(move || append(&ring, n))
            })
            .into();
        let mut seen = drain(&ring, 8, 8 + 2 * record_size(8));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
        for thread in threads {
            thread.join().expect("the appender did not panic");
        }
    });
}

/// Invariant 2: a record that reuses words is filled only after they were drained and zeroed, so that the flusher never
/// takes the old record's words for the new one's.
#[test]
fn loom_a_lap_of_the_ring() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(64, 8));
        let appender = {
            let ring = ring.clone();
            thread::spawn(move || {
                for n in 1..=3 {
                    append(&ring, n);
                }
            })
        };
        assert_eq!(drain(&ring, 8, 8 + 3 * record_size(8)), [1, 2, 3]);
        appender.join().expect("the appender did not panic");
    });
}
