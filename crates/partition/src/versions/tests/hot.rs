//! What is kept of rows that are changed all the time, and what is let go.

use super::*;

fn kept_lost(versions: &Versions) -> Lsn {
    versions.kept.as_ref().expect("images are kept").lost
}

/// Invariant 3: a row that is changed all the time has one image for each snapshot, wherever it is.
#[test]
fn a_hot_row_leaves_one_image_for_each_snapshot() {
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
                    v.changed_for_good(commit, row.0, &row.1, before.clone().map(Into::into))
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
        let spilled =
            twins.patiently(as_of, move |v, _| Ok(v.spill.before(tree, &key, at)?.value.is_some()));
        // What the newest snapshot needs is in memory alone.
        assert_eq!(spilled, Some(false));
    }
}

/// The same of a row that is added to: by one-shots, and by transactions of which two are active
/// all the time.
#[test]
fn a_row_that_is_added_to_leaves_one_image_for_each_snapshot() {
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
            twins.both(|v| v.added_for_good(commit, tree, &key, &addends));
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
        // Of each snapshot one, and those whose writers are active now.
        assert!(images <= snapshots + 2, "{images} images with {snapshots} snapshots");
    }
}

/// A failed write takes room in memory, no more.
#[test]
fn everything_is_let_go_when_the_last_snapshot_closes() {
    for faults in [&[][..], &[Fault::FailedWrite]] {
        let mut twins = run(3, Setting { faults, ..ROOMY });
        twins.snapshots.retire();
        twins.both(|v| v.tidy());
        assert_eq!((twins.small.bytes(), twins.large.bytes()), (0, 0));
        assert!(twins.small.kept.is_none() && twins.small.spill.is_empty());
    }
}
