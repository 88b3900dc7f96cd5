//! Queries: SELECT or VALUES with the clauses that follow them.

use crate::bind::{Aggregates, Binder};
use crate::error::foreign;
use crate::locking;
use crate::scope::fold;
use crate::select::{self, Count, Limits, Tail};
use crate::types;
use clearway_ir::statement::{Finish, Origin, OutColumn, Query, SortKey, Source};
use clearway_ir::{Catalog, Expr};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, SetExpr};

/// One output column, of the rows before ORDER BY.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) expr: Expr,
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    pub(crate) origin: Option<Origin>,
}

impl Output {
    /// Returns the column as the client sees it.
    pub(crate) fn column(self) -> OutColumn {
        OutColumn { name: self.name, ty: self.ty, origin: self.origin }
    }
}

/// A planned query.
pub(crate) struct Planned {
    pub(crate) query: Query,
    pub(crate) columns: Vec<OutColumn>,
}

pub(crate) fn planned(query: Query, items: Vec<Output>) -> Planned {
    let columns = items.into_iter().map(Output::column).collect();
    Planned { query, columns }
}

/// Plans a query. `targets`: the types of undecided output columns (for INSERT); text by default.
pub(crate) fn plan(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    q: &ast::Query,
    targets: &[SqlType],
) -> SqlResult<Planned> {
    if q.with.is_some() {
        return Err(SqlError::unsupported("WITH"));
    }
    if q.for_clause.is_some()
        || q.settings.is_some()
        || q.format_clause.is_some()
        || !q.pipe_operators.is_empty()
    {
        return Err(SqlError::unsupported("this clause of the query"));
    }
    let bare =
        q.order_by.is_none() && q.limit_clause.is_none() && q.fetch.is_none() && q.locks.is_empty();
    match &*q.body {
        SetExpr::Select(s) => {
            let tail = tail(q)?;
            select::plan(b, catalog, s, tail, targets)
        }
        SetExpr::Values(v) => {
            let tail = tail(q)?;
            values(b, v, tail, targets)
        }
        SetExpr::Query(inner) if bare => plan(b, catalog, inner, targets),
        SetExpr::Query(_) => Err(SqlError::unsupported("a subquery")),
        SetExpr::SetOperation { op, .. } => Err(SqlError::unsupported(op)),
        SetExpr::Table(_) => Err(SqlError::unsupported("TABLE")),
        _ => Err(SqlError::unsupported("a data-modifying query")),
    }
}

fn tail(q: &ast::Query) -> SqlResult<Tail<'_>> {
    let mut tail = Tail::default();
    if let Some(order) = &q.order_by {
        tail.order = match &order.kind {
            ast::OrderByKind::Expressions(list) if order.interpolate.is_none() => list,
            _ => return Err(SqlError::unsupported("ORDER BY ALL")),
        };
    }
    match &q.limit_clause {
        None => {}
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            tail.limit = limit.as_ref().map(Count::Written);
            tail.offset = offset.as_ref().map(|o| &o.value);
        }
        Some(_) => return Err(SqlError::unsupported("LIMIT #,#")),
    }
    if let Some(fetch) = &q.fetch {
        if tail.limit.is_some() {
            return Err(SqlError::new(SqlState::SYNTAX, "multiple LIMIT clauses not allowed"));
        }
        if fetch.with_ties || fetch.percent {
            return Err(SqlError::unsupported("FETCH WITH TIES"));
        }
        tail.limit = Some(fetch.quantity.as_ref().map_or(Count::One, Count::Written));
    }
    tail.locks = q.locks.iter().map(locking::clause).collect();
    Ok(tail)
}

/// Binds LIMIT and OFFSET in the query's scope; `None` where one has no effect.
pub(crate) fn limits(b: &mut Binder<'_>, tail: &Tail<'_>) -> SqlResult<Limits> {
    let offset = tail.offset.map(|e| count(b, e, "OFFSET")).transpose()?;
    let limit = match tail.limit {
        None => None,
        Some(Count::One) => Some(Expr::Literal(Datum::Int8(1))),
        Some(Count::Written(e)) => Some(count(b, e, "LIMIT")?),
    };
    Ok(Limits {
        limit: limit.filter(|e| *e != Expr::Literal(Datum::Null)),
        offset: offset
            .filter(|e| *e != Expr::Literal(Datum::Null) && *e != Expr::Literal(Datum::Int8(0))),
    })
}

/// Binds the count of LIMIT or OFFSET: a bigint without columns.
fn count(b: &mut Binder<'_>, e: &ast::Expr, clause: &'static str) -> SqlResult<Expr> {
    let mode = std::mem::replace(&mut b.mode, Aggregates::Refused(clause));
    let scope = std::mem::take(&mut b.scope);
    let alone = b.bind(e);
    b.scope = scope;
    // A name that cannot be bound without the scope is a column of the query, or does not exist.
    let bound = alone.or_else(|missing| {
        b.bind(e)?;
        let text = format!("argument of {clause} must not contain variables");
        let error = SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, text);
        Err(match missing.position() {
            Some(at) => error.at(at),
            None => error,
        })
    });
    b.mode = mode;
    let t = b.decide(bound?, SqlType::Int8);
    let t = b.at_literal(e, t)?;
    if !t.ty.is_integer() && t.ty != SqlType::Numeric && t.ty != SqlType::Float8 {
        let text = format!("argument of {clause} must be type bigint, not type {}", t.ty);
        return b.at(e, Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text)));
    }
    b.cast_to(t, SqlType::Int8).map(|t| t.expr)
}

/// Refuses the forms of VALUES that PostgreSQL does not have.
pub(crate) fn refuse_foreign(v: &ast::Values) -> SqlResult<()> {
    foreign(&[(v.value_keyword, "VALUE"), (v.explicit_row, "ROW in VALUES")])
}

fn values(
    b: &mut Binder<'_>,
    v: &ast::Values,
    tail: Tail<'_>,
    targets: &[SqlType],
) -> SqlResult<Planned> {
    refuse_foreign(v)?;
    if let Some(lock) = tail.locks.first() {
        let text = format!("{} cannot be applied to VALUES", lock.name);
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    }
    b.mode = Aggregates::Refused("VALUES");
    let width = v.rows.first().map_or(0, |r| r.content.len());
    let mut columns = vec![Vec::new(); width];
    for row in &v.rows {
        if row.content.len() != width {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "VALUES lists must all be the same length",
            ));
        }
        for (n, e) in row.content.iter().enumerate() {
            columns[n].push(b.bind(e)?);
        }
    }
    let (mut lists, mut items) = (Vec::new(), Vec::new());
    for (n, column) in columns.into_iter().enumerate() {
        let column = match targets.get(n) {
            Some(ty) if column.iter().all(|t| t.ty == SqlType::Unknown) => {
                column.into_iter().map(|t| b.decide(t, *ty)).collect::<SqlResult<_>>()?
            }
            _ => column,
        };
        let places = v.rows.iter().filter_map(|row| row.content.get(n));
        let (exprs, ty) = b.unify_at(column, places, "VALUES")?;
        lists.push(exprs.into_iter());
        items.push(Output {
            expr: Expr::Column(n),
            name: format!("column{}", n + 1),
            ty,
            origin: None,
        });
    }
    let rows =
        (0..v.rows.len()).map(|_| lists.iter_mut().filter_map(Iterator::next).collect()).collect();
    let order = order(b, tail.order, &items, false)?;
    let hidden = order.iter().any(|k| !matches!(k.expr, Expr::Column(_)));
    let (exprs, steps) = outputs(&items, order, false, limits(b, &tail)?);
    let mut finish = Vec::new();
    if hidden {
        finish.push(Finish::Project(exprs));
    }
    finish.extend(steps);
    Ok(planned(Query { once: None, source: Source::Rows(rows), finish }, items))
}

/// Binds ORDER BY: positions, output names, otherwise expressions of the input.
pub(crate) fn order(
    b: &mut Binder<'_>,
    list: &[ast::OrderByExpr],
    items: &[Output],
    distinct: bool,
) -> SqlResult<Vec<SortKey>> {
    let mut keys = Vec::new();
    for o in list {
        if o.with_fill.is_some() {
            return Err(SqlError::unsupported("WITH FILL"));
        }
        let named = match alias_of(&o.expr) {
            Some(name) => b.at(&o.expr, named(items, &name, "ORDER BY"))?,
            None => None,
        };
        let ordinal = ordinal(&o.expr, items.len(), "ORDER BY");
        let expr = match (b.at(&o.expr, ordinal)?, named) {
            (Some(n), _) => items[n].expr.clone(),
            (None, Some(item)) => item.expr.clone(),
            (None, None) => {
                b.mode = Aggregates::Allowed;
                let t = b.bind(&o.expr)?;
                b.decide(t, SqlType::Text)?.expr
            }
        };
        if distinct && !items.iter().any(|i| i.expr == expr) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        let descending = match &o.options.sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            Some(_) => return Err(SqlError::unsupported("ORDER BY USING")),
        };
        let nulls_first = o.options.nulls_first.unwrap_or(descending);
        if !keys.iter().any(|k: &SortKey| k.expr == expr) {
            keys.push(SortKey { expr, descending, nulls_first });
        }
    }
    Ok(keys)
}

/// Returns the item of the select list with this name; 42702 if several with different values have
/// it.
pub(crate) fn named<'i>(
    items: &'i [Output],
    name: &str,
    clause: &str,
) -> SqlResult<Option<&'i Output>> {
    let mut all = items.iter().filter(|item| item.name == name);
    let first = all.next();
    match first {
        Some(first) if all.any(|other| other.expr != first.expr) => {
            let text = format!("{clause} \"{name}\" is ambiguous");
            Err(SqlError::new(SqlState(*b"42702"), text))
        }
        _ => Ok(first),
    }
}

/// Returns a position in the select list, from 0, if the expression is a constant.
pub(crate) fn ordinal(e: &ast::Expr, items: usize, clause: &str) -> SqlResult<Option<usize>> {
    // Signs of a number are folded, and parentheses ignored.
    let (mut constant, mut signs) = (e, 0);
    let value = loop {
        match constant {
            ast::Expr::Nested(inner) => constant = inner,
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
                (constant, signs) = (expr, signs + 1);
            }
            ast::Expr::Value(v) => break &v.value,
            _ => return Ok(None),
        }
    };
    let integer = match value {
        ast::Value::Number(n, _) => n.parse::<i32>().ok(),
        ast::Value::Placeholder(_) => return Ok(None),
        _ if signs > 0 => return Ok(None),
        _ => None,
    };
    let Some(n) = integer.map(|n| if signs % 2 == 0 { n } else { -n }) else {
        return Err(SqlError::new(SqlState::SYNTAX, format!("non-integer constant in {clause}")));
    };
    match usize::try_from(n) {
        Ok(n) if (1..=items).contains(&n) => Ok(Some(n - 1)),
        _ => {
            let text = format!("{clause} position {n} is not in select list");
            Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, text))
        }
    }
}

/// Returns the name, if the expression is one. Parentheses are ignored.
pub(crate) fn alias_of(e: &ast::Expr) -> Option<String> {
    match e {
        ast::Expr::Identifier(i) => Some(fold(i)),
        ast::Expr::Nested(inner) => alias_of(inner),
        _ => None,
    }
}

/// Returns the projection and the steps after it. Sort keys that are not outputs are projected
/// after them and removed at the end.
pub(crate) fn outputs(
    items: &[Output],
    order: Vec<SortKey>,
    distinct: bool,
    Limits { limit, offset }: Limits,
) -> (Vec<Expr>, Vec<Finish>) {
    let mut project: Vec<Expr> = items.iter().map(|i| i.expr.clone()).collect();
    let mut finish = Vec::new();
    if distinct {
        finish.push(Finish::Distinct);
    }
    if !order.is_empty() {
        let mut keys = Vec::new();
        for mut key in order {
            let at = project.iter().position(|e| *e == key.expr).unwrap_or_else(|| {
                project.push(key.expr.clone());
                project.len() - 1
            });
            key.expr = Expr::Column(at);
            keys.push(key);
        }
        finish.push(Finish::Sort(keys));
    }
    if limit.is_some() || offset.is_some() {
        finish.push(Finish::Limit { limit, offset });
    }
    if project.len() > items.len() {
        finish.push(Finish::Project((0..items.len()).map(Expr::Column).collect()));
    }
    (project, finish)
}

/// Returns the limit at which each partition may stop.
pub(crate) fn pushed_limit(limits: &Limits) -> Option<Expr> {
    match (&limits.limit, &limits.offset) {
        (Some(l), None) => Some(l.clone()),
        (Some(l), Some(o)) => Some(select::sum_of(l, o)),
        _ => None,
    }
}

/// Returns the name of a result column without an alias.
pub(crate) fn column_name(e: &ast::Expr) -> String {
    name_of(e).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// Returns the name that an expression suggests, and whether it overrides that of an enclosing cast
/// or CASE.
///
/// Source: PostgreSQL's `FigureColnameInternal`.
fn name_of(e: &ast::Expr) -> Option<(String, bool)> {
    use ast::Expr as E;
    let strong = |name: &str| Some((name.to_owned(), true));
    let cast = |to: &ast::DataType| {
        Some((types::internal_name(types::resolve(to).ok()?).to_owned(), false))
    };
    match e {
        E::Identifier(i) => Some((fold(i), true)),
        E::CompoundIdentifier(names) => Some((fold(names.last()?), true)),
        E::Nested(inner) => name_of(inner),
        E::Function(f) => Some((crate::funcs::result_name(f), true)),
        E::Cast { expr, data_type, .. } => {
            name_of(expr).filter(|(_, strong)| *strong).or_else(|| cast(data_type))
        }
        E::TypedString(t) => cast(&t.data_type),
        E::Case { else_result, .. } => {
            let last = else_result.as_deref().and_then(name_of).filter(|(_, strong)| *strong);
            last.or_else(|| Some(("case".to_owned(), false)))
        }
        E::Substring { shorthand, .. } => strong(if *shorthand { "substr" } else { "substring" }),
        E::Position { .. } => strong("position"),
        E::Ceil { .. } => strong("ceil"),
        E::Floor { .. } => strong("floor"),
        E::Trim { trim_where, .. } => strong(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}
