//! Random executions: a serial execution has no findings, and a planted anomaly is found.

use clearway_history::{Anomaly, CheckerOptions, History, Key, Op, Txn, TxnOutcome};
use proptest::prelude::*;
use std::collections::HashMap;

/// The number of objects: a third of them are lists, then registers, then counters.
const KEYS: usize = 9;
const LISTS: usize = KEYS / 3;
const REGISTERS: usize = 2 * KEYS / 3;
/// The number of additions to a counter, after which plans read it instead.
const ADDITIONS: u32 = 62;

/// A transaction to run: its session, its operations (an object, and whether to write), its
/// client's waits before and after the moment of execution, and how it ends.
#[derive(Clone, Debug)]
struct Plan {
    session: u32,
    work: Vec<(usize, bool)>,
    before: u64,
    after: u64,
    ending: u8,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let work = prop::collection::vec((0..KEYS, any::<bool>()), 1..6);
    let plan = (0_u32..4, work, 0_u64..90, 0_u64..90, 0_u8..10);
    let plan = plan.prop_map(|(session, work, before, after, ending)| Plan {
        session,
        work,
        before,
        after,
        ending,
    });
    prop::collection::vec(plan, 1..60)
}

/// Runs the plans one after the other, with intervals that overlap those of other clients.
fn run(plans: &[Plan]) -> (History, u64) {
    let mut history = History::new();
    let keys: Vec<Key> = (0..KEYS).map(|k| history.key(&format!("k{k}"))).collect();
    let mut lists: HashMap<usize, Vec<u64>> = HashMap::new();
    let mut registers: HashMap<usize, u64> = HashMap::new();
    let mut sums: HashMap<usize, i64> = HashMap::new();
    let mut additions = [0_u32; KEYS];
    let mut ended = [0; 4];
    let mut value = 0;
    for (at, plan) in plans.iter().enumerate() {
        let moment = 100 * (at as u64 + 1);
        let saved = (lists.clone(), registers.clone(), sums.clone());
        let mut ops = Vec::new();
        for (k, write) in &plan.work {
            value += 1;
            let (key, list) = (keys[*k], lists.entry(*k).or_default());
            ops.push(match (*k, write) {
                (..LISTS, true) => {
                    list.push(value);
                    Op::Append { key, value }
                }
                (..LISTS, false) => Op::List { key, values: list.clone() },
                (..REGISTERS, true) => {
                    registers.insert(*k, value);
                    Op::Write { key, value }
                }
                (..REGISTERS, false) => Op::Read { key, value: registers.get(k).copied() },
                (_, true) if additions[*k] < ADDITIONS => {
                    let value = 1 << additions[*k];
                    additions[*k] += 1;
                    *sums.entry(*k).or_default() += value as i64;
                    Op::Add { key, value }
                }
                _ => Op::Sum { key, value: sums.get(k).copied().unwrap_or_default() },
            });
        }
        let outcome = match plan.ending {
            0 => TxnOutcome::Aborted,
            1 | 2 => TxnOutcome::Unknown,
            _ => TxnOutcome::Committed,
        };
        if plan.ending < 2 {
            (lists, registers, sums) = saved;
        }
        // A session waits for its previous transaction, unless that was never answered.
        let ended = &mut ended[plan.session as usize];
        let start = (moment - plan.before).max(*ended);
        let end = moment + plan.after;
        *ended = if outcome == TxnOutcome::Unknown { moment } else { end.min(moment + 99) };
        let end = (outcome != TxnOutcome::Unknown).then_some(*ended);
        history.push(Txn { session: plan.session, start, end, outcome, ops }).unwrap();
    }
    (history, 100 * (plans.len() as u64 + 2))
}

/// Adds transactions in separate sessions that show this anomaly.
fn plant(history: &mut History, anomaly: Anomaly, from: u64) {
    let (x, y, r) = (history.key("planted x"), history.key("planted y"), history.key("planted r"));
    let c = history.key("planted c");
    let append = |key, value| Op::Append { key, value };
    let list = |key, values: &[u64]| Op::List { key, values: values.to_vec() };
    let (write, read) = (|value| Op::Write { key: r, value }, |value| Op::Read { key: r, value });
    use TxnOutcome::{Aborted, Committed};
    let all: Vec<(TxnOutcome, Vec<Op>)> = match anomaly {
        Anomaly::G0 => vec![
            (Committed, vec![append(x, 1), append(y, 1)]),
            (Committed, vec![append(x, 2), append(y, 2)]),
            (Committed, vec![list(x, &[1, 2]), list(y, &[2, 1])]),
        ],
        Anomaly::G1a => vec![(Aborted, vec![append(x, 1)]), (Committed, vec![list(x, &[1])])],
        Anomaly::G1b => {
            vec![(Committed, vec![write(1), write(2)]), (Committed, vec![read(Some(1))])]
        }
        Anomaly::G1c => {
            vec![
                (Committed, vec![append(x, 1), list(y, &[1])]),
                (Committed, vec![append(y, 1), list(x, &[1])]),
            ]
        }
        Anomaly::GSingle => {
            vec![
                (Committed, vec![list(x, &[]), list(y, &[1])]),
                (Committed, vec![append(x, 1), append(y, 1)]),
            ]
        }
        Anomaly::G2 => {
            vec![
                (Committed, vec![list(x, &[]), append(y, 1)]),
                (Committed, vec![list(y, &[]), append(x, 1)]),
            ]
        }
        Anomaly::LostUpdate => {
            vec![(Committed, vec![read(None), write(1)]), (Committed, vec![read(None), write(2)])]
        }
        Anomaly::Internal => vec![(Committed, vec![append(x, 1), list(x, &[])])],
        Anomaly::Garbage => vec![(Committed, vec![list(x, &[9])])],
        Anomaly::Duplicate => {
            vec![(Committed, vec![append(x, 1)]), (Committed, vec![list(x, &[1, 1])])]
        }
        Anomaly::IncompatibleOrder => vec![
            (Committed, vec![append(x, 1)]),
            (Committed, vec![append(x, 2)]),
            (Committed, vec![list(x, &[1, 2])]),
            (Committed, vec![list(x, &[2, 1])]),
        ],
        Anomaly::CyclicVersions => {
            vec![
                (Committed, vec![read(Some(1)), write(2)]),
                (Committed, vec![read(Some(2)), write(1)]),
            ]
        }
        Anomaly::LostAddition => {
            vec![(Committed, vec![Op::Add { key: c, value: 1 }, Op::Sum { key: c, value: 0 }])]
        }
    };
    for (at, (outcome, ops)) in all.into_iter().enumerate() {
        // All concurrent: only the data orders them.
        history
            .push(Txn { session: 100 + at as u32, start: from, end: Some(from + 10), outcome, ops })
            .unwrap();
    }
}

/// Returns anomalies that the same history also shows.
fn companions(anomaly: Anomaly) -> &'static [Anomaly] {
    match anomaly {
        Anomaly::LostUpdate => &[Anomaly::G2],
        Anomaly::CyclicVersions => &[Anomaly::G1c],
        // The transaction did not see its own append, so others must come between read and append.
        Anomaly::Internal => &[Anomaly::GSingle],
        Anomaly::LostAddition => &[Anomaly::Internal],
        _ => &[],
    }
}

const ANOMALIES: [Anomaly; 13] = [
    Anomaly::G0,
    Anomaly::G1a,
    Anomaly::G1b,
    Anomaly::G1c,
    Anomaly::GSingle,
    Anomaly::G2,
    Anomaly::LostUpdate,
    Anomaly::Internal,
    Anomaly::Garbage,
    Anomaly::Duplicate,
    Anomaly::IncompatibleOrder,
    Anomaly::CyclicVersions,
    Anomaly::LostAddition,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serial_executions_are_clean(plans in plans()) {
        let (mut history, _) = run(&plans);
        let report = history.check(&CheckerOptions::default());
        prop_assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn planted_anomalies_are_found(plans in plans(), at in 0..ANOMALIES.len(), early in any::<bool>()) {
        let anomaly = ANOMALIES[at];
        let (mut history, end) = run(&plans);
        plant(&mut history, anomaly, if early { 50 } else { end });
        let report = history.check(&CheckerOptions::default());
        let found: Vec<Anomaly> = report.anomalies().collect();
        prop_assert!(found.contains(&anomaly), "{anomaly:?} is missing\n{report}");
        let expected = |a: &Anomaly| *a == anomaly || companions(anomaly).contains(a);
        prop_assert!(found.iter().all(expected), "planted {anomaly:?}\n{report}");
    }

    /// Removes the last element of a list from a final read. It must be a finding if the append was
    /// acknowledged.
    #[test]
    fn stale_final_reads_are_found(plans in plans()) {
        let (history, end) = run(&plans);
        let mut txns: Vec<Txn> = history.txns().collect();
        // The lists of a final read of every list.
        let mut changed = History::new();
        let keys: Vec<Key> = (0..LISTS).map(|k| changed.key(&format!("k{k}"))).collect();
        let mut lists: HashMap<Key, Vec<u64>> = HashMap::new();
        for (plan, txn) in plans.iter().zip(&txns).filter(|(plan, _)| plan.ending >= 2) {
            for op in &txn.ops {
                if let Op::Append { key, value } = op {
                    lists.entry(*key).or_default().push(*value);
                }
            }
            prop_assert!(plan.ending >= 2);
        }
        let Some(stale) = keys.iter().copied().find(|key| lists.contains_key(key)) else { return Ok(()) };
        let lost = lists.get_mut(&stale).and_then(Vec::pop);
        let known = txns.iter().any(|txn| txn.outcome == TxnOutcome::Committed
            && txn.ops.iter().any(|op| matches!(op, Op::Append { key, value } if *key == stale && Some(*value) == lost)));
        let ops = keys.iter().map(|key| Op::List { key: *key, values: lists.remove(key).unwrap_or_default() }).collect();
        txns.push(Txn { session: 50, start: end, end: Some(end + 1), outcome: TxnOutcome::Committed, ops });
        // The keys have the same numbers in both histories, since both name the lists first.
        (0..KEYS).for_each(|k| { changed.key(&format!("k{k}")); });
        txns.into_iter().for_each(|txn| { changed.push(txn).unwrap(); });
        let report = changed.check(&CheckerOptions::default());
        prop_assert!(!known || !report.is_clean(), "{stale:?} lost {lost:?}\n{report}");
    }

    /// Takes one addition from a final read of the counters. It must be a finding if its commit was
    /// acknowledged; all of them must be clean.
    #[test]
    fn additions_lost_in_the_final_read_are_found(plans in plans(), pick in any::<prop::sample::Index>()) {
        let (history, end) = run(&plans);
        let mut sums: HashMap<Key, i64> = HashMap::new();
        let mut acknowledged = Vec::new();
        for (plan, txn) in plans.iter().zip(history.txns()).filter(|(plan, _)| plan.ending >= 2) {
            for op in txn.ops {
                let Op::Add { key, value } = op else { continue };
                *sums.entry(key).or_default() += value as i64;
                if plan.ending > 2 {
                    acknowledged.push((key, value as i64));
                }
            }
        }
        let check = |sums: &HashMap<Key, i64>| {
            let mut history = run(&plans).0;
            let ops = sums.iter().map(|(key, value)| Op::Sum { key: *key, value: *value }).collect();
            let outcome = TxnOutcome::Committed;
            history.push(Txn { session: 50, start: end, end: Some(end + 1), outcome, ops }).unwrap();
            history.check(&CheckerOptions::default())
        };
        let report = check(&sums);
        prop_assert!(report.is_clean(), "{report}");
        if acknowledged.is_empty() {
            return Ok(());
        }
        let (key, value) = acknowledged[pick.index(acknowledged.len())];
        *sums.entry(key).or_default() -= value;
        let report = check(&sums);
        prop_assert!(report.anomalies().any(|found| found == Anomaly::LostAddition), "{key:?} lost {value}\n{report}");
    }
}
