//! What the clients do: statements over lists, registers and counters, and what their answers mean.
//!
//! | table | objects | an absent row is |
//! |---|---|---|
//! | `h_list0`, `h_list1` | a list in each row, as text; all rows are there from the start | - |
//! | `h_rows` | a list in the rows of each `k`, in the order of `pos` | an empty list |
//! | `h_reg` | a register in each row | a register that nobody wrote |
//! | `h_count` | a counter in each row; all rows are there from the start | - |
//!
//! `grp` is `id / GROUP`, and indexed: a read of a group reads all of its keys, including the
//! absent ones.

use clearway_harness::batch::MessageBatch;
use clearway_harness::client::{Answer, PgClient};
use clearway_harness::{Endpoint, Res};
use clearway_history::{History, Key, Op};
use std::time::Duration;

/// Keys of each table.
pub const KEYS: u64 = 20_000;
/// Keys of one group.
pub const GROUP: u64 = 4;
/// Tables.
pub const TABLES: [&str; 5] = ["h_list0", "h_list1", "h_rows", "h_reg", "h_count"];
/// The table of lists in rows.
pub const ROWS: usize = 2;
/// The table of registers.
pub const REGISTERS: usize = 3;
/// The table of counters.
pub const COUNTERS: usize = 4;

const SCHEMA: [&str; 10] = [
    "create table h_list0 (id int primary key, grp int not null, v text not null)",
    "create table h_list1 (id int primary key, grp int not null, v text not null)",
    "create index h_list1_grp on h_list1 (grp)",
    "create table h_rows (k int, pos int, val bigint not null, primary key (k, pos))",
    "create table h_reg (id int primary key, grp int not null, v bigint not null)",
    "create index h_reg_grp on h_reg (grp)",
    "create table h_count (id int primary key, n bigint not null)",
    "insert into h_list0 select i, i / 4, '' from generate_series(0, 19999) i",
    "insert into h_list1 select i, i / 4, '' from generate_series(0, 19999) i",
    "insert into h_count select i, 0 from generate_series(0, 19999) i",
];

/// Names of the prepared statements, with their texts.
const STATEMENTS: [(&str, &str); 32] = [
    ("begin", "begin"),
    ("commit", "commit"),
    ("rollback", "rollback"),
    ("savepoint", "savepoint s"),
    ("undo", "rollback to savepoint s"),
    ("release", "release savepoint s"),
    ("append0", "update h_list0 set v = v || $2 where id = $1"),
    ("append1", "update h_list1 set v = v || $2 where id = $1"),
    ("spread0", "update h_list0 set v = v || $3 where id between $1 and $2"),
    ("spread1", "update h_list1 set v = v || $3 where id between $1 and $2"),
    (
        "append2",
        "insert into h_rows select $1::int, coalesce(max(pos), 0) + 1, $2::bigint from h_rows where k = $1::int",
    ),
    ("add", "update h_count set n = n + $2 where id = $1"),
    ("add, then read", "update h_count set n = $2 + n where id = $1"),
    ("read0", "select id, v from h_list0 where id between $1 and $2"),
    ("read1", "select id, v from h_list1 where id between $1 and $2"),
    ("read2", "select k, val from h_rows where k between $1 and $2 order by k, pos"),
    ("read3", "select id, v from h_reg where id between $1 and $2"),
    ("read4", "select id, n from h_count where id between $1 and $2"),
    ("point0", "select id, v from h_list0 where id = $1"),
    ("point1", "select id, v from h_list1 where id = $1"),
    ("point2", "select k, val from h_rows where k = $1 order by k, pos"),
    ("point3", "select id, v from h_reg where id = $1"),
    ("point4", "select id, n from h_count where id = $1"),
    ("lock0", "select id, v from h_list0 where id = $1 for update"),
    ("lock1", "select id, v from h_list1 where id = $1 for update"),
    ("lock4", "select id, n from h_count where id = $1 for update"),
    ("group1", "select id, v from h_list1 where grp = $1"),
    ("group3", "select id, v from h_reg where grp = $1"),
    ("insert", "insert into h_reg values ($1, $2, $3)"),
    ("pair", "insert into h_reg values ($1, $2, $5), ($3, $4, $5)"),
    ("update", "update h_reg set v = $2 where id = $1"),
    ("delete", "delete from h_reg where id = $1"),
];

/// Longest that an answer may take.
pub const LIMIT: Duration = Duration::from_secs(60);

/// One statement. Values are unique, keys are below [`KEYS`].
#[derive(Clone, Debug)]
pub enum Step {
    /// BEGIN, COMMIT and the like: no operation.
    Control(&'static str),
    /// Appends to a list of tables 0 to 2.
    Append { table: usize, id: u64, value: u64 },
    /// Appends to the lists from `first` to `last` of table 0 or 1, in one statement.
    Spread { table: usize, first: u64, last: u64, value: u64 },
    /// Reads the keys from `first` to `last`; a single key by equality.
    Read { table: usize, first: u64, last: u64 },
    /// Adds to a counter. The text depends on whether the transaction may read afterwards.
    Add { id: u64, value: u64, then_reads: bool },
    /// Reads a list of tables 0 and 1, or a counter, with FOR UPDATE.
    Lock { table: usize, id: u64 },
    /// Reads a group of table 1 or 3 through the secondary index.
    Group { table: usize, group: u64 },
    /// Inserts a register.
    Insert { id: u64, value: u64 },
    /// Inserts two registers in one statement.
    Pair { ids: [u64; 2], value: u64 },
    /// Writes a register; an absent one counts as a read.
    Update { id: u64, value: u64 },
    /// Deletes a register; an insert of the same one must follow in the same transaction.
    Delete { id: u64 },
}

impl Step {
    /// Adds the statement to the batch.
    pub fn add(&self, batch: &mut MessageBatch) {
        let text = |n: &u64| n.to_string();
        match self {
            Self::Control(name) => batch.execute(name, &[""; 0]),
            Self::Append { table: ROWS, id, value } => {
                batch.execute("append2", &[&text(id), &text(value)])
            }
            Self::Append { table, id, value } => {
                batch.execute(["append0", "append1"][*table], &[&text(id), &format!(",{value}")]);
            }
            Self::Spread { table, first, last, value } => {
                let name = ["spread0", "spread1"][*table];
                batch.execute(name, &[&text(first), &text(last), &format!(",{value}")]);
            }
            Self::Add { id, value, then_reads } => {
                let name = if *then_reads { "add, then read" } else { "add" };
                batch.execute(name, &[&text(id), &text(value)]);
            }
            Self::Read { table, first, last } if first == last => {
                batch.execute(format!("point{table}"), &[&text(first)]);
            }
            Self::Read { table, first, last } => {
                batch.execute(format!("read{table}"), &[&text(first), &text(last)]);
            }
            Self::Lock { table, id } => batch.execute(format!("lock{table}"), &[&text(id)]),
            Self::Group { table, group } => {
                batch.execute(
                    if *table == REGISTERS { "group3" } else { "group1" },
                    &[&text(group)],
                );
            }
            Self::Insert { id, value } => {
                batch.execute("insert", &[&text(id), &text(&(id / GROUP)), &text(value)])
            }
            Self::Pair { ids: [a, b], value } => {
                let (in_a, in_b) = (text(&(a / GROUP)), text(&(b / GROUP)));
                batch.execute("pair", &[&text(a), &in_a, &text(b), &in_b, &text(value)]);
            }
            Self::Update { id, value } => batch.execute("update", &[&text(id), &text(value)]),
            Self::Delete { id } => batch.execute("delete", &[&text(id)]),
        }
    }

    /// Returns its writes.
    pub fn writes(&self, keys: &Keys) -> Vec<Op> {
        let append = |table, id, value| Op::Append { key: keys.key(table, id), value };
        let write = |id, value| Op::Write { key: keys.key(REGISTERS, id), value };
        match *self {
            Self::Append { table, id, value } => vec![append(table, id, value)],
            // The schedule of additions adds 0.
            Self::Add { value: 0, .. } => Vec::new(),
            Self::Add { id, value, .. } => vec![Op::Add { key: keys.key(COUNTERS, id), value }],
            Self::Spread { table, first, last, value } => {
                (first..=last).map(|id| append(table, id, value)).collect()
            }
            Self::Insert { id, value } | Self::Update { id, value } => vec![write(id, value)],
            Self::Pair { ids, value } => ids.map(|id| write(id, value)).into(),
            _ => Vec::new(),
        }
    }

    /// Records the operations that its answer implies.
    pub fn record(&self, answer: &Answer, keys: &Keys, ops: &mut Vec<Op>) -> Res<()> {
        match self {
            Self::Control(_) | Self::Delete { .. } => {}
            Self::Append { table, id, .. } => {
                if !matches!(answer.tag.as_str(), "UPDATE 1" | "INSERT 0 1") {
                    return Err(format!(
                        "an append to {} {id} answers `{}`",
                        TABLES[*table], answer.tag
                    ));
                }
                ops.extend(self.writes(keys));
            }
            Self::Spread { table, first, last, .. } => {
                if answer.tag != format!("UPDATE {}", last - first + 1) {
                    return Err(format!(
                        "an append to {} {first} to {last} answers `{}`",
                        TABLES[*table], answer.tag
                    ));
                }
                ops.extend(self.writes(keys));
            }
            Self::Add { id, .. } => {
                if answer.tag != "UPDATE 1" {
                    return Err(format!("an addition to {id} answers `{}`", answer.tag));
                }
                ops.extend(self.writes(keys));
            }
            Self::Update { id, .. } if answer.tag == "UPDATE 0" => {
                ops.push(Op::Read { key: keys.key(REGISTERS, *id), value: None });
            }
            Self::Insert { id, .. } => {
                inserted(keys.key(REGISTERS, *id), ops);
                ops.extend(self.writes(keys));
            }
            Self::Pair { ids, .. } => {
                ids.iter().for_each(|id| inserted(keys.key(REGISTERS, *id), ops));
                ops.extend(self.writes(keys));
            }
            Self::Update { .. } => ops.extend(self.writes(keys)),
            Self::Read { table, first, last } => read(*table, *first, *last, answer, keys, ops)?,
            Self::Lock { table, id } => read(*table, *id, *id, answer, keys, ops)?,
            Self::Group { table, group } => {
                read(*table, group * GROUP, group * GROUP + GROUP - 1, answer, keys, ops)?;
            }
        }
        Ok(())
    }
}

/// Records what the success of an INSERT implies: the register was absent, or this transaction has
/// deleted it.
fn inserted(key: Key, ops: &mut Vec<Op>) {
    let is_known =
        |op: &Op| matches!(op, Op::Read { key: k, .. } | Op::Write { key: k, .. } if *k == key);
    if !ops.iter().any(is_known) {
        ops.push(Op::Read { key, value: None });
    }
}

/// Returns the rows of an answer as reads of all keys from `first` to `last`.
fn read(
    table: usize,
    first: u64,
    last: u64,
    answer: &Answer,
    keys: &Keys,
    ops: &mut Vec<Op>,
) -> Res<()> {
    let bad =
        || format!("{}: requested keys {first} to {last}, got {:?}", TABLES[table], answer.rows);
    let mut lists = vec![None; (last - first + 1) as usize];
    for row in &answer.rows {
        let [Some(id), Some(value)] = row.as_slice() else { return Err(bad()) };
        let id: u64 = id.parse().map_err(|_| bad())?;
        let slot: &mut Option<Vec<u64>> =
            id.checked_sub(first).and_then(|at| lists.get_mut(at as usize)).ok_or_else(bad)?;
        if slot.is_some() && table != ROWS {
            return Err(bad());
        }
        let list = slot.get_or_insert_default();
        if table == COUNTERS {
            let sum: i64 = value.parse().map_err(|_| bad())?;
            list.push(sum as u64);
            continue;
        }
        for element in value.split(',').filter(|element| !element.is_empty()) {
            list.push(element.parse().map_err(|_| bad())?);
        }
    }
    ops.extend((first..=last).zip(lists).map(|(id, list)| {
        let key = keys.key(table, id);
        match table {
            REGISTERS => Op::Read { key, value: list.and_then(|list| list.first().copied()) },
            // A lost row is a counter of 0: the checker reports what was lost.
            COUNTERS => {
                let sum = list.and_then(|list| list.first().copied()).unwrap_or_default();
                Op::Sum { key, value: sum as i64 }
            }
            _ => Op::List { key, values: list.unwrap_or_default() },
        }
    }));
    Ok(())
}

/// The keys of the history.
pub struct Keys(Vec<Key>);

impl Keys {
    /// Names all keys.
    pub fn new(history: &mut History) -> Self {
        let names =
            TABLES.iter().flat_map(|table| (0..KEYS).map(move |id| format!("{table}[{id}]")));
        Self(names.map(|name| history.key(&name)).collect())
    }

    /// Returns the key of a row.
    pub fn key(&self, table: usize, id: u64) -> Key {
        self.0[table * KEYS as usize + id as usize]
    }
}

/// Creates the tables.
pub fn create(endpoint: &Endpoint) -> Res<()> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    SCHEMA
        .iter()
        .try_for_each(|sql| client.query(sql).map(|_| ()).map_err(|e| format!("{sql}: {e}")))
}

/// Opens a connection with all statements prepared.
pub fn connect(endpoint: &Endpoint) -> Res<PgClient> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    for (name, sql) in STATEMENTS {
        client.prepare(name, sql).map_err(|e| format!("{sql}: {e}"))?;
    }
    Ok(client)
}

/// Reads all keys, as operations of one transaction: counters up to `last_counter`, others up to
/// `last`.
pub fn read_all(endpoint: &Endpoint, keys: &Keys, last: u64, last_counter: u64) -> Res<Vec<Op>> {
    let mut client = connect(endpoint)?;
    let mut batch = MessageBatch::default();
    let last = |table| if table == COUNTERS { last_counter } else { last };
    let steps: Vec<Step> =
        (0..TABLES.len()).map(|table| Step::Read { table, first: 0, last: last(table) }).collect();
    batch.execute("begin", &[""; 0]);
    steps.iter().for_each(|step| step.add(&mut batch));
    batch.execute("commit", &[""; 0]);
    let mut answers = Vec::new();
    client.run(&mut batch, &mut answers).map_err(|e| format!("the final read: {e}"))?;
    let mut ops = Vec::new();
    for (step, answer) in steps.iter().zip(&answers[1..]) {
        step.record(answer, keys, &mut ops)?;
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[(&str, &str)]) -> Answer {
        let rows = rows
            .iter()
            .map(|(id, v)| vec![Some((*id).to_owned()), Some((*v).to_owned())])
            .collect();
        Answer { rows, ..Answer::default() }
    }

    #[test]
    fn a_range_reads_absent_keys_too() {
        let keys = Keys::new(&mut History::new());
        let mut ops = Vec::new();
        let range = |table| Step::Read { table, first: 4, last: 6 };
        range(0).record(&answer(&[("4", ",1,2"), ("5", "")]), &keys, &mut ops).unwrap();
        range(ROWS).record(&answer(&[("6", "7"), ("6", "8")]), &keys, &mut ops).unwrap();
        range(REGISTERS).record(&answer(&[("5", "9")]), &keys, &mut ops).unwrap();
        let list = |table, id, values: &[u64]| Op::List {
            key: keys.key(table, id),
            values: values.to_vec(),
        };
        let register = |id, value| Op::Read { key: keys.key(REGISTERS, id), value };
        let expected = [
            [list(0, 4, &[1, 2]), list(0, 5, &[]), list(0, 6, &[])],
            [list(ROWS, 4, &[]), list(ROWS, 5, &[]), list(ROWS, 6, &[7, 8])],
            [register(4, None), register(5, Some(9)), register(6, None)],
        ];
        assert_eq!(ops, expected.concat());
    }

    #[test]
    fn a_counter_is_read_as_a_signed_sum() {
        let keys = Keys::new(&mut History::new());
        let mut ops = Vec::new();
        let range = Step::Read { table: COUNTERS, first: 4, last: 6 };
        range.record(&answer(&[("4", "-3"), ("6", "5")]), &keys, &mut ops).unwrap();
        let sum = |id, value| Op::Sum { key: keys.key(COUNTERS, id), value };
        assert_eq!(ops, [sum(4, -3), sum(5, 0), sum(6, 5)]);
        ops.clear();
        let add = Step::Add { id: 4, value: 8, then_reads: true };
        let answer = |tag: &str| Answer { tag: tag.into(), ..Answer::default() };
        add.record(&answer("UPDATE 1"), &keys, &mut ops).unwrap();
        assert_eq!(ops, [Op::Add { key: keys.key(COUNTERS, 4), value: 8 }]);
        assert!(add.record(&answer("UPDATE 0"), &keys, &mut ops).is_err());
    }

    #[test]
    fn an_unexpected_row_is_found() {
        let keys = Keys::new(&mut History::new());
        let point = Step::Read { table: 0, first: 4, last: 4 };
        for rows in [&[("5", "")][..], &[("4", ""), ("4", "")], &[("4", "x")], &[("3", "")]] {
            assert!(point.record(&answer(rows), &keys, &mut Vec::new()).is_err(), "{rows:?}");
        }
        let append = Step::Append { table: 0, id: 4, value: 1 };
        let none = Answer { tag: "UPDATE 0".into(), ..Answer::default() };
        assert!(append.record(&none, &keys, &mut Vec::new()).unwrap_err().contains("UPDATE 0"));
    }

    #[test]
    fn a_statement_writes_several_keys() {
        let keys = Keys::new(&mut History::new());
        let mut ops = Vec::new();
        let spread = Step::Spread { table: 1, first: 4, last: 5, value: 8 };
        let answer = |tag: &str| Answer { tag: tag.into(), ..Answer::default() };
        assert!(spread.record(&answer("UPDATE 1"), &keys, &mut ops).is_err());
        spread.record(&answer("UPDATE 2"), &keys, &mut ops).unwrap();
        let append = |id| Op::Append { key: keys.key(1, id), value: 8 };
        assert_eq!(ops, [append(4), append(5)]);
        ops.clear();
        let pair = Step::Pair { ids: [6, 4], value: 9 };
        pair.record(&answer("INSERT 0 2"), &keys, &mut ops).unwrap();
        let key = |id| keys.key(REGISTERS, id);
        let absent = |id| Op::Read { key: key(id), value: None };
        let write = |id| Op::Write { key: key(id), value: 9 };
        assert_eq!(ops, [absent(6), absent(4), write(6), write(4)]);
    }

    #[test]
    fn an_update_that_finds_nothing_is_a_read() {
        let keys = Keys::new(&mut History::new());
        let key = keys.key(REGISTERS, 3);
        for (tag, expected) in
            [("UPDATE 0", Op::Read { key, value: None }), ("UPDATE 1", Op::Write { key, value: 8 })]
        {
            let mut ops = Vec::new();
            let answer = Answer { tag: tag.into(), ..Answer::default() };
            Step::Update { id: 3, value: 8 }.record(&answer, &keys, &mut ops).unwrap();
            assert_eq!(ops, [expected]);
        }
    }
}
