//! The values that an integer column may have.

use crate::expr::BinaryOp;
use clearway_types::SqlType;

/// The values that an integer column may have, from its type and its table's CHECK constraints. If
/// `low` exceeds `high` there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least value.
    pub low: i64,
    /// The greatest value.
    pub high: i64,
}

impl Bounds {
    /// The bounds of a type; `None` if it is not an integer.
    pub(crate) fn of(ty: SqlType) -> Option<Self> {
        let (low, high) = match ty {
            SqlType::Int2 => (i16::MIN.into(), i16::MAX.into()),
            SqlType::Int4 => (i32::MIN.into(), i32::MAX.into()),
            SqlType::Int8 => (i64::MIN, i64::MAX),
            _ => return None,
        };
        Some(Self { low, high })
    }

    /// Excludes the values for which `value op bound` is false; returns false if the others are not
    /// an interval.
    pub(crate) fn narrow(&mut self, op: BinaryOp, bound: i64) -> bool {
        // No value is above the greatest integer, or below the least.
        const NONE: Bounds = Bounds { low: i64::MAX, high: i64::MIN };
        let above = |low: Option<i64>| low.map_or(NONE, |low| Bounds { low, high: i64::MAX });
        let below = |high: Option<i64>| high.map_or(NONE, |high| Bounds { low: i64::MIN, high });
        let allowed = match op {
            BinaryOp::Eq => Bounds { low: bound, high: bound },
            BinaryOp::Ge => above(Some(bound)),
            BinaryOp::Gt => above(bound.checked_add(1)),
            BinaryOp::Le => below(Some(bound)),
            BinaryOp::Lt => below(bound.checked_sub(1)),
            _ => return false,
        };
        self.low = self.low.max(allowed.low);
        self.high = self.high.min(allowed.high);
        true
    }
}
