//! Keys compare as their values do. A key's successor is the least key that does not start with it.

use crate::input::Input;
use clearway_ir::sort::compare;
use clearway_types::{Datum, key};
use std::cmp::Ordering;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let columns = 1 + usize::from(input.u8() % 3);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..columns {
        let kind = input.u8();
        a.push(value(kind, &mut input));
        b.push(value(kind, &mut input));
    }
    let (ka, kb) = (encode(&a), encode(&b));
    let values = a.iter().zip(&b).map(|(a, b)| compare(a.as_ref(), b.as_ref()));
    let wanted = values.fold(Ordering::Equal, Ordering::then);
    assert_eq!(ka.cmp(&kb), wanted, "{a:?} and {b:?}");
    if let Some(next) = key::successor(&ka) {
        assert!(next > ka && !next.starts_with(&ka));
        let beyond = kb > ka && !kb.starts_with(&ka);
        assert_eq!(kb >= next, beyond, "{kb:?} and the successor {next:?} of {ka:?}");
    }
}

fn value(kind: u8, input: &mut Input<'_>) -> Datum {
    if input.u8() == 0xff {
        return Datum::Null;
    }
    match kind % 7 {
        0 => Datum::Bool(input.u8() & 1 == 1),
        1 => Datum::Int2(input.u16() as i16),
        2 => Datum::Int8(input.u64() as i64),
        3 => Datum::Float8(f64::from_bits(input.u64())),
        4 => Datum::Timestamp(input.u64() as i64),
        6 => Datum::Date(input.u16() as i32 - 0x8000),
        _ => {
            let len = usize::from(input.u8());
            Datum::from(String::from_utf8_lossy(input.bytes(len)).as_ref())
        }
    }
}

fn encode(values: &[Datum]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| key::push(&mut out, v.as_ref()));
    out
}
