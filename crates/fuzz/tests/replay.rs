//! Runs every kept input and a few deterministic mutations of each. No thread may panic, and no
//! property may fail.

use clearway_fuzz::mutate::mutate;
use clearway_fuzz::{TARGETS, Target, corpus};
use clearway_testkit::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of the whole corpus, in bytes.
const MOST: usize = 500 << 10;

/// Number of panics in all threads. A panic in one of the engine's threads does not fail the test
/// by itself.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Relaxed: the counter is read after the threads that may panic were joined, or in this
            // very thread.
            PANICS.fetch_add(1, Ordering::Relaxed);
            shown(info);
        }));
    });
}

fn run(target: &Target, what: &str, bytes: &[u8]) {
    count_panics();
    let before = PANICS.load(Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    let panics = PANICS.load(Ordering::Relaxed) - before;
    assert!(
        result.is_ok() && panics == 0,
        "{}: {what}: {:?}",
        target.name,
        String::from_utf8_lossy(bytes)
    );
}

/// One test runs all targets, so that a panic in any thread belongs to the running input.
#[test]
fn corpus_and_its_mutations_find_no_bug() {
    let mut total = 0;
    for target in TARGETS {
        let files = corpus::read(target.name).unwrap_or_else(|e| panic!("{}: {e}", target.name));
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        for (name, bytes) in &files {
            total += bytes.len();
            run(target, name, bytes);
        }
        let mut rng = Rng::new(0x00C1_EA2A);
        for _ in 0..target.mutations {
            let (name, mut bytes) = files[rng.below(files.len() as u64) as usize].clone();
            mutate(&mut bytes, &files[rng.below(files.len() as u64) as usize].1, &mut rng);
            run(target, &format!("a mutation of {name}"), &bytes);
        }
    }
    assert!(
        total < MOST,
        "the corpus has {total} bytes: minimise it with `cargo xtask fuzz --merge`"
    );
}

#[test]
fn every_directory_of_the_corpus_has_a_target() {
    let root = corpus::dir("x").with_file_name("");
    for entry in std::fs::read_dir(root).expect("the corpus") {
        let name = entry.expect("the corpus").file_name().to_string_lossy().into_owned();
        assert!(TARGETS.iter().any(|t| t.name == name), "{name}");
    }
}
