//! Rows as stored in trees. A valid row is the same after it was decoded and encoded, and each of
//! its values can be sent to a client.

use super::common::{same, session};
use clearway_ir::cast::type_of;
use clearway_ir::value::to_text;
use clearway_types::RowView;
use clearway_types::row::encode;

pub(super) fn run(data: &[u8]) {
    let row = RowView::new(data);
    let _ = row.get(row.len() / 2);
    let Ok(values) = row.to_datums() else { return };
    assert_eq!(values.len(), row.len());
    for value in &values {
        let _ = to_text(type_of(value.as_ref()), value.as_ref(), &session().zone);
    }
    let mut bytes = Vec::new();
    encode(&values, &mut bytes);
    let again = RowView::new(&bytes).to_datums().expect("a row of our own");
    assert_eq!(values.len(), again.len());
    assert!(values.iter().zip(&again).all(|(a, b)| same(a, b)), "{values:?} became {again:?}");
}
