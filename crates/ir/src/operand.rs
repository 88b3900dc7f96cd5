//! The values that evaluation passes between operators and functions.

use clearway_types::{Datum, DatumRef};

/// The value of an expression: borrowed from the row, the plan or the parameters, or text computed
/// by a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A borrowed or fixed-size value.
    Ref(DatumRef<'a>),
    /// Text computed by the evaluation.
    Text(Box<str>),
}

impl<'a> Value<'a> {
    /// SQL NULL.
    pub const NULL: Value<'static> = Value::Ref(DatumRef::Null);

    /// Borrows the value.
    pub fn as_ref(&self) -> DatumRef<'_> {
        match self {
            Self::Ref(r) => *r,
            Self::Text(t) => DatumRef::Text(t),
        }
    }
    /// Converts the value to an owned one.
    pub fn into_datum(self) -> Datum {
        match self {
            Self::Ref(r) => r.to_owned(),
            Self::Text(t) => Datum::Text(t),
        }
    }
    /// Returns the number of heap bytes that the value owns.
    pub(crate) fn owned_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }
    /// Returns true for SQL NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Ref(DatumRef::Null))
    }
    pub(crate) fn bool(v: bool) -> Value<'a> {
        Value::Ref(DatumRef::Bool(v))
    }
    pub(crate) fn text(v: impl Into<Box<str>>) -> Value<'a> {
        Value::Text(v.into())
    }
}
