//! The images of active transactions: in the file, and without one.

use super::*;

const LARGE: Setting = Setting { keys: 10_000, budget: 200_000, slot: 8_192, ..ROOMY };

/// Opens a snapshot, and lets a transaction change 5,000 rows of two trees.
fn with_large_transaction(setting: Setting, start: Option<Vec<u8>>) -> Twins {
    let mut twins = Twins::new(1, setting);
    let rows = (0..5_000).map(|n| (TREES[n as usize % 2], key(2 * n)));
    for row in rows.clone() {
        twins.commit_autocommit(&row, start.clone());
    }
    twins.open();
    let id = TxnId(1);
    twins.next_txn = 2;
    let mut undo = BTreeMap::new();
    for row in rows {
        let before = twins.now.get(&row).cloned();
        twins.both(|v| v.changed(id, row.0, &row.1, before.clone().map(Into::into)));
        twins.put(&row, Some(vec![2; 30]));
        undo.insert(row, before);
        twins.writes.drain(..).for_each(SpillWrite::run);
    }
    twins.writers.push(Writer { id, undo, added: Vec::new(), locks: BTreeSet::new() });
    twins
}

fn kept(versions: &Versions) -> &Kept {
    versions.kept.as_ref().expect("images are kept")
}

#[test]
fn images_of_active_transactions_go_to_the_file() {
    for (commits, start) in
        [(true, Some(vec![1; 30])), (false, Some(vec![1; 30])), (true, None), (false, None)]
    {
        let mut twins = with_large_transaction(LARGE, start);
        assert!(twins.large.bytes() > 1_000_000);
        let small = &twins.small;
        assert!(small.spill.active_memory() > 0 && small.bytes() < 250_000, "{}", small.bytes());
        assert!(kept(small).active[&TxnId(1)].len() < 2_000, "the list has what is in memory");
        (0..100).for_each(|_| twins.compare());
        assert!(twins.spilled > 20, "{}", twins.spilled);
        wait_for_committing(&mut twins);
        // Other images go to the file meanwhile, and other transactions end.
        for n in 0..1_000 {
            match n % 4 {
                0 => twins.change_autocommitted(),
                1 => twins.change(),
                2 => twins.add(),
                _ => twins.compare(),
            }
            twins.writes.drain(..).for_each(SpillWrite::run);
        }
        let at = twins.writers.iter().position(|writer| writer.id == TxnId(1)).expect("active");
        twins.end_of(at, commits);
        (0..100).for_each(|_| twins.compare());
        twins.open();
        (0..100).for_each(|_| twins.compare());
        assert_eq!((kept(&twins.small).lost, twins.failed), (Lsn(0), 0));
        while !twins.writers.is_empty() {
            twins.end_of(0, true);
        }
        twins.open.clear();
        twins.both(|v| v.tidy());
        assert!(twins.small.spill.is_empty() && !twins.small.spill.has_active(TxnId(1)));
    }
}

/// While the transaction commits, its readers wait, unless they do not need its images.
fn wait_for_committing(twins: &mut Twins) {
    let snapshots = twins.snapshots.clone();
    let _committing = snapshots.commit(TxnId(1));
    let at = twins.open[0].snapshot.lsn();
    for (me, waits) in [(TxnId(9), true), (TxnId(1), false)] {
        let as_of = AsOf { at, me, repeatable: true };
        for n in [0, 1_000, 4_999] {
            let row = (TREES[n as usize % 2], key(2 * n));
            let value = twins.with_reads(as_of, |v, now| {
                match v.value_at(row.0, &row.1, now.get(&row).map(Vec::as_slice), as_of) {
                    Err(Stop::Commit(writer)) => Ok(Err(writer)),
                    value => value.map(|value| Ok(value.map(Cow::into_owned))),
                }
            });
            let expected = if waits { Err(TxnId(1)) } else { Ok(Some(vec![2; 30])) };
            assert_eq!(value, Some(expected), "{n}");
            let (from, to) = (Bound::Included(row.1.clone()), Bound::Unbounded);
            let rows = twins.with_reads(as_of, |v, now| {
                match scan(v, now, row.0, (&from, &to), false, as_of) {
                    Err(Stop::Commit(writer)) => Ok(Err(writer)),
                    rows => rows.map(|rows| Ok(rows.len())),
                }
            });
            assert!(matches!((rows, waits), (Some(Err(TxnId(1))), true) | (Some(Ok(_)), false)));
            let since =
                twins.with_reads(as_of, |v, _| match v.since(row.0, &row.1, as_of, false) {
                    Err(Stop::Commit(writer)) => Ok(Err(writer)),
                    since => since.map(Ok),
                });
            let expected = if waits { Err(TxnId(1)) } else { Ok(Since::Unchanged) };
            assert_eq!(since, Some(expected), "{n}");
        }
    }
}

/// Without a file they stay in memory, and leave half of the budget to the others.
#[test]
fn active_images_take_half_of_the_budget() {
    let mut twins = with_large_transaction(Setting { slots: 0, ..LARGE }, None);
    for n in 0..200 {
        let row = (TREES[1], key(2 * n + 1));
        let commit = twins.commit_autocommit(&row, vec![1]);
        twins.both(|v| v.changed_autocommit(commit, row.0, &row.1, None));
    }
    let kept = kept(&twins.small);
    assert!(kept.bytes > 1_000_000 && kept.committed.len() == 200 && kept.lost == Lsn(0));
    assert!(twins.small.spill.is_empty());
}

/// A block that cannot be read fails snapshots: all of them while a transaction is active that has
/// images in it, and after its commit those that do not see it.
#[test]
fn unreadable_blocks_fail_snapshots_until_their_writers_end() {
    for commits in [true, false] {
        let faults = &[Fault::FailedRead];
        let mut twins = with_large_transaction(Setting { faults, ..LARGE }, Some(vec![1; 30]));
        for _ in 0..1_000 {
            twins.compare();
        }
        assert!(kept(&twins.small).unreadable.contains(&TxnId(1)));
        let old = twins.open[0].snapshot.lsn();
        let check = |twins: &Twins, at| {
            twins.small.check(AsOf { at, me: TxnId(9), repeatable: true }).is_ok()
        };
        twins.open();
        let newer = twins.open[1].snapshot.lsn();
        assert!(!check(&twins, old) && !check(&twins, newer));
        twins.end_of(0, commits);
        twins.open();
        let newest = twins.open[2].snapshot.lsn();
        assert!(check(&twins, newest), "it needs none of these images");
        assert_eq!((check(&twins, old), check(&twins, newer)), (!commits, !commits));
    }
}

/// A transaction that has retired its locks reads its own changes, not those that go on from them.
/// A successor that is undone runs again with the same id.
#[test]
fn owner_of_retired_rows_reads_its_own_changes() {
    let mut twins = with_large_transaction(LARGE, Some(vec![1; 30]));
    let rows: Vec<Row> = twins.writers[0].undo.keys().cloned().collect();
    let successor = TxnId(2);
    for run in 0..3 {
        for row in &rows {
            let before = twins.now.get(row).cloned();
            twins.both(|v| v.changed(successor, row.0, &row.1, before.clone().map(Into::into)));
            twins.put(row, Some(vec![3 + run; 30]));
            twins.writes.drain(..).for_each(SpillWrite::run);
        }
        let at = twins.open[0].snapshot.lsn();
        for (me, sees) in [(TxnId(1), 2), (successor, 3 + run), (TxnId(9), 1)] {
            let as_of = AsOf { at, me, repeatable: false };
            for row in rows.iter().step_by(97) {
                let value = twins.with_reads(as_of, |v, now| {
                    let now = now.get(row).map(Vec::as_slice);
                    Ok(v.value_at(row.0, &row.1, now, as_of)?.map(Cow::into_owned))
                });
                assert_eq!(value, Some(Some(vec![sees; 30])), "{me:?} {row:?}");
            }
            let all = twins.with_reads(as_of, |v, now| {
                scan(v, now, TREES[0], (&Bound::Unbounded, &Bound::Unbounded), false, as_of)
            });
            assert!(all.is_some_and(|all| all.iter().all(|(_, value)| *value == [sees; 30])));
        }
        for row in &rows {
            twins.put(row, Some(vec![2; 30]));
        }
        twins.both(|v| v.undone(successor));
    }
}
