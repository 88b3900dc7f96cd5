//! SELECT: binding its clauses, and the steps that make its result.

use crate::access::choose;
use crate::bind::{AGGREGATE, Aggregates, Binder};
use crate::query::{self, Output, Planned};
use crate::scope::{self, Scope, fold, parts, table, table_name};
use crate::system;
use crate::tree::rewrite;
use clearway_plan::expr::BinaryOp;
use clearway_plan::program::Group;
use clearway_plan::statement::{Finish, Query, Route, SortKey, Source};
use clearway_plan::system::SystemView;
use clearway_plan::{Access, Catalog, Expr, Path, Program, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableFactor};
use std::sync::Arc;

/// What FROM names.
pub(crate) enum From {
    Nothing,
    Table(Arc<TableDef>),
    View(SystemView),
    Series { start: Expr, stop: Expr, step: Expr, ty: SqlType },
}

/// ORDER BY, LIMIT, locks: what stands behind the body of a query.
#[derive(Default)]
pub(crate) struct Tail<'q> {
    pub(crate) order: &'q [ast::OrderByExpr],
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    pub(crate) for_update: bool,
}

/// Plans a SELECT.
pub(crate) fn plan(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    s: &ast::Select,
    tail: Tail<'_>,
    targets: &[SqlType],
) -> SqlResult<Planned> {
    refuse(s)?;
    if let Some(planned) = system::reset(s, &tail) {
        return Ok(planned);
    }
    let from = from(b, catalog, &s.from)?;
    if tail.for_update && !matches!(from, From::Table(_)) {
        return Err(SqlError::unsupported("FOR UPDATE without a table"));
    }
    b.mode = Aggregates::Refused("WHERE");
    let filter = s.selection.as_ref().map(|e| condition(b, e, "WHERE")).transpose()?;
    b.mode = Aggregates::Allowed;
    let items = items(b, &s.projection, targets)?;
    let keys = group_keys(b, &s.group_by, &items)?;
    let having = s.having.as_ref().map(|e| condition(b, e, "HAVING")).transpose()?;
    let distinct = match &s.distinct {
        Some(ast::Distinct::Distinct) => true,
        Some(ast::Distinct::On(_)) => return Err(SqlError::unsupported("DISTINCT ON")),
        _ => false,
    };
    let order = query::order(b, tail.order, &items, distinct)?;
    let grouped = !keys.is_empty() || !b.aggregates.is_empty() || having.is_some();
    let mut shape = Shape { from, filter, items, order, having, distinct, tail };
    if grouped {
        let group = Group { keys, aggregates: b.aggregates.clone() };
        shape.place(&b.scope, &group)?;
        return shape.grouped(group);
    }
    Ok(shape.plain())
}

/// A condition of a clause.
pub(crate) fn condition(b: &mut Binder<'_>, e: &ast::Expr, clause: &str) -> SqlResult<Expr> {
    let t = b.bind(e)?;
    let r = b.boolean(t, clause);
    b.at(e, r)
}

fn refuse(s: &ast::Select) -> SqlResult<()> {
    for (there, what) in [
        (s.into.is_some(), "SELECT INTO"),
        (s.qualify.is_some(), "QUALIFY"),
        (!s.named_window.is_empty(), "WINDOW"),
        (!s.lateral_views.is_empty(), "LATERAL VIEW"),
        (s.top.is_some(), "TOP"),
        (!s.connect_by.is_empty(), "CONNECT BY"),
    ] {
        if there {
            return Err(SqlError::unsupported(what));
        }
    }
    Ok(())
}

/// Binds FROM and puts its columns in scope.
fn from(b: &mut Binder<'_>, catalog: &Catalog, from: &[ast::TableWithJoins]) -> SqlResult<From> {
    let [item] = from else {
        if from.is_empty() {
            return Ok(From::Nothing);
        }
        // Every name is looked up first: an unknown relation is the better error.
        for item in from {
            check_relations(b, catalog, item)?;
        }
        return Err(SqlError::unsupported("a join"));
    };
    if !item.joins.is_empty() {
        check_relations(b, catalog, item)?;
        return Err(SqlError::unsupported("a join"));
    }
    match &item.relation {
        TableFactor::Table { name, alias, args: None, sample: None, with_ordinality: false, .. } => {
            let renamed = alias.as_ref().map(|a| scope::alias(&a.name)).transpose()?;
            let from = match SystemView::by_name(&table_name(name)?) {
                Some(view) => {
                    b.scope = Scope::of_view(view, renamed);
                    From::View(view)
                }
                None => {
                    let def = lookup(b, catalog, name)?;
                    b.scope = Scope::of_table(&def, renamed);
                    From::Table(def)
                }
            };
            if let Some(a) = alias {
                for (column, new) in b.scope.columns.iter_mut().zip(&a.columns) {
                    column.0 = fold(&new.name);
                }
            }
            Ok(from)
        }
        TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } => {
            series(b, name, &args.args, alias.as_ref())
        }
        TableFactor::Function { lateral: false, name, args, alias, .. } => series(b, name, args, alias.as_ref()),
        TableFactor::Derived { .. } => Err(SqlError::unsupported("a subquery in FROM")),
        _ => Err(SqlError::unsupported("this item of FROM")),
    }
}

fn check_relations(b: &Binder<'_>, catalog: &Catalog, item: &ast::TableWithJoins) -> SqlResult<()> {
    for factor in std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation)) {
        if let TableFactor::Table { name, args: None, .. } = factor
            && SystemView::by_name(&table_name(name)?).is_none()
        {
            lookup(b, catalog, name)?;
        }
    }
    Ok(())
}

/// The table called so, or 42P01 at its place.
pub(crate) fn lookup(b: &Binder<'_>, catalog: &Catalog, name: &ast::ObjectName) -> SqlResult<Arc<TableDef>> {
    use ast::Spanned;
    table(catalog, &table_name(name)?).cloned().map_err(|e| crate::error::place(e, b.sql, name.span().start))
}

fn series(
    b: &mut Binder<'_>,
    name: &ast::ObjectName,
    args: &[FunctionArg],
    alias: Option<&ast::TableAlias>,
) -> SqlResult<From> {
    let names: Vec<String> = parts(name)?.into_iter().map(fold).collect();
    if names.last().is_none_or(|n| n != "generate_series") {
        return Err(SqlError::unsupported(format!("function {} in FROM", names.join("."))));
    }
    let mut bound = Vec::new();
    for arg in args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else {
            return Err(SqlError::unsupported("this function argument"));
        };
        let t = b.bind(e)?;
        bound.push(b.decide(t, SqlType::Int4)?);
    }
    if !(2..=3).contains(&bound.len()) || bound.iter().any(|t| !t.ty.is_integer()) {
        return Err(SqlError::unsupported("generate_series of other than two or three integers"));
    }
    let ty = if bound.iter().any(|t| t.ty == SqlType::Int8) { SqlType::Int8 } else { SqlType::Int4 };
    let mut exprs = Vec::new();
    for t in bound {
        exprs.push(b.cast_to(t, ty)?.expr);
    }
    let one = if ty == SqlType::Int8 { Datum::Int8(1) } else { Datum::Int4(1) };
    let step = if exprs.len() == 3 { exprs.pop() } else { None }.unwrap_or(Expr::Literal(one));
    let (Some(stop), Some(start)) = (exprs.pop(), exprs.pop()) else {
        return Err(SqlError::internal("generate_series lost its arguments"));
    };
    let relation = alias.map_or(Ok("generate_series".to_owned()), |a| scope::alias(&a.name))?;
    let column = alias.and_then(|a| a.columns.first()).map_or(relation.clone(), |c| fold(&c.name));
    b.scope = Scope { relation, columns: vec![(column, ty)] };
    Ok(From::Series { start, stop, step, ty })
}

/// The select list, stars expanded.
pub(crate) fn items(b: &mut Binder<'_>, list: &[ast::SelectItem], targets: &[SqlType]) -> SqlResult<Vec<Output>> {
    let mut out: Vec<Output> = Vec::new();
    for item in list {
        match item {
            ast::SelectItem::Wildcard(_) => {
                if b.scope.columns.is_empty() {
                    return Err(SqlError::new(SqlState::SYNTAX, "SELECT * with no tables specified is not valid"));
                }
                star(b, &mut out);
            }
            ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let relation = table_name(name)?;
                if relation != b.scope.relation {
                    let text = format!("missing FROM-clause entry for table \"{relation}\"");
                    return Err(SqlError::new(SqlState::UNDEFINED_TABLE, text));
                }
                star(b, &mut out);
            }
            ast::SelectItem::UnnamedExpr(e) => {
                let name = query::column_name(e);
                out.push(item_of(b, e, name, targets.get(out.len()))?);
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                out.push(item_of(b, expr, scope::alias(alias)?, targets.get(out.len()))?);
            }
            _ => return Err(SqlError::unsupported("this item of the select list")),
        }
    }
    Ok(out)
}

fn item_of(b: &mut Binder<'_>, e: &ast::Expr, name: String, target: Option<&SqlType>) -> SqlResult<Output> {
    let t = b.bind(e)?;
    let t = b.decide(t, target.copied().unwrap_or(SqlType::Text))?;
    Ok(Output { expr: t.expr, name, ty: t.ty })
}

fn star(b: &Binder<'_>, out: &mut Vec<Output>) {
    for (n, (name, ty)) in b.scope.columns.iter().enumerate() {
        out.push(Output { expr: Expr::Column(n), name: name.clone(), ty: *ty });
    }
}

fn group_keys(b: &mut Binder<'_>, by: &ast::GroupByExpr, items: &[Output]) -> SqlResult<Vec<Expr>> {
    let exprs = match by {
        ast::GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
        _ => return Err(SqlError::unsupported("GROUP BY ALL")),
    };
    let mut keys = Vec::new();
    for e in exprs {
        let key = match query::ordinal(e, items.len(), "GROUP BY")? {
            Some(n) => items[n].expr.clone(),
            None => {
                let alias = query::alias_of(e).filter(|name| b.scope.find(None, name).is_err());
                match alias.and_then(|name| items.iter().find(|i| i.name == name)) {
                    Some(item) => item.expr.clone(),
                    None => {
                        b.mode = Aggregates::Refused("GROUP BY");
                        let t = b.bind(e);
                        b.mode = Aggregates::Allowed;
                        let t = t?;
                        b.decide(t, SqlType::Text)?.expr
                    }
                }
            }
        };
        let mut aggregate = false;
        crate::tree::walk(&key, &mut |e| aggregate |= matches!(e, Expr::Column(n) if *n >= AGGREGATE));
        if aggregate {
            return Err(SqlError::new(SqlState::GROUPING, "aggregate functions are not allowed in GROUP BY"));
        }
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// A SELECT with all clauses bound.
struct Shape<'q> {
    from: From,
    filter: Option<Expr>,
    items: Vec<Output>,
    /// Sort keys over the same input as the items.
    order: Vec<SortKey>,
    having: Option<Expr>,
    distinct: bool,
    tail: Tail<'q>,
}

impl Shape<'_> {
    /// Rewrites everything behind the grouping to columns of the grouped row.
    fn place(&mut self, scope: &Scope, group: &Group) -> SqlResult<()> {
        let place = |e: &Expr| -> SqlResult<Expr> {
            rewrite(e, &mut |e| {
                if let Some(at) = group.keys.iter().position(|k| k == e) {
                    return Ok(Some(Expr::Column(at)));
                }
                match e {
                    Expr::Column(n) if *n >= AGGREGATE => Ok(Some(Expr::Column(group.keys.len() + n - AGGREGATE))),
                    Expr::Column(n) => Err(ungrouped(scope, *n)),
                    _ => Ok(None),
                }
            })
        };
        for item in &mut self.items {
            item.expr = place(&item.expr)?;
        }
        for key in &mut self.order {
            key.expr = place(&key.expr)?;
        }
        self.having = self.having.as_ref().map(place).transpose()?;
        Ok(())
    }

    fn grouped(self, group: Group) -> SqlResult<Planned> {
        let mut finish = Vec::new();
        let source = match self.from {
            From::Table(table) => {
                let distinct = group.aggregates.iter().any(|a| a.distinct);
                let choice = choose(&table, self.filter, &[], false, self.tail.for_update);
                let (partial, project, step) = if distinct {
                    let (project, group) = ungroup(group);
                    (None, project, Finish::Aggregate { keys: group.keys, aggregates: group.aggregates })
                } else {
                    (Some(group.clone()), Vec::new(), Finish::Merge(group))
                };
                finish.push(step);
                let program = Program::Scan { access: choice.access, group: partial, project, limit: None };
                Source::Table { program: Arc::new(program), route: choice.route }
            }
            other => {
                finish.extend(self.filter.map(Finish::Filter));
                finish.push(Finish::Aggregate { keys: group.keys, aggregates: group.aggregates });
                rows(other)
            }
        };
        finish.extend(self.having.map(Finish::Filter));
        let (exprs, tail) = query::outputs(&self.items, self.order, self.distinct, self.tail.limit, self.tail.offset);
        finish.push(Finish::Project(exprs));
        finish.extend(tail);
        Ok(query::planned(Query { source, finish }, self.items))
    }

    fn plain(self) -> Planned {
        let mut finish = Vec::new();
        let source = match self.from {
            From::Table(table) => {
                let limited = self.tail.limit.is_some() && !self.distinct;
                let choice = choose(&table, self.filter, &self.order, limited, self.tail.for_update);
                let one = !matches!(choice.route, Route::All);
                let early = choice.ordered && limited;
                let limit = if early { query::pushed_limit(&self.tail.limit, &self.tail.offset) } else { None };
                let sorted = choice.ordered && (one || self.order.is_empty()) && !self.distinct
                    || matches!(choice.access.path, Path::Point(_));
                let order = if sorted { Vec::new() } else { self.order };
                let point = matches!(choice.access.path, Path::Point(_));
                let distinct = self.distinct && !point;
                let (project, mut tail) =
                    query::outputs(&self.items, order, distinct, self.tail.limit, self.tail.offset);
                finish.append(&mut tail);
                let program = Program::Scan { access: choice.access, group: None, project, limit };
                Source::Table { program: Arc::new(program), route: choice.route }
            }
            other => {
                let filtered = self.filter.is_some();
                finish.extend(self.filter.map(Finish::Filter));
                let (exprs, tail) =
                    query::outputs(&self.items, self.order, self.distinct, self.tail.limit, self.tail.offset);
                let source = match other {
                    From::Nothing if !filtered => Source::Rows(vec![exprs]),
                    other => {
                        finish.push(Finish::Project(exprs));
                        rows(other)
                    }
                };
                finish.extend(tail);
                source
            }
        };
        query::planned(Query { source, finish }, self.items)
    }
}

fn ungrouped(scope: &Scope, column: usize) -> SqlError {
    let name = scope.columns.get(column).map_or("?", |c| &c.0);
    SqlError::new(
        SqlState::GROUPING,
        format!(
            "column \"{}.{name}\" must appear in the GROUP BY clause or be used in an aggregate function",
            scope.relation
        ),
    )
}

/// For DISTINCT aggregates: the partition projects keys and arguments, the grouping works on these.
fn ungroup(group: Group) -> (Vec<Expr>, Group) {
    let mut project = group.keys.clone();
    let keys = (0..project.len()).map(Expr::Column).collect();
    let mut aggregates = group.aggregates;
    for a in &mut aggregates {
        if let Some(arg) = a.arg.take() {
            a.arg = Some(Expr::Column(project.len()));
            project.push(arg);
        }
    }
    (project, Group { keys, aggregates })
}

/// What is read without partitions: a view, the series, or one row without columns.
fn rows(from: From) -> Source {
    match from {
        From::View(view) => Source::View(view),
        From::Series { start, stop, step, ty } => Source::Series { start, stop, step, ty },
        _ => Source::Rows(vec![Vec::new()]),
    }
}

/// The access for UPDATE and DELETE, and its route.
pub(crate) fn target(table: &Arc<TableDef>, filter: Option<Expr>) -> (Access, Route) {
    let choice = choose(table, filter, &[], false, false);
    (choice.access, choice.route)
}

/// `limit + offset` where both are small enough to be added; else no limit.
pub(crate) fn sum_of(limit: &Expr, offset: &Expr) -> Expr {
    const ROOM: i64 = 1 << 61;
    let small = |e: &Expr| Expr::Binary(BinaryOp::Lt, Box::new(e.clone()), Box::new(Expr::Literal(Datum::Int8(ROOM))));
    let both = Expr::Binary(BinaryOp::And, Box::new(small(limit)), Box::new(small(offset)));
    let sum = Expr::Binary(BinaryOp::Add, Box::new(limit.clone()), Box::new(offset.clone()));
    Expr::Case(vec![(both, sum)], None)
}
