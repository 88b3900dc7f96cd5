//! All interleavings of two threads that execute verbs on the same words.

use super::{Executor, compare_exchange};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

fn zeros<const N: usize>() -> Arc<[AtomicU64; N]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

/// The owner's CPU and a peer's verbs lock the same row: word 0 is the lock, two words follow. An
/// update that starts from a torn or old payload would be lost.
#[test]
fn the_cpu_and_verbs_exclude_each_other() {
    loom::model(|| {
        let row = zeros::<3>();
        let of_peer = Arc::clone(&row);
        let peer = thread::spawn(move || {
            let mut verbs = Executor::default();
            if verbs.cas(&of_peer[0], 0, 1) != 0 {
                return 0;
            }
            let mut payload = [0; 2];
            verbs.read(&of_peer[1..], &mut payload);
            assert_eq!(payload[0], payload[1], "a torn payload");
            verbs.write(&of_peer[1..], &payload.map(|word| word + 1));
            assert_eq!(verbs.cas(&of_peer[0], 1, 0), 1, "the peer's lock was lost");
            1
        });
        let mut updates = 0;
        // The orderings of a region's `load` and `store`.
        if compare_exchange(&row[0], 0, 2) == 0 {
            let payload = [1, 2].map(|word: usize| row[word].load(Ordering::Acquire));
            assert_eq!(payload[0], payload[1], "a torn payload");
            row[1].store(payload[0] + 1, Ordering::Release);
            row[2].store(payload[1] + 1, Ordering::Release);
            assert_eq!(compare_exchange(&row[0], 2, 0), 2, "the owner's lock was lost");
            updates = 1;
        }
        updates += peer.join().unwrap();
        let words = [0, 1, 2].map(|word: usize| row[word].load(Ordering::Acquire));
        assert_eq!(words, [0, updates, updates]);
    });
}

/// Readers that are counted by FAA while they READ see no payload that is being written.
#[test]
fn a_counted_reader_sees_a_whole_payload() {
    const WRITER: u64 = 1 << 32;
    loom::model(|| {
        let row = zeros::<3>();
        let of_writer = Arc::clone(&row);
        let writer = thread::spawn(move || {
            let mut verbs = Executor::default();
            if verbs.cas(&of_writer[0], 0, WRITER) == 0 {
                verbs.write(&of_writer[1..], &[7, 7]);
                verbs.faa(&of_writer[0], WRITER.wrapping_neg());
            }
        });
        let (mut verbs, mut payload) = (Executor::default(), [0; 2]);
        let found = verbs.faa(&row[0], 1);
        verbs.read(&row[1..], &mut payload);
        if found < WRITER {
            assert_eq!(payload[0], payload[1], "a torn payload");
        }
        verbs.faa(&row[0], 1_u64.wrapping_neg());
        writer.join().unwrap();
        assert_eq!(row[0].load(Ordering::Acquire), 0);
    });
}

/// Rule 2: a WRITE has landed before a later READ. Two workers that each WRITE their word and then
/// READ the other's cannot both miss the other's.
#[test]
fn a_write_is_visible_before_a_later_read() {
    loom::model(|| {
        let words = zeros::<2>();
        let of_other = Arc::clone(&words);
        let run = |words: &[AtomicU64; 2], own: usize| {
            let (mut verbs, mut found) = (Executor::default(), [0]);
            verbs.write(&words[own..=own], &[1]);
            verbs.read(&words[1 - own..2 - own], &mut found);
            found[0]
        };
        let other = thread::spawn(move || run(&of_other, 1));
        let found = run(&words, 0);
        assert!(found + other.join().unwrap() > 0, "neither WRITE was visible");
    });
}
