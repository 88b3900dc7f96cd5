//! What is kept of rows that change all the time, and what is removed.

use super::*;

fn kept_lost(versions: &Versions) -> Lsn {
    versions.kept.as_ref().expect("images are kept").lost
}

/// Invariant 3: a row that changes all the time has one image for each snapshot, in memory or in
/// the file.
#[test]
fn hot_rows_leave_one_image_per_snapshot() {
    let mut twins = Twins::new(1, Setting { keys: 100_000, budget: 200_000, ..ROOMY });
    let hot = (TREES[0], b"hot".to_vec());
    for snapshots in 1..=2 {
        twins.open();
        for _ in 0..4000 {
            for row in [hot.clone(), twins.random_row()] {
                twins.end += 8;
                let commit = Lsn(twins.end);
                let before = twins.now.get(&row).cloned();
                twins.put(&row, Some(commit.0.to_le_bytes().to_vec()));
                twins.both(|v| {
                    v.changed_autocommit(commit, row.0, &row.1, before.clone().map(Into::into))
                });
            }
            twins.writes.drain(..).for_each(SpillWrite::run);
        }
        let images = |v: &Versions| {
            let kept = v.kept.as_ref().expect("images are kept");
            kept.chains
                .get(&hot.0)
                .and_then(|chains| Some(chains.get(&hot.1[..])?.len()))
                .unwrap_or(0)
        };
        assert_eq!((images(&twins.large), kept_lost(&twins.small)), (snapshots, Lsn(0)));
        assert!(twins.small.spill.bytes() > 0 && images(&twins.small) <= snapshots);
        let at = twins.open.last().expect("it is open").snapshot.lsn();
        let as_of = AsOf { at, me: TxnId(u64::MAX), repeatable: true };
        let (tree, key) = hot.clone();
        let spilled = twins.with_reads(as_of, move |v, _| {
            Ok(v.spill.before(tree, &key, v.reader(as_of))?.has_value())
        });
        // What the newest snapshot needs is only in memory.
        assert_eq!(spilled, Some(false));
    }
}

/// The same for a row with additions: by one-shots, and by transactions of which two are always
/// active.
#[test]
fn incremented_rows_leave_one_image_per_snapshot() {
    let mut twins = Twins::new(1, ROOMY);
    let (tree, key) = (TREES[0], b"hot".to_vec());
    twins.put(&(tree, key.clone()), Some(vec![0; 30]));
    let mut active = Vec::new();
    for snapshots in 1..=3 {
        twins.open();
        for n in 0..1000_u64 {
            let addends = random_addends(&mut twins.rng);
            twins.end += 8;
            let commit = Lsn(twins.end);
            twins.both(|v| v.added_autocommit(commit, tree, &key, &addends));
            let txn = TxnId(1 + n + 1000 * snapshots);
            twins.both(|v| v.added(txn, tree, &key, &addends));
            active.push(txn);
            if active.len() > 2 {
                twins.end += 8;
                let (txn, commit) = (active.remove(0), Lsn(twins.end));
                twins.both(|v| v.committed(txn, commit));
            }
        }
        let images =
            twins.large.kept.as_ref().map_or(0, |kept| kept.chains[&tree][&key[..]].len() as u64);
        // One for each snapshot, and those of active writers.
        assert!(images <= snapshots + 2, "{images} images with {snapshots} snapshots");
    }
}

/// Invariant 3: snapshots that have closed leave no images, although an older one is open. Three
/// others are open at any time.
#[test]
fn closed_snapshots_leave_no_images() {
    const OPEN: usize = 4;
    for percent_added in [0, 50, 100] {
        let mut twins = Twins::new(1, ROOMY);
        let hot = (TREES[0], b"hot".to_vec());
        twins.commit_autocommit(&hot, vec![0; 30]);
        let mut most = 0;
        for _ in 0..2000 {
            twins.open();
            if twins.open.len() > OPEN {
                twins.open.remove(1);
            }
            for _ in 0..2 {
                let mut value = twins.now[&hot].clone();
                if twins.rng.below(100) < percent_added {
                    let addends = random_addends(&mut twins.rng);
                    assert!(addends.add_to(&mut value));
                    let commit = twins.commit_autocommit(&hot, value);
                    twins.both(|v| v.added_autocommit(commit, hot.0, &hot.1, &addends));
                } else {
                    let before = Some(value.clone().into());
                    value[29] = value[29].wrapping_add(1);
                    let commit = twins.commit_autocommit(&hot, value);
                    twins.both(|v| v.changed_autocommit(commit, hot.0, &hot.1, before.clone()));
                }
            }
            let kept = twins.large.kept.as_ref().expect("images are kept");
            most = most.max(kept.chains[&hot.0][&hot.1[..]].len());
            for Open { snapshot, sees, .. } in &twins.open {
                let as_of = AsOf { at: snapshot.lsn(), me: TxnId(u64::MAX), repeatable: true };
                let now = twins.now.get(&hot).map(Vec::as_slice);
                let value = twins.large.value_at(hot.0, &hot.1, now, as_of).expect("it is kept");
                assert_eq!(value.as_deref(), sees.get(&hot).map(Vec::as_slice));
            }
        }
        assert!((OPEN..=4 * OPEN).contains(&most), "{most} images, {percent_added} % additions");
        let kept = twins.large.kept.as_ref().expect("images are kept");
        assert!(kept.committed.len() <= 4 * OPEN && kept.bytes <= 8 * OPEN * IMAGE);
    }
}

/// Random histories of so few rows that each has many images.
#[test]
fn images_of_few_rows_are_seen() {
    let seen = run(60, Setting { keys: 3, ..ROOMY });
    assert!(seen.reads > 5000 && seen.old > 1000, "{} {}", seen.reads, seen.old);
    let spilled = run(30, Setting { keys: 3, budget: 500, slot: 256, ..ROOMY });
    assert!(spilled.spilled > 500, "{}", spilled.spilled);
}

/// A failed write only uses memory.
#[test]
fn everything_is_freed_when_the_last_snapshot_closes() {
    for faults in [&[][..], &[Fault::FailedWrite]] {
        let mut twins = run(3, Setting { faults, ..ROOMY });
        twins.snapshots.retire();
        twins.both(|v| v.tidy());
        assert_eq!((twins.small.bytes(), twins.large.bytes()), (0, 0));
        assert!(twins.small.kept.is_none() && twins.small.spill.is_empty());
    }
}
