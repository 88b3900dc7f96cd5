//! Evaluation of scalar expressions against one row.
//!
//! [`Expr::eval_ref`] is the form that the executor uses: literals, parameters and columns are borrowed, so a comparison
//! or an integer sum allocates nothing.

use crate::Expr;
use crate::program::Env;
use clearway_types::{Datum, DatumRef, RowView, SqlError, SqlResult};

/// The value of an expression: borrowed from the row, the plan or the parameters, or text made by a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A borrowed or a fixed-size value.
    Ref(DatumRef<'a>),
    /// Text that the evaluation made.
    Text(Box<str>),
}

impl Value<'_> {
    /// SQL NULL.
    pub const NULL: Value<'static> = Value::Ref(DatumRef::Null);

    /// The value, borrowed.
    pub fn as_ref(&self) -> DatumRef<'_> {
        match self {
            Self::Ref(r) => *r,
            Self::Text(t) => DatumRef::Text(t),
        }
    }
    /// The value, owned.
    pub fn into_datum(self) -> Datum {
        match self {
            Self::Ref(r) => r.to_owned(),
            Self::Text(t) => Datum::Text(t),
        }
    }
    /// Whether this is SQL NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Ref(DatumRef::Null))
    }
}

impl Expr {
    /// The expression's value for `row`, owned.
    pub fn eval(&self, row: RowView<'_>, env: &Env) -> SqlResult<Datum> {
        self.eval_ref(row, env).map(Value::into_datum)
    }

    /// The expression's value for `row`, borrowed where it can be.
    pub fn eval_ref<'a>(&'a self, row: RowView<'a>, env: &'a Env) -> SqlResult<Value<'a>> {
        let _ = env;
        match self {
            Self::Literal(d) => Ok(Value::Ref(d.as_ref())),
            Self::Param(n) => Ok(Value::Ref(env.params.get(*n).map_or(DatumRef::Null, Datum::as_ref))),
            Self::Column(n) => row.get(*n).map(Value::Ref).map_err(|_| SqlError::internal("damaged row")),
            _ => Err(SqlError::internal("not built yet")),
        }
    }

    /// Whether a condition holds: NULL does not.
    pub fn eval_bool(&self, row: RowView<'_>, env: &Env) -> SqlResult<bool> {
        Ok(matches!(self.eval_ref(row, env)?.as_ref(), DatumRef::Bool(true)))
    }

    /// The value of an expression without columns.
    pub fn eval_const(&self, env: &Env) -> SqlResult<Datum> {
        self.eval(RowView::new(&[]), env)
    }
}
