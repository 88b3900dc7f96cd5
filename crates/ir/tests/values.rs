//! Text forms round-trip; comparison agrees with the key encoding; aggregates do not depend on how
//! rows are split.

use clearway_ir::agg::Groups;
use clearway_ir::expr::Func;
use clearway_ir::program::{AggFunc, Aggregate, Env, Group};
use clearway_ir::{Expr, Zone, cast, sort, value};
use clearway_types::{Datum, RowBatch, RowView, SqlType, key, row};
use proptest::prelude::*;

/// 4713 BC to 294276 AD.
fn micros() -> impl Strategy<Value = i64> {
    prop_oneof![
        -211_810_000_000_000_000i64..9_223_371_000_000_000_000,
        -1_000_000_000_000_000i64..1_000_000_000_000_000,
        Just(i64::MAX),
        Just(i64::MIN),
    ]
}

fn typed() -> impl Strategy<Value = (SqlType, Datum)> {
    prop_oneof![
        any::<bool>().prop_map(|v| (SqlType::Bool, Datum::Bool(v))),
        any::<i16>().prop_map(|v| (SqlType::Int2, Datum::Int2(v))),
        any::<i32>().prop_map(|v| (SqlType::Int4, Datum::Int4(v))),
        any::<i64>().prop_map(|v| (SqlType::Int8, Datum::Int8(v))),
        any::<f64>().prop_map(|v| (SqlType::Float8, Datum::Float8(v))),
        (-1e6..1e6f64).prop_map(|v| (SqlType::Float8, Datum::Float8(v))),
        ".{0,20}".prop_map(|v| (SqlType::Text, Datum::Text(v.into()))),
        "[a-z]{0,5}".prop_map(|v| (SqlType::Char(7), Datum::Text(v.into()))),
        micros().prop_map(|v| (SqlType::Timestamp, Datum::Timestamp(v))),
        micros().prop_map(|v| (SqlType::Timestamptz, Datum::Timestamptz(v))),
        (-2_451_000..2_145_000_000).prop_map(|v| (SqlType::Date, Datum::Date(v))),
        (any::<i64>(), 0u32..28).prop_map(|(v, s)| (
            SqlType::Numeric,
            Datum::Numeric(rust_decimal::Decimal::new(v, s))
        )),
    ]
}

fn zones() -> Vec<Zone> {
    ["UTC", "Asia/Kolkata", "-05:45"].iter().filter_map(|n| Zone::named(n)).collect()
}

proptest! {
    #[test]
    fn text_forms_round_trip((ty, d) in typed()) {
        for zone in zones() {
            let text = value::to_text(ty, d.as_ref(), &zone);
            let back = value::parse_text(ty, &text, &zone)
                .map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
            prop_assert_eq!(&back, &d, "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in ".{0,30}", time in "[-+0-9:. TZ]{0,30}") {
        for ty in [
            SqlType::Bool,
            SqlType::Int4,
            SqlType::Float8,
            SqlType::Numeric,
            SqlType::Date,
            SqlType::Timestamp,
            SqlType::Timestamptz,
            SqlType::Char(3),
        ] {
            for t in [&text, &time] {
                let _ = value::parse_text(ty, t, &Zone::utc());
            }
        }
    }

    #[test]
    fn comparison_agrees_with_the_key_encoding(
        a in any::<i64>(),
        b in any::<i32>(),
        x in any::<f64>(),
        y in any::<f64>(),
    ) {
        let check = |a: Datum, b: Datum| {
            let encode = |d: &Datum| {
                let mut out = Vec::new();
                key::push(&mut out, d.as_ref());
                out
            };
            (sort::compare(a.as_ref(), b.as_ref()), encode(&a).cmp(&encode(&b)))
        };
        for (a, b) in [
            (Datum::Int8(a), Datum::Int4(b)),
            (Datum::Float8(x), Datum::Float8(y)),
            (Datum::Null, Datum::Int4(b)),
            (Datum::Timestamp(a), Datum::Timestamp(i64::from(b))),
        ] {
            let (compared, encoded) = check(a, b);
            prop_assert_eq!(compared, encoded);
        }
    }

    #[test]
    fn partial_aggregates_merge_to_the_whole(
        rows in prop::collection::vec((0i32..3, prop::option::of(any::<i32>())), 0..30),
        split in 0usize..30,
    ) {
        let column = |n| Some(Expr::Column(n));
        let agg = |func, arg, ty| Aggregate { func, arg, distinct: false, ty };
        let group = Group {
            keys: vec![Expr::Column(0)],
            aggregates: vec![
                agg(AggFunc::Count, None, SqlType::Int8),
                agg(AggFunc::Count, column(1), SqlType::Int8),
                agg(AggFunc::Sum, column(1), SqlType::Int8),
                agg(AggFunc::Min, column(1), SqlType::Int4),
                agg(AggFunc::Max, column(1), SqlType::Int4),
                agg(AggFunc::Avg, column(1), SqlType::Numeric),
            ],
        };
        let env = Env::default();
        let encoded: Vec<Vec<u8>> = rows.iter().map(|(k, v)| {
            let mut out = Vec::new();
            row::encode(&[Datum::Int4(*k), v.map_or(Datum::Null, Datum::Int4)], &mut out);
            out
        }).collect();
        let (mut whole, mut merged) = (Groups::new(&group), Groups::new(&group));
        encoded.iter().try_for_each(|r| whole.accumulate(&group, RowView::new(r), &env)).unwrap();
        for part in [&encoded[..split.min(encoded.len())], &encoded[split.min(encoded.len())..]] {
            let (mut groups, mut out) = (Groups::new(&group), RowBatch::new());
            part.iter().try_for_each(|r| groups.accumulate(&group, RowView::new(r), &env)).unwrap();
            groups.push_partial(&group, 0..groups.len(), &mut out).unwrap();
            out.iter().try_for_each(|r| merged.merge(&group, r)).unwrap();
        }
        let (mut a, mut b) = (RowBatch::new(), RowBatch::new());
        whole.push_final(&group, 0..whole.len(), &mut a).unwrap();
        merged.push_final(&group, 0..merged.len(), &mut b).unwrap();
        prop_assert_eq!(a, b);
    }
}

#[test]
fn aggregates_without_rows_are_zero_or_null() {
    let agg = |func, ty| Aggregate {
        func,
        arg: Some(Expr::Column(0)),
        distinct: func == AggFunc::Count,
        ty,
    };
    let group = Group {
        keys: Vec::new(),
        aggregates: vec![
            agg(AggFunc::Count, SqlType::Int8),
            agg(AggFunc::Sum, SqlType::Int8),
            agg(AggFunc::Avg, SqlType::Float8),
        ],
    };
    let mut out = RowBatch::new();
    Groups::new(&group).push_final(&group, 0..1, &mut out).unwrap();
    assert_eq!(out.get(0).to_datums().unwrap(), [Datum::Int8(0), Datum::Null, Datum::Null]);
}

#[test]
fn string_casts_enforce_lengths() {
    let zone = Zone::utc();
    let to = |s: &str, ty, explicit| {
        cast::cast(Datum::from(s).as_ref(), ty, explicit, &zone).map_err(|e| e.state().to_string())
    };
    assert_eq!(to("äöüx", SqlType::Varchar(Some(3)), true), Ok("äöü".into()));
    assert_eq!(to("äöüx", SqlType::Varchar(Some(3)), false), Err("22001".into()));
    assert_eq!(to("abc  ", SqlType::Varchar(Some(4)), false), Ok("abc ".into()));
    assert_eq!(to("abc  ", SqlType::Char(3), false), Ok("abc".into()));
    assert_eq!(to("abcd", SqlType::Char(3), false), Err("22001".into()));
    assert_eq!(value::to_text(SqlType::Char(5), Datum::from("äb").as_ref(), &zone), "äb   ");
}

#[test]
fn local_times_in_gaps_and_folds_match_postgres() {
    let Some(berlin) = Zone::named("Europe/Berlin") else { return };
    let show = |text: &str| {
        let d = value::parse_text(SqlType::Timestamptz, text, &berlin).unwrap();
        value::to_text(SqlType::Timestamptz, d.as_ref(), &berlin)
    };
    assert_eq!(show("2024-01-01 12:00"), "2024-01-01 12:00:00+01");
    assert_eq!(show("2024-07-01 12:00"), "2024-07-01 12:00:00+02");
    // The gap of 31 March and the fold of 27 October, as PostgreSQL resolves them.
    assert_eq!(show("2024-03-31 02:30"), "2024-03-31 03:30:00+02");
    assert_eq!(show("2024-10-27 02:30"), "2024-10-27 02:30:00+01");
}

/// The last rules continue indefinitely.
#[test]
fn daylight_saving_continues_after_9999() {
    let Some(zone) = Zone::named("America/New_York") else { return };
    for year in ["2024", "9998", "9999", "10000", "20240", "294000"] {
        for (month, offset) in [("01", "-05"), ("07", "-04")] {
            let text = format!("{year}-{month}-01 12:00:00{offset}");
            let d = value::parse_text(SqlType::Timestamptz, &text, &Zone::utc()).unwrap();
            assert_eq!(value::to_text(SqlType::Timestamptz, d.as_ref(), &zone), text);
        }
    }
}

#[test]
fn evaluations_of_random_differ_for_equal_rows_if_they_are_numbered() {
    let env = Env { seed: 7, ..Env::default() };
    let random = |args: Vec<Datum>| {
        let call = Expr::Func(Func::Random, args.into_iter().map(Expr::Literal).collect());
        call.eval_const(&env).unwrap()
    };
    let by_row = |n| random(vec![Datum::Int4(n)]);
    assert_eq!(by_row(1), by_row(1));
    assert_ne!(by_row(1), by_row(2));
    let numbered = || random(vec![Datum::Int4(1), Datum::Bool(true)]);
    let first = [numbered(), numbered()];
    assert_ne!(first[0], first[1]);
    env.draws.restart();
    assert_eq!([numbered(), numbered()], first);
}
