//! Checks whether a transaction's reads agree with its own reads and writes. They must show the
//! earlier ones, and no append or addition that it makes only later.

use crate::txn::{Key, Op, TxnIndex};
use hashbrown::HashMap;

/// A read that contradicts another operation of its transaction.
#[derive(Clone, Debug)]
pub(crate) struct Internal {
    pub txn: TxnIndex,
    pub key: Key,
    pub expected: String,
    pub found: String,
}

/// What a transaction must read from a key. Exact lists and sums come from a read: one that
/// contains a value before the transaction's own write of it shows a read of the future.
enum Known {
    /// Exactly this list.
    List(Vec<u64>),
    /// A list that ends with these elements.
    Ending(Vec<u64>),
    /// This value of a register.
    Register(Option<u64>),
    /// Exactly this value of a counter.
    Counter(i64),
    /// A value of a counter that includes these additions.
    Including(i64),
}

/// Returns the first contradiction between a read and another operation of the same transaction.
///
/// Such a read of a register is no finding here: its version would come before itself, which the
/// order of the versions shows.
pub(crate) fn find(ops: &[Op]) -> Option<Internal> {
    // A single operation cannot contradict another one.
    if ops.len() < 2 {
        return None;
    }
    let mut known: HashMap<Key, Known> = HashMap::with_capacity(ops.len());
    for op in ops {
        match op {
            Op::Append { key, value } => {
                match known.entry(*key).or_insert(Known::Ending(Vec::new())) {
                    Known::List(list) if list.contains(value) => {
                        let expected = format!("a list without {value}, which it appended later");
                        return contradiction(*key, expected, format!("a list with {value}"));
                    }
                    Known::List(list) | Known::Ending(list) => list.push(*value),
                    _ => {}
                }
            }
            Op::Write { key, value } => {
                known.insert(*key, Known::Register(Some(*value)));
            }
            Op::List { key, values } => {
                let expected = match known.get(key) {
                    Some(Known::List(list)) if list != values => Some(format!("{list:?}")),
                    Some(Known::Ending(end)) if !values.ends_with(end) => {
                        Some(format!("a list that ends with {end:?}"))
                    }
                    _ => None,
                };
                if let Some(expected) = expected {
                    return contradiction(*key, expected, format!("{values:?}"));
                }
                known.insert(*key, Known::List(values.clone()));
            }
            Op::Read { key, value } => {
                if let Some(Known::Register(before)) =
                    known.get(key).filter(|k| !matches!(k, Known::Register(v) if v == value))
                {
                    let show = |v: Option<u64>| v.map_or("nothing".to_owned(), |v| v.to_string());
                    return contradiction(*key, show(*before), show(*value));
                }
                known.insert(*key, Known::Register(*value));
            }
            Op::Add { key, value } => match known.entry(*key).or_insert(Known::Including(0)) {
                Known::Counter(sum) if *sum as u64 & value != 0 => {
                    let expected = format!("a sum without {value}, which it added later");
                    return contradiction(*key, expected, format!("a sum with {value}"));
                }
                Known::Counter(sum) | Known::Including(sum) => {
                    *sum = sum.wrapping_add(*value as i64);
                }
                _ => {}
            },
            Op::Sum { key, value } => {
                let expected = match known.get(key) {
                    Some(Known::Counter(sum)) if sum != value => Some(sum.to_string()),
                    Some(Known::Including(sum)) if value & sum != *sum => {
                        Some(format!("a sum that includes {sum}"))
                    }
                    _ => None,
                };
                if let Some(expected) = expected {
                    return contradiction(*key, expected, value.to_string());
                }
                known.insert(*key, Known::Counter(*value));
            }
        }
    }
    None
}

/// Returns the finding; its transaction is the caller's to set.
fn contradiction(key: Key, expected: String, found: String) -> Option<Internal> {
    Some(Internal { txn: TxnIndex(0), key, expected, found })
}
