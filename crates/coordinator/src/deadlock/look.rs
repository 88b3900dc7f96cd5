//! The waits in progress, for monitoring.
//!
//! A wait records its target as numbers and bytes when it begins. The reader resolves names and
//! values.

use super::WaitsFor;
use clearway_ir::value::{Zone, to_text};
use clearway_ir::{Catalog, TableDef};
use clearway_partition::{Wanted, WantedPlace};
use clearway_sync::time::Duration;
use clearway_types::{PartitionId, SqlType, TableId, TreeId, TxnId, key};
use hashbrown::HashMap;
use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

/// A wait, by its number at its partition. A partition never reuses a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitId {
    /// The partition.
    pub partition: PartitionId,
    /// The wait's number there.
    pub number: u64,
}

/// A wait in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWaitView {
    /// The waiting transaction.
    pub waiter: TxnId,
    /// The partition and the wait's number there.
    pub id: WaitId,
    /// How long it has waited.
    pub waited: Duration,
    /// Some of its blockers; the first surely blocks it. Empty if it waits for the partition.
    pub blockers: Vec<TxnId>,
    /// The lock waited for. `None`: it waits for the whole partition.
    pub lock: Option<LockName>,
}

/// A lock in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockName {
    /// The table. Empty: the catalog, or an uncommitted table.
    pub table: String,
    /// The index or global index that has the key. Empty: the table's rows have it.
    pub index: String,
    /// The key as its columns, or a range as its ends. Empty: the whole table.
    pub key: String,
    /// The lock mode.
    pub mode: String,
}

impl LockWaitView {
    /// Returns what is waited for, in one line: `update lock on key (1) of table t`.
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

/// Characters of a text shown in a line of the log.
const SHOWN: usize = 1024;

/// Returns a client's text as one line of bounded length.
pub fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > line.len() {
        line.push_str("...");
    }
    line
}

/// A wait as recorded.
pub(crate) struct RecordedWait {
    waiter: TxnId,
    id: WaitId,
    waited: Duration,
    blockers: Vec<TxnId>,
    wanted: Option<Arc<Wanted>>,
}

impl WaitsFor {
    /// Copies every wait in progress.
    pub(crate) fn all(&self) -> Vec<RecordedWait> {
        let mut all = Vec::with_capacity(self.waits.len());
        for (waiter, waits) in &self.waits {
            all.extend(waits.iter().map(|wait| {
                let line = wait.line.and_then(|line| self.lines.get(&(wait.partition, line)));
                RecordedWait {
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

impl RecordedWait {
    /// Resolves the names.
    pub(crate) fn named(self, names: &Names<'_>) -> LockWaitView {
        let Self { waiter, id, waited, blockers, wanted } = self;
        let lock = wanted.map(|wanted| names.of(&wanted));
        LockWaitView { waiter, id, waited, blockers, lock }
    }
}

/// Tables and trees by their ids.
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
            // Without a primary key, a row's key is its hidden number, which users do not know.
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

    /// Names a key of a tree, with a mode in words.
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

/// Formats an encoded key as `(1, text)`, or as its bytes if it does not decode to these columns.
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
    fn lock_name_is_one_line() {
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
    fn key_is_shown_as_columns_or_bytes() {
        let types = [SqlType::Int4, SqlType::Text, SqlType::Date];
        let mut bytes = Vec::new();
        for value in [DatumRef::Int4(-5), DatumRef::Text("a\0b"), DatumRef::Null] {
            key::push(&mut bytes, value);
        }
        assert_eq!(shown_key(&bytes, &types), "(-5, a\0b, NULL)");
        // The first column alone, as at the end of a range, and the bytes after an index's columns.
        assert_eq!(shown_key(&bytes[..9], &types), "(-5)");
        assert_eq!(shown_key(&bytes, &types[..1]), "(-5)");
        assert_eq!(shown_key(&[0, 0, 9], &[]), "\\x000009");
        for end in 0..bytes.len() {
            // No input panics.
            shown_key(&bytes[..end], &types);
        }
    }
}
