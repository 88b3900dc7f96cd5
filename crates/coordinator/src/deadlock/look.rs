//! The waits in progress, for people who look at them.
//!
//! What is waited for is noted as numbers and bytes when a wait begins; names and values are found
//! by who looks.

use super::WaitsFor;
use crate::engine::Engine;
use clearway_ir::value::{Zone, to_text};
use clearway_ir::{Catalog, TableDef};
use clearway_partition::{Wanted, WantedPlace};
use clearway_sync::time::Duration;
use clearway_types::{PartitionId, SqlType, TableId, TreeId, TxnId, key};
use hashbrown::HashMap;
use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

/// A wait, by its number at its partition, which never uses that again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitId {
    /// Where.
    pub partition: PartitionId,
    /// Which.
    pub number: u64,
}

/// A wait in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits.
    pub waiter: TxnId,
    /// Where, and which wait there.
    pub id: WaitId,
    /// For how long.
    pub waited: Duration,
    /// Some of those in its way, the first of them for sure. Nobody is named where it waits for the
    /// partition.
    pub blockers: Vec<TxnId>,
    /// For which lock. `None`: it waits for the partition as a whole.
    pub lock: Option<LockName>,
}

/// A lock in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockName {
    /// The table; empty: the catalog, or a table that is not committed.
    pub table: String,
    /// The index that has the key, or whose key is kept apart from the rows; empty: the table's
    /// rows have it.
    pub index: String,
    /// The key as its columns, or a range as its ends; empty: the whole table.
    pub key: String,
    /// Its mode.
    pub mode: String,
}

impl LockWait {
    /// What is waited for, in a line: `update lock on key (1) of table t`.
    pub fn what(&self) -> String {
        match &self.lock {
            Some(lock) => lock.to_string(),
            None => format!("partition {}", self.id.partition.0),
        }
    }
}

impl Display for LockName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { table, index, key, mode } = self;
        write!(f, "{mode} lock on ")?;
        if !key.is_empty() {
            write!(f, "key {} of ", one_line(key))?;
        }
        if !index.is_empty() {
            write!(f, "index {} of ", one_line(index))?;
        }
        if table.is_empty() {
            return f.write_str("an uncommitted or system table");
        }
        write!(f, "table {}", one_line(table))
    }
}

/// The characters of a text that are shown in a line of the log.
const SHOWN: usize = 1024;

/// A text of a client's, as one line of bounded length.
pub fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > line.len() {
        line.push_str("...");
    }
    line
}

/// A wait as it is noted.
struct Noted {
    waiter: TxnId,
    id: WaitId,
    waited: Duration,
    blockers: Vec<TxnId>,
    wanted: Option<Arc<Wanted>>,
}

impl WaitsFor {
    fn all(&self) -> Vec<Noted> {
        let mut all = Vec::with_capacity(self.waits.len());
        for (waiter, waits) in &self.waits {
            all.extend(waits.iter().map(|wait| {
                let line = wait.line.and_then(|line| self.lines.get(&(wait.partition, line)));
                Noted {
                    waiter: *waiter,
                    id: WaitId { partition: wait.partition, number: wait.wait },
                    waited: wait.since.elapsed(),
                    blockers: line.cloned().unwrap_or_default(),
                    wanted: wait.wanted.clone(),
                }
            }));
        }
        all
    }
}

impl Engine {
    /// Every wait of a transaction for a lock or a partition that is in progress, the longest
    /// first. The waits-for graph is latched meanwhile, for some 100 ns a wait.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        let noted = self.waits_for().all();
        if noted.is_empty() {
            return Vec::new();
        }
        let catalog = self.catalog();
        let names = Names::new(&catalog);
        let with_name = |Noted { waiter, id, waited, blockers, wanted }| {
            let lock = wanted.map(|wanted: Arc<Wanted>| names.of(&wanted));
            LockWait { waiter, id, waited, blockers, lock }
        };
        let mut waits: Vec<LockWait> = noted.into_iter().map(with_name).collect();
        waits.sort_unstable_by_key(|wait| (std::cmp::Reverse(wait.waited), wait.waiter));
        waits
    }
}

/// Tables and trees by their numbers.
pub(crate) struct Names<'a> {
    tables: HashMap<TableId, &'a TableDef>,
    trees: HashMap<TreeId, (&'a TableDef, &'a str, Vec<SqlType>)>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        let (mut tables, mut trees) = (HashMap::new(), HashMap::new());
        for table in catalog.tables.values() {
            let types = |columns: &[usize]| {
                columns.iter().map(|column| table.columns[*column].ty).collect()
            };
            tables.insert(table.id, &**table);
            // Without a primary key a row's key is its hidden number, which nobody knows.
            trees.insert(table.tree, (&**table, "", types(&table.primary_key)));
            for index in &table.indexes {
                trees.insert(index.tree, (&**table, index.name.as_str(), types(&index.columns)));
            }
            for global_index in table.global_indexes() {
                trees.insert(
                    global_index.tree,
                    (&**table, global_index.name, types(global_index.columns)),
                );
            }
        }
        Self { tables, trees }
    }

    pub(super) fn of(&self, wanted: &Wanted) -> LockName {
        let mode = wanted.mode();
        match &wanted.place {
            WantedPlace::Table(table) => {
                let table =
                    self.tables.get(table).map_or_else(String::new, |table| table.name.clone());
                LockName { table, mode: mode.to_owned(), ..LockName::default() }
            }
            WantedPlace::Key(tree, key) => self.of_key(*tree, key, mode),
            WantedPlace::Range(tree, from, to) => self.in_tree(*tree, mode, |types| {
                let end = |key: Option<&[u8]>| match key {
                    None | Some([]) => String::new(),
                    Some(key) => shown_key(key, types),
                };
                format!("{} .. {}", end(Some(from)), end(to.as_deref())).trim().to_owned()
            }),
        }
    }

    /// A key of a tree, with a mode in words.
    pub(crate) fn of_key(&self, tree: TreeId, key: &[u8], mode: &str) -> LockName {
        self.in_tree(tree, mode, |types| shown_key(key, types))
    }

    fn in_tree(&self, tree: TreeId, mode: &str, shown: impl Fn(&[SqlType]) -> String) -> LockName {
        let mode = mode.to_owned();
        match self.trees.get(&tree) {
            Some((table, index, types)) => LockName {
                table: table.name.clone(),
                index: (*index).to_owned(),
                key: shown(types),
                mode,
            },
            None => LockName { key: shown(&[]), mode, ..LockName::default() },
        }
    }
}

/// An encoded key as `(1, text)`, or as its bytes if they are no such columns.
fn shown_key(mut bytes: &[u8], types: &[SqlType]) -> String {
    let (mut out, whole) = ("(".to_owned(), bytes);
    for ty in types {
        if bytes.is_empty() {
            break;
        }
        let Some(value) = key::take(&mut bytes, *ty) else {
            out.truncate(0);
            break;
        };
        if out.len() > 1 {
            out.push_str(", ");
        }
        match value.is_null() {
            true => out.push_str("NULL"),
            false => out.push_str(&to_text(*ty, value.as_ref(), &Zone::utc())),
        }
    }
    if out.len() > 1 {
        return out + ")";
    }
    let mut out = "\\x".to_owned();
    for byte in whole {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::DatumRef;

    #[test]
    fn a_lock_is_named_in_one_line() {
        let named = |table: &str, index: &str, key: &str| {
            let [table, index, key, mode] = [table, index, key, "shared"].map(str::to_owned);
            LockName { table, index, key, mode }.to_string()
        };
        assert_eq!(named("t", "", ""), "shared lock on table t");
        assert_eq!(named("t", "t_k", "(a\nb)"), "shared lock on key (a b) of index t_k of table t");
        assert_eq!(
            named("", "", "\\x00"),
            "shared lock on key \\x00 of an uncommitted or system table"
        );
        let long = one_line(&"é".repeat(SHOWN + 1));
        assert_eq!((long.chars().count(), &long[long.len() - 5..]), (SHOWN + 3, "é..."));
    }

    #[test]
    fn a_key_is_shown_as_its_columns_or_as_its_bytes() {
        let types = [SqlType::Int4, SqlType::Text, SqlType::Date];
        let mut bytes = Vec::new();
        for value in [DatumRef::Int4(-5), DatumRef::Text("a\0b"), DatumRef::Null] {
            key::push(&mut bytes, value);
        }
        assert_eq!(shown_key(&bytes, &types), "(-5, a\0b, NULL)");
        // The first column alone, as the end of a range has it; and what is behind the columns of
        // an index.
        assert_eq!(shown_key(&bytes[..9], &types), "(-5)");
        assert_eq!(shown_key(&bytes, &types[..1]), "(-5)");
        assert_eq!(shown_key(&[0, 0, 9], &[]), "\\x000009");
        for end in 0..bytes.len() {
            // Whatever it is: nothing panics.
            shown_key(&bytes[..end], &types);
        }
    }
}
