//! An UPDATE that counts as an addition adds one amount to every value of its column. Otherwise an
//! addition beside an uncommitted one would depend on whether that one commits.

use crate::common::plan_in;
use clearway_ir::{Catalog, Env, Expr, Program, Statement};
use clearway_types::{Datum, RowView, row};
use std::sync::Arc;

const TYPES: [(&str, i64, i64); 3] = [
    ("int2", i16::MIN as i64, i16::MAX as i64),
    ("int4", i32::MIN as i64, i32::MAX as i64),
    ("int8", i64::MIN, i64::MAX),
];

fn catalog(ty: &str) -> Catalog {
    let sql = format!("create table t (id int primary key, n {ty})");
    let Statement::CreateTable { table, .. } =
        plan_in(&Catalog::default(), &sql).unwrap().statement
    else {
        panic!()
    };
    Catalog { version: 1, tables: [(table.name.clone(), Arc::new(table))].into() }
}

/// Returns the new value if it counts as an addition.
fn addition(catalog: &Catalog, new: &str) -> Option<Expr> {
    let plan = plan_in(catalog, &format!("update t set n = {new} where id = 1")).ok()?;
    let Statement::Modify { program, .. } = plan.statement else { panic!() };
    let Program::Update { set, adds, .. } = &*program else { panic!() };
    adds.is_some().then(|| set[0].1.clone())
}

/// Returns the new value for an old one; `None` for an error.
fn of(new: &Expr, ty: &str, old: i64) -> Option<Datum> {
    let old = match ty {
        "int2" => Datum::Int2(old as i16),
        "int4" => Datum::Int4(old as i32),
        _ => Datum::Int8(old),
    };
    let mut bytes = Vec::new();
    row::encode(&[Datum::Int4(1), old], &mut bytes);
    new.eval(RowView::new(&bytes), &Env::default()).ok()
}

/// Every value at which an integer type ends, its neighbours, and some in between.
fn values(low: i64, high: i64) -> Vec<i64> {
    let ends = TYPES.iter().flat_map(|(_, low, high)| [*low, *high]).chain([0, 1_000, -70_000]);
    let near = ends.flat_map(|end| (-2..=2).filter_map(move |by| end.checked_add(by)));
    near.filter(|value| (low..=high).contains(value)).collect()
}

#[test]
fn additions_add_one_amount_to_every_value() {
    let column = ["n", "n::int2", "n::int4", "n::int8", "(n::int2)::int8", "n::numeric", "-n"];
    let amounts = ["1", "-3", "1::int2", "1::int8", "40000", "3000000000", "1.5", "abs(-2)"];
    let mut additions = 0;
    for (ty, low, high) in TYPES {
        let catalog = catalog(ty);
        for (column, amount) in column.iter().flat_map(|c| amounts.iter().map(move |a| (c, a))) {
            for sum in [
                format!("{column} + {amount}"),
                format!("{amount} + {column}"),
                format!("{column} - {amount}"),
                format!("({column} + {amount})::int2"),
                format!("({column} + {amount})::{ty}"),
                format!("({column} - {amount})::int8"),
                format!("{column} + {amount} + 1"),
            ] {
                let Some(new) = addition(&catalog, &sum) else { continue };
                additions += 1;
                let integer = |old| match of(&new, ty, old)? {
                    Datum::Int2(new) => Some(i64::from(new)),
                    Datum::Int4(new) => Some(i64::from(new)),
                    Datum::Int8(new) => Some(new),
                    other => panic!("{ty}: {sum}: {other:?}"),
                };
                let change = |old: &i64| Some(i128::from(integer(*old)?) - i128::from(*old));
                let values = values(low, high);
                let by = values.iter().find_map(change);
                for old in values {
                    let fits = |new: &i128| (i128::from(low)..=i128::from(high)).contains(new);
                    let expected = by.map(|by| i128::from(old) + by).filter(fits);
                    assert_eq!(integer(old).map(i128::from), expected, "{ty}: {sum} of {old}");
                }
            }
        }
    }
    assert!(additions > 100, "{additions}");
}
