//! The key and row encodings against models, with values of all types.

use clearway_types::{Datum, RowBatch, RowBuilder, RowView, key, row};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cmp::Ordering;

fn text() -> impl Strategy<Value = Box<str>> {
    prop_oneof!["[a-c]{0,4}", "[\u{0}\u{1}\u{ff}a]{0,4}", ".{0,40}"]
        .prop_map(String::into_boxed_str)
}

fn int() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), -3i64..3, any::<i64>()]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(-0.0),
        Just(f64::NAN),
        Just(-f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY)
    ]
}

fn datum() -> impl Strategy<Value = Datum> {
    prop_oneof![
        Just(Datum::Null),
        any::<bool>().prop_map(Datum::Bool),
        any::<i16>().prop_map(Datum::Int2),
        any::<i32>().prop_map(Datum::Int4),
        int().prop_map(Datum::Int8),
        any::<f64>().prop_map(Datum::Float8),
        text().prop_map(Datum::Text),
        int().prop_map(Datum::Timestamp),
        int().prop_map(Datum::Timestamptz),
        any::<i32>().prop_map(Datum::Date),
        (any::<i64>(), 0u32..28)
            .prop_map(|(v, scale)| Datum::Numeric(rust_decimal::Decimal::new(v, scale))),
    ]
}

fn encode(values: &[Datum]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| key::push(&mut out, v.as_ref()));
    out
}

fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// NULLs last.
fn order<T>(a: &Option<T>, b: &Option<T>, compare: impl Fn(&T, &T) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b),
        _ => a.is_none().cmp(&b.is_none()),
    }
}

proptest! {
    #[test]
    fn keys_compare_as_their_columns(
        a in (prop::option::of(text()), prop::option::of(int()), prop::option::of(float())),
        b in (prop::option::of(text()), prop::option::of(int()), prop::option::of(float())),
    ) {
        let datums = |k: &(Option<Box<str>>, Option<i64>, Option<f64>)| [
            k.0.clone().map_or(Datum::Null, Datum::Text),
            k.1.map_or(Datum::Null, Datum::Int8),
            k.2.map_or(Datum::Null, Datum::Float8),
        ];
        let expected = order(&a.0, &b.0, |x, y| x.as_bytes().cmp(y.as_bytes()))
            .then(order(&a.1, &b.1, Ord::cmp))
            .then(order(&a.2, &b.2, |x, y| float_order(*x, *y)));
        prop_assert_eq!(encode(&datums(&a)).cmp(&encode(&datums(&b))), expected);
    }

    #[test]
    fn integer_widths_share_one_encoding(v in any::<i16>()) {
        let of = |d| encode(&[d]);
        prop_assert_eq!(of(Datum::Int2(v)), of(Datum::Int4(v.into())));
        prop_assert_eq!(of(Datum::Int2(v)), of(Datum::Int8(v.into())));
    }

    #[test]
    fn successor_is_above_every_extension_and_nothing_else(prefix in vec(any::<u8>(), 0..6), tail in vec(any::<u8>(), 0..4), other in vec(any::<u8>(), 0..8)) {
        let long: Vec<u8> = prefix.iter().chain(&tail).copied().collect();
        match key::successor(&prefix) {
            None => prop_assert!(prefix.iter().all(|b| *b == 0xff)),
            Some(next) => {
                prop_assert!(next > long);
                prop_assert!(other < prefix || other >= next || other.starts_with(&prefix));
            }
        }
    }

    #[test]
    fn rows_read_back(rows in vec(vec(datum(), 0..8), 0..5)) {
        let same = |a: &[Datum], b: &[Datum]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| match (x, y) {
            (Datum::Float8(x), Datum::Float8(y)) => x.to_bits() == y.to_bits(),
            (x, y) => x == y,
        });
        let mut batch = RowBatch::new();
        for r in &rows {
            let mut bytes = Vec::new();
            row::encode(r, &mut bytes);
            batch.push_encoded(&bytes);
        }
        prop_assert_eq!(batch.len(), rows.len());
        for (view, r) in batch.iter().zip(&rows) {
            prop_assert!(same(&view.to_datums().unwrap(), r));
            for (i, d) in r.iter().enumerate() {
                prop_assert!(same(&[view.get(i).unwrap().to_owned()], std::slice::from_ref(d)));
            }
            prop_assert!(view.get(r.len()).unwrap().is_null());
            let mut again = RowBatch::new();
            let copy = |out: &mut RowBuilder<'_>| (0..r.len()).for_each(|i| out.push_encoded(view.column(i).unwrap()));
            again.push_with(copy);
            prop_assert_eq!(again.get(0).bytes(), view.bytes());
            prop_assert_eq!(view.column(r.len()).unwrap(), [0]);
        }
    }

    #[test]
    fn damaged_rows_never_panic(bytes in vec(any::<u8>(), 0..60)) {
        let view = RowView::new(&bytes);
        let _ = view.to_datums();
        let _ = view.get(3);
        let _ = view.column(3);
    }

    #[test]
    fn truncated_rows_are_detected(values in vec(datum(), 1..5), cut in 1usize..4) {
        let mut bytes = Vec::new();
        row::encode(&values, &mut bytes);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        if bytes.len() >= 2 {
            let view = RowView::new(&bytes);
            prop_assert!(view.to_datums().is_err());
            prop_assert!(view.get(values.len() - 1).is_err(), "no NULL after the damage");
            prop_assert!(view.column(values.len() - 1).is_err());
        }
    }
}

/// The bytes are part of the format on disk.
#[test]
fn zeros_in_text_keys_are_escaped() {
    let cases: [(&str, &[u8]); 5] = [
        ("", b"\x01\0\0"),
        ("ab", b"\x01ab\0\0"),
        ("a\0b", b"\x01a\0\xffb\0\0"),
        ("\0", b"\x01\0\xff\0\0"),
        ("\0\0c\0", b"\x01\0\xff\0\xffc\0\xff\0\0"),
    ];
    for (text, bytes) in cases {
        assert_eq!(encode(&[Datum::Text(text.into())]), bytes, "{text:?}");
    }
}
