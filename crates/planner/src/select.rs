//! SELECT: binds its clauses and builds the steps of its result.

use crate::access::{choose, split};
use crate::bind::{AGGREGATE, Aggregates, Binder, Exports, Typed};
use crate::error::foreign;
use crate::from::{From, from, locked};
use crate::locking::{self, Lock};
use crate::query::{self, Output, Planned};
use crate::relation::RelationName;
use crate::scope::{self, Scope};
use crate::system;
use crate::tree::walk;
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::Group;
use clearway_ir::statement::{Finish, Query, Route, SortKey, Source};
use clearway_ir::{Access, Catalog, Expr, Path, Program, RowLocking, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast;
use sqlparser::tokenizer::Location;
use std::sync::Arc;

/// PostgreSQL's limit on output columns.
const MAX_ITEMS: usize = 1664;

/// The clauses after a query's body: ORDER BY, LIMIT, locks.
#[derive(Default)]
pub(crate) struct Tail<'q> {
    pub(crate) order: &'q [ast::OrderByExpr],
    pub(crate) limit: Option<Count<'q>>,
    pub(crate) offset: Option<&'q ast::Expr>,
    pub(crate) locks: Vec<Lock>,
}

/// The number of rows in LIMIT or FETCH FIRST.
#[derive(Clone, Copy)]
pub(crate) enum Count<'q> {
    Written(&'q ast::Expr),
    /// FETCH FIRST ROW ONLY.
    One,
}

/// LIMIT and OFFSET, bound.
pub(crate) struct Limits {
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
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
    if let Some(planned) = system::call(b, s, &tail)? {
        return Ok(planned);
    }
    let from = from(b, catalog, &s.from)?;
    for lock in &tail.locks {
        locked(b, lock, &from)?;
    }
    if matches!(from, From::Nothing) {
        b.exports = Exports::Allowed;
    }
    // Each clause may decide a parameter's type for the later ones: the order is PostgreSQL's.
    b.mode = Aggregates::Allowed;
    let mut items = items(b, &s.projection)?;
    let exports = std::mem::replace(&mut b.exports, Exports::Refused) == Exports::Called;
    let from = if exports { From::Export } else { from };
    b.mode = Aggregates::Refused("WHERE");
    let filter = s.selection.as_ref().map(|e| condition(b, e, "WHERE")).transpose()?;
    b.mode = Aggregates::Allowed;
    let having = s.having.as_ref().map(|e| condition(b, e, "HAVING")).transpose()?;
    let distinct = match &s.distinct {
        Some(ast::Distinct::Distinct) => true,
        Some(ast::Distinct::On(_)) => return Err(SqlError::unsupported("DISTINCT ON")),
        _ => false,
    };
    let order = query::order(b, tail.order, &items, distinct)?;
    let keys = group_keys(b, &s.group_by, &items)?;
    let limits = query::limits(b, &tail)?;
    decide_items(b, &s.projection, targets, &mut items)?;
    let grouped = !keys.is_empty() || !b.aggregates.is_empty() || having.is_some();
    if let Some(lock) = tail.locks.first() {
        let one_row = [
            (distinct, "with DISTINCT clause"),
            (!keys.is_empty(), "with GROUP BY clause"),
            (having.is_some(), "with HAVING clause"),
            (!b.aggregates.is_empty(), "with aggregate functions"),
        ];
        if let Some((_, what)) = one_row.iter().find(|(there, _)| *there) {
            let text = format!("{} is not allowed {what}", lock.name);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
        }
    }
    let (once, filter) = match &from {
        From::Nothing | From::Export => (None, filter),
        _ => once(filter),
    };
    let lock = locking::combined(&tail.locks);
    let mut shape = Shape { from, once, filter, items, order, having, distinct, limits, lock };
    if grouped && exports {
        return Err(SqlError::unsupported(
            "pg_export_snapshot() together with aggregates, GROUP BY or HAVING",
        ));
    }
    if grouped {
        let mut group = Group { keys, aggregates: b.aggregates.clone() };
        shape.add_dependent(&mut group);
        shape.place(b, &group)?;
        return shape.grouped(group);
    }
    Ok(shape.plain())
}

/// Extracts the conjuncts without columns from a filter: they hold for every row, or for none.
fn once(filter: Option<Expr>) -> (Option<Expr>, Option<Expr>) {
    let mut conjuncts = Vec::new();
    filter.into_iter().for_each(|e| split(e, &mut conjuncts));
    let (once, each): (Vec<Expr>, Vec<Expr>) = conjuncts.into_iter().partition(Expr::is_constant);
    (all(once), all(each))
}

fn all(conjuncts: Vec<Expr>) -> Option<Expr> {
    conjuncts.into_iter().reduce(|a, b| Expr::Binary(BinaryOp::And, Box::new(a), Box::new(b)))
}

/// Binds a clause's condition.
pub(crate) fn condition(b: &mut Binder<'_>, e: &ast::Expr, clause: &str) -> SqlResult<Expr> {
    let t = b.bind(e)?;
    let r = b.boolean(t, clause);
    b.at_literal(e, r)
}

fn refuse(s: &ast::Select) -> SqlResult<()> {
    foreign(&[
        (!s.cluster_by.is_empty(), "CLUSTER BY in a query"),
        (!s.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!s.sort_by.is_empty(), "SORT BY"),
    ])?;
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

/// Binds the select list, with stars expanded. Undecided items keep type Unknown.
pub(crate) fn items(b: &mut Binder<'_>, list: &[ast::SelectItem]) -> SqlResult<Vec<Output>> {
    // Rows without columns need a description that our protocol code does not send.
    if list.is_empty() {
        return Err(SqlError::unsupported("an empty select list"));
    }
    let mut out: Vec<Output> = Vec::new();
    for item in list {
        if out.len() > MAX_ITEMS {
            break;
        }
        match item {
            ast::SelectItem::Wildcard(options) => {
                foreign(&[(options.opt_alias.is_some(), "an alias of *")])?;
                if b.scope.columns.is_empty() {
                    return Err(SqlError::new(
                        SqlState::SYNTAX,
                        "SELECT * with no tables specified is not valid",
                    ));
                }
                star(b, options.wildcard_token.0.span.start, &mut out);
            }
            ast::SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                // An alias has no effect here, as in PostgreSQL.
                _,
            ) => {
                let at = ast::Spanned::span(name).start;
                qualified(b, name).map_err(|e| crate::error::place(e, b.sql, at))?;
                star(b, at, &mut out);
            }
            ast::SelectItem::UnnamedExpr(e) => {
                let name = query::column_name(e);
                out.push(item_of(b, e, name)?);
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                out.push(item_of(b, expr, scope::alias(alias)?)?);
            }
            _ => return Err(SqlError::unsupported("this item of the select list")),
        }
    }
    if out.len() > MAX_ITEMS {
        let text = format!("target lists can have at most {MAX_ITEMS} entries");
        return Err(SqlError::new(SqlState(*b"54011"), text));
    }
    Ok(out)
}

/// Returns 42P01 if a star's qualifier is not in FROM.
fn qualified(b: &Binder<'_>, name: &ast::ObjectName) -> SqlResult<()> {
    let name = RelationName::of(name)?;
    if let Some(schema) = &name.schema {
        b.scope.of_schema(schema, &name.name)?;
    }
    if name.name == b.scope.relation { Ok(()) } else { Err(b.scope.no_relation(&name.name)) }
}

fn item_of(b: &mut Binder<'_>, e: &ast::Expr, name: String) -> SqlResult<Output> {
    let t = b.bind(e)?;
    let origin = if let Expr::Column(n) = t.expr { b.scope.origin(n) } else { None };
    Ok(Output { expr: t.expr, name, ty: t.ty, origin })
}

/// Gives the undecided items their types: those of the targets, otherwise text.
pub(crate) fn decide_items(
    b: &mut Binder<'_>,
    list: &[ast::SelectItem],
    targets: &[SqlType],
    items: &mut [Output],
) -> SqlResult<()> {
    let mut n = 0;
    for item in list {
        let (ast::SelectItem::UnnamedExpr(e) | ast::SelectItem::ExprWithAlias { expr: e, .. }) =
            item
        else {
            n += b.scope.columns.len();
            continue;
        };
        if items[n].ty == SqlType::Unknown {
            let undecided = Typed::new(items[n].expr.clone(), SqlType::Unknown);
            let r = b.decide(undecided, targets.get(n).copied().unwrap_or(SqlType::Text));
            let t = b.at_literal(e, r)?;
            (items[n].expr, items[n].ty) = (t.expr, t.ty);
        }
        n += 1;
    }
    Ok(())
}

fn star(b: &mut Binder<'_>, at: Location, out: &mut Vec<Output>) {
    for n in 0..b.scope.columns.len() {
        b.saw(n, at);
        let (name, ty) = b.scope.columns[n].clone();
        out.push(Output { expr: Expr::Column(n), name, ty, origin: b.scope.origin(n) });
    }
}

fn group_keys(b: &mut Binder<'_>, by: &ast::GroupByExpr, items: &[Output]) -> SqlResult<Vec<Expr>> {
    let exprs = match by {
        ast::GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
        _ => return Err(SqlError::unsupported("GROUP BY ALL")),
    };
    let mut keys = Vec::new();
    for e in exprs {
        let ordinal = query::ordinal(e, items.len(), "GROUP BY");
        let key = match b.at(e, ordinal)? {
            Some(n) => items[n].expr.clone(),
            None => {
                let alias = query::alias_of(e).filter(|name| b.scope.find(None, name).is_err());
                let item = match alias {
                    Some(name) => b.at(e, query::named(items, &name, "GROUP BY"))?,
                    None => None,
                };
                match item {
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
        crate::tree::walk(&key, &mut |e| {
            aggregate |= matches!(e, Expr::Column(n) if *n >= AGGREGATE)
        });
        if aggregate {
            return Err(SqlError::new(
                SqlState::GROUPING,
                "aggregate functions are not allowed in GROUP BY",
            ));
        }
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// A SELECT with all clauses bound.
struct Shape {
    from: From,
    /// The part of WHERE without columns.
    once: Option<Expr>,
    filter: Option<Expr>,
    items: Vec<Output>,
    /// Sort keys over the same input as the items.
    order: Vec<SortKey>,
    having: Option<Expr>,
    distinct: bool,
    limits: Limits,
    lock: Option<RowLocking>,
}

impl Shape {
    /// When grouping by the whole primary key, adds the table's other used columns to the keys:
    /// each group is one row.
    fn add_dependent(&self, group: &mut Group) {
        let From::Table(table) = &self.from else { return };
        let by = |c: &usize| group.keys.contains(&Expr::Column(*c));
        if table.primary_key.is_empty() || !table.primary_key.iter().all(by) {
            return;
        }
        let items = self.items.iter().map(|i| &i.expr);
        for e in items.chain(self.order.iter().map(|k| &k.expr)).chain(&self.having) {
            walk(e, &mut |e| match e {
                Expr::Column(n) if *n < AGGREGATE && !group.keys.contains(e) => {
                    group.keys.push(e.clone())
                }
                _ => {}
            });
        }
    }

    /// Rewrites everything after the grouping to columns of the grouped row.
    fn place(&mut self, b: &Binder<'_>, group: &Group) -> SqlResult<()> {
        let place = |e: &Expr| -> SqlResult<Expr> {
            e.rewrite(&mut |e| {
                if let Some(at) = group.keys.iter().position(|k| k == e) {
                    return Ok(Some(Expr::Column(at)));
                }
                match e {
                    Expr::Column(n) if *n >= AGGREGATE => {
                        Ok(Some(Expr::Column(group.keys.len() + n - AGGREGATE)))
                    }
                    Expr::Column(n) => Err(b.where_seen(ungrouped(&b.scope, *n), *n)),
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
                let choice = choose(&table, self.filter, &[], false, None);
                let (partial, project, step) = if distinct {
                    let (project, group) = ungroup(group);
                    (
                        None,
                        project,
                        Finish::Aggregate { keys: group.keys, aggregates: group.aggregates },
                    )
                } else {
                    (Some(group.clone()), Vec::new(), Finish::Merge(group))
                };
                finish.push(step);
                let program =
                    Program::Scan { access: choice.access, group: partial, project, limit: None };
                Source::Table { program: Arc::new(program), route: choice.route }
            }
            other => {
                finish.extend(self.filter.map(Finish::Filter));
                finish.push(Finish::Aggregate { keys: group.keys, aggregates: group.aggregates });
                rows(other)
            }
        };
        finish.extend(self.having.map(Finish::Filter));
        let (exprs, tail) = query::outputs(&self.items, self.order, self.distinct, self.limits);
        finish.push(Finish::Project(exprs));
        finish.extend(tail);
        Ok(query::planned(Query { once: self.once, source, finish }, self.items))
    }

    fn plain(self) -> Planned {
        let mut finish = Vec::new();
        let source = match self.from {
            From::Table(table) => {
                let limited = self.limits.limit.is_some() && !self.distinct;
                let read = self
                    .items
                    .iter()
                    .map(|item| &item.expr)
                    .chain(self.order.iter().map(|key| &key.expr));
                let lock =
                    self.lock.map(|lock| locking::taken(lock, &table, read.chain(&self.filter)));
                let choice = choose(&table, self.filter, &self.order, limited, lock);
                let one = !matches!(choice.route, Route::All);
                let early = choice.ordered && limited;
                let limit = if early { query::pushed_limit(&self.limits) } else { None };
                let sorted = choice.ordered && (one || self.order.is_empty()) && !self.distinct
                    || matches!(choice.access.path, Path::Point(_));
                let order = if sorted { Vec::new() } else { self.order };
                let point = matches!(choice.access.path, Path::Point(_));
                let distinct = self.distinct && !point;
                let (project, mut tail) = query::outputs(&self.items, order, distinct, self.limits);
                finish.append(&mut tail);
                let program = Program::Scan { access: choice.access, group: None, project, limit };
                Source::Table { program: Arc::new(program), route: choice.route }
            }
            other => {
                let filtered = self.filter.is_some();
                finish.extend(self.filter.map(Finish::Filter));
                let (exprs, tail) =
                    query::outputs(&self.items, self.order, self.distinct, self.limits);
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
        query::planned(Query { once: self.once, source, finish }, self.items)
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

/// For DISTINCT aggregates: the partition projects keys and arguments, and the grouping works on
/// these.
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

/// Returns a source that needs no partitions: a view, the series, or one row without columns.
fn rows(from: From) -> Source {
    match from {
        From::View(view) => Source::View(view),
        From::Export => Source::ExportSnapshot,
        From::Series { start, stop, step, ty } => Source::Series { start, stop, step, ty },
        _ => Source::Rows(vec![Vec::new()]),
    }
}

/// Returns the access and the route for UPDATE and DELETE.
pub(crate) fn target(table: &Arc<TableDef>, filter: Option<Expr>) -> (Access, Route) {
    let choice = choose(table, filter, &[], false, None);
    (choice.access, choice.route)
}

/// Returns `limit + offset` if both are small enough to add; otherwise no limit.
pub(crate) fn sum_of(limit: &Expr, offset: &Expr) -> Expr {
    const ROOM: i64 = 1 << 61;
    let small = |e: &Expr| {
        Expr::Binary(BinaryOp::Lt, Box::new(e.clone()), Box::new(Expr::Literal(Datum::Int8(ROOM))))
    };
    let both = Expr::Binary(BinaryOp::And, Box::new(small(limit)), Box::new(small(offset)));
    let sum = Expr::Binary(BinaryOp::Add, Box::new(limit.clone()), Box::new(offset.clone()));
    Expr::Case(vec![(both, sum)], None)
}
