//! Chooses the access path and the route.
//!
//! A condition that the path answers exactly is removed from the filter; one that the path only
//! narrows down stays. A key expression is comparable with the column under the key encoding: any
//! integer width for an integer column, and a numeric or float8 by means of [`Func::ExactInt`] and
//! similar functions.

use clearway_ir::expr::{BinaryOp, Func};
use clearway_ir::statement::{Route, SortKey};
use clearway_ir::{Access, Distribution, Expr, GlobalIndex, LockWait, Path, RowLocking, TableDef};
use clearway_types::{Datum, SqlType};
use std::sync::Arc;

/// Maximum number of conditions of one WHERE that are considered for a path. The rest stay in the
/// filter.
const MAX_CONDITIONS: usize = 64;

/// The chosen path and route.
pub(crate) struct Choice {
    pub(crate) access: Access,
    pub(crate) route: Route,
    /// Each partition returns its rows in the requested order.
    pub(crate) ordered: bool,
}

/// One condition `column op expr`.
struct Condition {
    column: usize,
    op: BinaryOp,
    key: Expr,
    /// A lookup by `key` is equivalent to the condition.
    exact: bool,
    /// Its index among the conjuncts.
    at: usize,
}

/// A possible path: an index, and the conditions that it would use.
#[derive(Clone, Default)]
struct Candidate {
    index: Option<usize>,
    prefix: Vec<(Expr, usize, bool)>,
    low: Option<Limit>,
    high: Option<Limit>,
}

/// One bound of a range.
#[derive(Clone)]
struct Limit {
    key: Expr,
    inclusive: bool,
    /// Index of the conjunct, if the bound is equivalent to it.
    used: Option<usize>,
}

impl Limit {
    fn of(c: &Condition, inclusive: BinaryOp) -> Self {
        Self { key: c.key.clone(), inclusive: c.op == inclusive, used: c.exact.then_some(c.at) }
    }
    fn bound(self) -> (Expr, bool) {
        (self.key, self.inclusive)
    }
}

impl Candidate {
    fn score(&self) -> usize {
        self.prefix.len() * 4 + usize::from(self.low.is_some()) + usize::from(self.high.is_some())
    }
}

/// Finds the path and route for the rows that satisfy `filter`, in the order `order` if that costs
/// nothing. `limited`: few rows in that order are wanted, so that an index may be scanned for the
/// order alone.
pub(crate) fn choose(
    table: &Arc<TableDef>,
    filter: Option<Expr>,
    order: &[SortKey],
    limited: bool,
    lock: Option<RowLocking>,
) -> Choice {
    let mut conjuncts = Vec::new();
    if let Some(f) = filter {
        split(f, &mut conjuncts);
    }
    let mut conditions = Vec::new();
    for (at, c) in conjuncts.iter().enumerate().take(MAX_CONDITIONS) {
        comparisons(table, c, at, &mut conditions);
    }
    let route = route(table, &conditions);
    let (path, used, ordered) = path(table, &conjuncts, &conditions, order, limited);
    // A statement that skips locked rows locks no path: a row may have left the path before it is
    // checked.
    let skips = lock.is_some_and(|lock| lock.wait == LockWait::Skip);
    let rest = conjuncts
        .into_iter()
        .enumerate()
        .filter(|(at, _)| skips || !used.contains(at))
        .map(|(_, c)| c);
    let filter = rest.reduce(|a, b| Expr::Binary(BinaryOp::And, Box::new(a), Box::new(b)));
    Choice {
        access: Access { table: table.clone(), path, filter, lock, learned: Default::default() },
        route,
        ordered,
    }
}

/// Splits a condition into its conjuncts.
pub(crate) fn split(e: Expr, out: &mut Vec<Expr>) {
    match e {
        Expr::Binary(BinaryOp::And, l, r) => {
            split(*l, out);
            split(*r, out);
        }
        other => out.push(other),
    }
}

fn flip(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        other => other,
    }
}

/// Returns the column on one side, bare or converted, and the type it was converted to.
fn column_side(table: &TableDef, e: &Expr) -> Option<(usize, Option<SqlType>)> {
    match e {
        Expr::Column(c) => Some((*c, None)),
        Expr::Cast { expr, to: to @ (SqlType::Numeric | SqlType::Float8), explicit: false } => {
            match &**expr {
                Expr::Column(c) if table.columns[*c].ty.is_integer() => Some((*c, Some(*to))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn comparisons(table: &TableDef, e: &Expr, at: usize, out: &mut Vec<Condition>) {
    let Expr::Binary(
        op @ (BinaryOp::Eq | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge),
        l,
        r,
    ) = e
    else {
        // A boolean column alone, or its negation.
        if let Expr::Column(column) = e {
            let key = Expr::Literal(Datum::Bool(true));
            out.push(Condition { column: *column, op: BinaryOp::Eq, key, exact: true, at });
        }
        return;
    };
    let (op, (column, converted), key) = match (column_side(table, l), column_side(table, r)) {
        (Some(c), _) if r.is_constant() => (*op, c, r),
        (_, Some(c)) if l.is_constant() => (flip(*op), c, l),
        _ => return,
    };
    let call = |f| Expr::Func(f, vec![(**key).clone()]);
    let wide = table.columns[column].ty == SqlType::Int8;
    let (op, key, exact) = match (op, converted) {
        (op, None) => (op, (**key).clone(), true),
        // Above 2^53 several bigints equal one float8.
        (BinaryOp::Eq, Some(SqlType::Float8)) if wide => return,
        (BinaryOp::Eq, Some(_)) => (op, call(Func::ExactInt), true),
        (BinaryOp::Gt | BinaryOp::Ge, Some(_)) => (BinaryOp::Ge, call(Func::FloorInt), false),
        (_, Some(_)) => (BinaryOp::Le, call(Func::CeilInt), false),
    };
    out.push(Condition { column, op, key, exact, at });
}

fn equality(conditions: &[Condition], column: usize) -> Option<&Condition> {
    conditions.iter().find(|c| c.column == column && c.op == BinaryOp::Eq)
}

fn route(table: &Arc<TableDef>, conditions: &[Condition]) -> Route {
    let keys = |columns: &[usize]| -> Option<Vec<Expr>> {
        columns.iter().map(|c| equality(conditions, *c).map(|c| c.key.clone())).collect()
    };
    if let Distribution::Hash(columns) = &table.distribution
        && let Some(keys) = keys(columns)
    {
        return Route::Hash(keys);
    }
    let by_global_index = |g: GlobalIndex<'_>| {
        keys(g.columns).map(|values| Route::GlobalIndex {
            table: table.clone(),
            key: g.key,
            values,
        })
    };
    table.global_indexes().find_map(by_global_index).unwrap_or(Route::All)
}

fn candidate(index: Option<usize>, columns: &[usize], conditions: &[Condition]) -> Candidate {
    let mut c = Candidate { index, ..Candidate::default() };
    for &column in columns {
        if let Some(eq) = equality(conditions, column) {
            c.prefix.push((eq.key.clone(), eq.at, eq.exact));
            continue;
        }
        for cond in conditions.iter().filter(|c| c.column == column) {
            match cond.op {
                BinaryOp::Gt | BinaryOp::Ge if c.low.is_none() => {
                    c.low = Some(Limit::of(cond, BinaryOp::Ge));
                }
                BinaryOp::Lt | BinaryOp::Le if c.high.is_none() => {
                    c.high = Some(Limit::of(cond, BinaryOp::Le));
                }
                _ => {}
            }
        }
        break;
    }
    c
}

/// Returns the columns by which a tree's entries are ordered.
fn order_of(table: &TableDef, index: Option<usize>) -> Vec<usize> {
    match index {
        None => table.primary_key.clone(),
        Some(i) => {
            let def = &table.indexes[i];
            let mut columns = def.columns.clone();
            if !def.unique {
                columns.extend(&table.primary_key);
            }
            columns
        }
    }
}

/// Returns `Some(reverse)` if scanning the candidate yields the requested order.
fn serves(table: &TableDef, c: &Candidate, order: &[SortKey]) -> Option<bool> {
    let columns = order_of(table, c.index);
    let fixed = &columns[..c.prefix.len().min(columns.len())];
    let mut next = columns[fixed.len()..].iter();
    let mut reverse = None;
    for key in order {
        let Expr::Column(column) = key.expr else { return None };
        if fixed.contains(&column) {
            continue;
        }
        if next.next() != Some(&column) {
            return None;
        }
        let natural = key.nulls_first == key.descending || table.columns[column].not_null;
        if !natural || *reverse.get_or_insert(key.descending) != key.descending {
            return None;
        }
    }
    Some(reverse.unwrap_or(false))
}

fn path(
    table: &TableDef,
    conjuncts: &[Expr],
    conditions: &[Condition],
    order: &[SortKey],
    limited: bool,
) -> (Path, Vec<usize>, bool) {
    let keyed = !table.primary_key.is_empty();
    let primary = candidate(None, &table.primary_key, conditions);
    if keyed && primary.prefix.len() == table.primary_key.len() {
        let used = primary.prefix.iter().filter(|p| p.2).map(|p| p.1).collect();
        return (Path::Point(primary.prefix.into_iter().map(|p| p.0).collect()), used, true);
    }
    if let [column] = table.primary_key[..]
        && let Some((at, keys)) = conjuncts
            .iter()
            .enumerate()
            .take(MAX_CONDITIONS)
            .find_map(|(at, c)| Some((at, points(table, column, c)?)))
    {
        return (Path::Points(keys), vec![at], order.is_empty());
    }
    let secondary = |i: usize| candidate(Some(i), &table.indexes[i].columns, conditions);
    let mut best = if keyed { primary } else { Candidate::default() };
    for c in (0..table.indexes.len()).map(secondary) {
        if c.score() > best.score() {
            best = c;
        }
    }
    let mut served = if keyed || best.index.is_some() { serves(table, &best, order) } else { None };
    if best.score() == 0 && limited && served.is_none() {
        let by_order = (0..table.indexes.len())
            .map(|i| Candidate { index: Some(i), ..Candidate::default() })
            .find_map(|c| serves(table, &c, order).map(|reverse| (c, reverse)));
        if let Some((c, reverse)) = by_order {
            best = c;
            served = Some(reverse);
        }
    }
    let ordered = order.is_empty() || served.is_some();
    let reverse = !order.is_empty() && served == Some(true);
    if best.score() == 0 && best.index.is_none() && !reverse {
        return (Path::Full, Vec::new(), ordered);
    }
    let bounds = [&best.low, &best.high].into_iter().flatten().filter_map(|l| l.used);
    let used = best.prefix.iter().filter(|p| p.2).map(|p| p.1).chain(bounds).collect();
    let prefix = best.prefix.into_iter().map(|p| p.0).collect();
    let (low, high) = (best.low.map(Limit::bound), best.high.map(Limit::bound));
    (Path::Range { index: best.index, prefix, low, high, reverse }, used, ordered)
}

/// Matches `pk IN (constants)`.
fn points(table: &TableDef, column: usize, e: &Expr) -> Option<Vec<Expr>> {
    let Expr::InList(needle, items) = e else { return None };
    let (found, converted) = column_side(table, needle)?;
    if found != column || !items.iter().all(Expr::is_constant) {
        return None;
    }
    match converted {
        None => Some(items.clone()),
        Some(SqlType::Float8) if table.columns[column].ty == SqlType::Int8 => None,
        Some(_) => {
            Some(items.iter().map(|e| Expr::Func(Func::ExactInt, vec![e.clone()])).collect())
        }
    }
}
