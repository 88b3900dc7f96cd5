//! Shared by several targets: a catalog of a few tables, types, and values in their formats.

use clearway_ir::catalog::{Catalog, IndexDef};
use clearway_ir::{Env, Plan, SessionEnv, Statement, Zone};
use clearway_types::{Datum, RowBatch, SqlType, TableId, TreeId};
use clearway_wire::Format;
use clearway_wire::row::{ColumnFormat, data_row, parameter};
use std::sync::{Arc, OnceLock};

/// pgbench's tables, one with a column of every type, and one with a key of two columns.
const TABLES: &[&str] = &[
    "create table pgbench_branches (bid int not null primary key, bbalance int, filler char(88))",
    "create table pgbench_tellers (tid int not null primary key, bid int, tbalance int, filler char(84))",
    "create table pgbench_accounts (aid int not null primary key, bid int, abalance int, filler char(84))",
    "create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
    "create table t (a int primary key, b smallint default 7, c bigint not null, d double precision, e text default 'x', \
     f varchar(5), g char(3), h timestamp, i timestamptz, j bool, k date)",
    "create table pairs (a bigint, b text, c int, primary key (a, b))",
];

/// Returns the catalog.
pub(crate) fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        let mut catalog = Catalog { version: 1, ..Catalog::default() };
        for (i, sql) in (1u32..).zip(TABLES) {
            let Statement::CreateTable { mut table, .. } = plan_one(sql, &catalog).statement else {
                panic!("{sql} makes no table")
            };
            (table.id, table.tree, table.version) = (TableId(i), TreeId(10 * i), 1);
            if table.name == "pairs" {
                table.indexes.push(IndexDef {
                    name: "pairs_c".into(),
                    tree: TreeId(10 * i + 1),
                    columns: vec![2],
                    unique: false,
                    constraint: Some(false),
                    global_index: None,
                });
            }
            catalog.tables.insert(table.name.clone(), Arc::new(table));
        }
        catalog
    })
}

fn plan_one(sql: &str, catalog: &Catalog) -> Plan {
    let parsed = clearway_planner::parse(sql).expect(sql);
    clearway_planner::plan(&parsed[0], catalog, &[], session()).expect(sql)
}

/// Returns the settings of a session far from UTC, with daylight saving time.
pub(crate) fn session() -> &'static Arc<SessionEnv> {
    static SESSION: OnceLock<Arc<SessionEnv>> = OnceLock::new();
    SESSION.get_or_init(|| {
        Arc::new(SessionEnv {
            user: "me".into(),
            database: "db".into(),
            pid: 7,
            zone: Zone::named("America/St_Johns").expect("a zone that exists"),
            settings: vec![("TimeZone".into(), "America/St_Johns".into())],
            ..SessionEnv::default()
        })
    })
}

/// Returns the environment in which expressions are evaluated.
pub(crate) fn env(params: Vec<Datum>) -> Env {
    Env {
        params,
        now: 812_345_678_901_234,
        session: Some(session().clone()),
        seed: 3,
        ..Env::default()
    }
}

/// All types that a value can have.
pub(crate) const TYPES: [SqlType; 14] = [
    SqlType::Bool,
    SqlType::Int2,
    SqlType::Int4,
    SqlType::Int8,
    SqlType::Float8,
    SqlType::Text,
    SqlType::Varchar(Some(5)),
    SqlType::Varchar(None),
    SqlType::Char(3),
    SqlType::Timestamp,
    SqlType::Timestamptz,
    SqlType::Numeric,
    SqlType::Unknown,
    SqlType::Date,
];

/// Returns SQL text as the protocol's strings permit: UTF-8 without a zero byte.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|text| !text.contains('\0'))
}

/// Returns true if two values are the same; NaN equals itself.
pub(crate) fn same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Float8(a), Datum::Float8(b)) => {
            a.to_bits() == b.to_bits() || a == b || a.is_nan() && b.is_nan()
        }
        (a, b) => a == b,
    }
}

/// Checks that a value is the same after it was encoded and decoded, in both formats.
pub(crate) fn check_wire_forms(ty: SqlType, value: &Datum) {
    let zone = &session().zone;
    for format in [Format::Text, Format::Binary] {
        let mut rows = RowBatch::new();
        rows.push_with(|row| row.push(value.as_ref()));
        let mut out = Vec::new();
        data_row(&mut out, rows.get(0), [ColumnFormat { ty, format }].into_iter(), zone)
            .expect("a row of our own");
        let len = i32::from_be_bytes([out[7], out[8], out[9], out[10]]);
        let bytes = usize::try_from(len).ok().map(|len| &out[11..11 + len]);
        match parameter(ty, format, bytes, zone, 1) {
            Ok(back) => {
                assert!(same(&back, value), "{ty} {format:?}: {value:?} came back as {back:?}")
            }
            Err(error) => panic!("{ty} {format:?}: {value:?} cannot be read back: {error:?}"),
        }
    }
}
