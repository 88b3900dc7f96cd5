//! Aggregates: accumulate rows, emit partial states, merge them, and compute the results.

use crate::arith::{float, out_of_range};
use crate::cast::to_decimal;
use crate::decimal::{self, too_long};
use crate::expr::BinaryOp;
use crate::program::{AggFunc, Aggregate, Env, Group};
use crate::sort::{KeySet, compare, damaged, datum_memory, key_memory, push_identity};
use clearway_types::{
    Datum, DatumRef, RowBatch, RowBuilder, RowView, SqlError, SqlResult, SqlType,
};
use hashbrown::HashMap;
use rust_decimal::Decimal;
use std::ops::Range;

/// The running state of one aggregate of one group.
#[derive(Clone, Debug)]
pub struct State {
    kind: Kind,
    /// For DISTINCT: the values accumulated so far.
    seen: Option<KeySet>,
}

#[derive(Clone, Debug)]
enum Kind {
    Count(i64),
    /// The sum and the number of values in it.
    Sum(Number, i64),
    Extreme(Datum),
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Int(i128),
    Decimal(Decimal),
    Float(f64),
}

impl Number {
    fn of(v: DatumRef<'_>) -> SqlResult<Self> {
        match v {
            DatumRef::Int2(v) => Ok(Self::Int(i128::from(v))),
            DatumRef::Int4(v) => Ok(Self::Int(i128::from(v))),
            DatumRef::Int8(v) => Ok(Self::Int(i128::from(v))),
            DatumRef::Numeric(v) => Ok(Self::Decimal(v)),
            DatumRef::Float8(v) => Ok(Self::Float(v)),
            _ => Err(SqlError::internal("a sum of values that are not numbers")),
        }
    }
    fn add(self, other: Self) -> SqlResult<Self> {
        match (self, other) {
            // Cannot overflow: an i128 has room for 2^63 values of 2^63.
            (Self::Int(a), Self::Int(b)) => Ok(Self::Int(a.wrapping_add(b))),
            (Self::Float(a), Self::Float(b)) => float(BinaryOp::Add, a, b).map(Self::Float),
            (a, b) => decimal::add(a.decimal()?, b.decimal()?).map(Self::Decimal),
        }
    }
    fn decimal(self) -> SqlResult<Decimal> {
        match self {
            Self::Int(v) => Decimal::try_from_i128_with_scale(v, 0).map_err(|_| too_long()),
            Self::Decimal(v) => Ok(v),
            Self::Float(_) => Err(SqlError::internal("a float8 in a numeric sum")),
        }
    }
    fn to_datum(self, ty: SqlType) -> SqlResult<Datum> {
        match (self, ty) {
            (Self::Float(v), _) => Ok(Datum::Float8(v)),
            (Self::Int(v), SqlType::Int8) => {
                i64::try_from(v).map(Datum::Int8).map_err(|_| out_of_range("bigint"))
            }
            (n, _) => n.decimal().map(Datum::Numeric),
        }
    }
}

impl Aggregate {
    /// Returns the number of columns of the partial state.
    pub fn state_columns(&self) -> usize {
        if self.func == AggFunc::Avg { 2 } else { 1 }
    }
    /// Returns the initial state.
    pub fn start(&self) -> State {
        let kind = match self.func {
            AggFunc::Count => Kind::Count(0),
            AggFunc::Sum | AggFunc::Avg if self.ty == SqlType::Float8 => {
                Kind::Sum(Number::Float(0.0), 0)
            }
            AggFunc::Sum | AggFunc::Avg => Kind::Sum(Number::Int(0), 0),
            AggFunc::Min | AggFunc::Max => Kind::Extreme(Datum::Null),
        };
        State { kind, seen: self.distinct.then(KeySet::default) }
    }
}

impl State {
    /// Accumulates one row; DISTINCT counts each argument once. Updates `memory`, the approximate
    /// size of all states in bytes.
    fn accumulate(
        &mut self,
        agg: &Aggregate,
        row: RowView<'_>,
        env: &Env,
        memory: &mut usize,
    ) -> SqlResult<()> {
        let Some(arg) = &agg.arg else {
            if let Kind::Count(n) = &mut self.kind {
                *n += 1;
            }
            return Ok(());
        };
        let value = arg.eval_ref(row, env)?;
        if value.is_null() {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let mut key = Vec::new();
            push_identity(&mut key, value.as_ref());
            let size = key_memory(&key);
            if !seen.insert(key) {
                return Ok(());
            }
            *memory += size;
        }
        self.take(agg, value.as_ref(), memory)
    }

    fn take(&mut self, agg: &Aggregate, value: DatumRef<'_>, memory: &mut usize) -> SqlResult<()> {
        match &mut self.kind {
            Kind::Count(n) => *n += 1,
            Kind::Sum(sum, count) => {
                *sum = sum.add(Number::of(value)?)?;
                *count += 1;
            }
            Kind::Extreme(best) => {
                let order = compare(value, best.as_ref());
                let better = if agg.func == AggFunc::Min { order.is_lt() } else { order.is_gt() };
                if best.is_null() || better {
                    let value = value.to_owned();
                    *memory = *memory + datum_memory(&value) - datum_memory(best);
                    *best = value;
                }
            }
        }
        Ok(())
    }

    /// Merges the partial state that starts at column `at` of `row` (see
    /// [`Aggregate::state_columns`]).
    fn merge(
        &mut self,
        agg: &Aggregate,
        row: RowView<'_>,
        at: usize,
        memory: &mut usize,
    ) -> SqlResult<()> {
        let first = row.get(at).map_err(|_| damaged())?;
        if first.is_null() {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Count(n) => *n += first.to_owned().as_i64().ok_or_else(damaged)?,
            Kind::Sum(sum, count) => {
                let values = match agg.func {
                    AggFunc::Avg => row
                        .get(at + 1)
                        .map_err(|_| damaged())?
                        .to_owned()
                        .as_i64()
                        .ok_or_else(damaged)?,
                    _ => 1,
                };
                *sum = sum.add(Number::of(first)?)?;
                *count += values;
            }
            Kind::Extreme(_) => self.take(agg, first, memory)?,
        }
        Ok(())
    }

    /// Appends the partial state's columns. A sum is sent as numeric, because it may exceed bigint.
    pub fn push_partial(&self, agg: &Aggregate, out: &mut RowBuilder<'_>) -> SqlResult<()> {
        match &self.kind {
            Kind::Count(n) => out.push(DatumRef::Int8(*n)),
            Kind::Extreme(best) => out.push(best.as_ref()),
            Kind::Sum(sum, count) => {
                let sum = if *count == 0 { Datum::Null } else { sum.to_datum(SqlType::Numeric)? };
                out.push(sum.as_ref());
                if agg.func == AggFunc::Avg {
                    out.push(DatumRef::Int8(*count));
                }
            }
        }
        Ok(())
    }

    /// Returns the aggregate's result.
    pub fn finish(&self, agg: &Aggregate) -> SqlResult<Datum> {
        match &self.kind {
            Kind::Count(n) => Ok(Datum::Int8(*n)),
            Kind::Extreme(best) => Ok(best.clone()),
            Kind::Sum(_, 0) => Ok(Datum::Null),
            Kind::Sum(sum, count) if agg.func == AggFunc::Avg => match sum {
                Number::Float(v) => Ok(Datum::Float8(v / *count as f64)),
                n => decimal::divide(n.decimal()?, Decimal::from(*count)).map(Datum::Numeric),
            },
            Kind::Sum(sum, _) => match sum.to_datum(agg.ty)? {
                Datum::Numeric(v) if agg.ty == SqlType::Int8 => {
                    let wide = to_decimal(DatumRef::Numeric(v)).and_then(|d| i64::try_from(d).ok());
                    wide.map(Datum::Int8).ok_or_else(|| out_of_range("bigint"))
                }
                d => Ok(d),
            },
        }
    }
}

/// The groups of one grouping, in the order in which they first appeared. Partitions and the
/// coordinator use the same table.
#[derive(Clone, Debug)]
pub struct Groups {
    index: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Datum>, Vec<State>)>,
    /// Buffer for the key being looked up; kept to reuse its allocation.
    key: Vec<u8>,
    /// Approximate size of the groups in bytes.
    memory: usize,
}

impl Groups {
    /// Creates an empty table. Without group keys, it holds the single group from the start.
    pub fn new(group: &Group) -> Self {
        let mut groups =
            Self { index: HashMap::default(), groups: Vec::new(), key: Vec::new(), memory: 0 };
        if group.keys.is_empty() {
            groups.index.insert(Vec::new(), 0);
            groups.groups.push((Vec::new(), start(group)));
        }
        groups
    }
    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }
    /// Returns true if there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
    /// Returns the approximate memory used by the groups, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }
    /// Accumulates an ungrouped row. `group` must be the one passed to [`Groups::new`].
    pub fn accumulate(&mut self, group: &Group, row: RowView<'_>, env: &Env) -> SqlResult<()> {
        let at = self.find(group, |n| group.keys[n].eval(row, env))?;
        for (state, agg) in self.groups[at].1.iter_mut().zip(&group.aggregates) {
            state.accumulate(agg, row, env, &mut self.memory)?;
        }
        Ok(())
    }
    /// Merges a partial row: keys, then partial states.
    pub fn merge(&mut self, group: &Group, row: RowView<'_>) -> SqlResult<()> {
        let at = self.find(group, |n| row.get(n).map(DatumRef::to_owned).map_err(|_| damaged()))?;
        let mut column = group.keys.len();
        for (state, agg) in self.groups[at].1.iter_mut().zip(&group.aggregates) {
            state.merge(agg, row, column, &mut self.memory)?;
            column += agg.state_columns();
        }
        Ok(())
    }
    fn find(
        &mut self,
        group: &Group,
        value: impl Fn(usize) -> SqlResult<Datum>,
    ) -> SqlResult<usize> {
        if group.keys.is_empty() {
            return Ok(0);
        }
        let keys: Vec<Datum> = (0..group.keys.len()).map(value).collect::<SqlResult<_>>()?;
        self.key.clear();
        for k in &keys {
            push_identity(&mut self.key, k.as_ref());
        }
        if let Some(&at) = self.index.get(&self.key) {
            return Ok(at);
        }
        self.memory += key_memory(&self.key) + keys.iter().map(datum_memory).sum::<usize>();
        self.memory +=
            size_of::<(Vec<Datum>, Vec<State>)>() + group.aggregates.len() * size_of::<State>();
        self.index.insert(self.key.clone(), self.groups.len());
        self.groups.push((keys, start(group)));
        Ok(self.groups.len() - 1)
    }
    /// Appends one row for each group in the range: keys, then partial states.
    pub fn push_partial(
        &self,
        group: &Group,
        range: Range<usize>,
        out: &mut RowBatch,
    ) -> SqlResult<()> {
        self.push_rows(group, range, out, State::push_partial)
    }
    /// Appends one row for each group in the range: keys, then results.
    pub fn push_final(
        &self,
        group: &Group,
        range: Range<usize>,
        out: &mut RowBatch,
    ) -> SqlResult<()> {
        self.push_rows(group, range, out, |state, agg, row| {
            state.finish(agg).map(|d| row.push(d.as_ref()))
        })
    }
    /// Appends one row for each group in the range: keys, then what `push` makes of each state.
    fn push_rows(
        &self,
        group: &Group,
        range: Range<usize>,
        out: &mut RowBatch,
        push: impl Fn(&State, &Aggregate, &mut RowBuilder<'_>) -> SqlResult<()>,
    ) -> SqlResult<()> {
        for (keys, states) in &self.groups[range] {
            out.try_push_with(|row| {
                keys.iter().for_each(|k| row.push(k.as_ref()));
                states.iter().zip(&group.aggregates).try_for_each(|(s, agg)| push(s, agg, row))
            })?;
        }
        Ok(())
    }
}

fn start(group: &Group) -> Vec<State> {
    group.aggregates.iter().map(Aggregate::start).collect()
}
