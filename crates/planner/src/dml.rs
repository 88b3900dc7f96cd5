//! INSERT, UPDATE, DELETE.

use crate::bind::{Aggregates, Binder, Typed};
use crate::error::{foreign, place};
use crate::from::lookup;
use crate::ops::shown;
use crate::position::is_undecided;
use crate::query::{self, Output, Planned};
use crate::scope::{self, Scope, column, fold, parts};
use crate::select::{condition, decide_items, items, target};
use crate::tree::walk;
use clearway_ir::expr::Func;
use clearway_ir::statement::{Finish, Insert, OutColumn, Query, Source};
use clearway_ir::{
    Catalog, Column, Distribution, Expr, OnConflict, Path, Program, RowLock, RowLocking, Statement,
    TableDef, UniqueKey,
};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, SetExpr, TableFactor};
use std::sync::Arc;

type Bound = (Statement, Vec<OutColumn>);

/// Binds INSERT.
pub(crate) fn insert(b: &mut Binder<'_>, catalog: &Catalog, i: &ast::Insert) -> SqlResult<Bound> {
    foreign(&[
        (!i.into, "INSERT without INTO"),
        (i.has_table_keyword, "TABLE in INSERT"),
        (i.output.is_some(), "OUTPUT"),
    ])?;
    let ast::TableObject::TableName(name) = &i.table else {
        return Err(SqlError::unsupported("this target of INSERT"));
    };
    let table = lookup(b, catalog, name)?;
    if i.overwrite || i.ignore || i.replace_into || i.or.is_some() || i.partitioned.is_some() {
        return Err(SqlError::unsupported("this form of INSERT"));
    }
    let on_conflict = conflicts(b, &table, i)?;
    let columns = insert_columns(b, &table, &i.columns)?;
    let named = !i.columns.is_empty();
    let source = match i.source.as_deref() {
        None => {
            let row = defaults(b, &table, Evaluated::Once)?;
            Query { once: None, source: Source::Rows(vec![row]), finish: Vec::new() }
        }
        Some(q) => match &*q.body {
            SetExpr::Values(v)
                if q.order_by.is_none() && q.limit_clause.is_none() && q.with.is_none() =>
            {
                Query {
                    once: None,
                    source: Source::Rows(value_rows(b, &table, &columns, named, v)?),
                    finish: Vec::new(),
                }
            }
            _ => {
                let targets: Vec<SqlType> = columns.iter().map(|c| table.columns[*c].ty).collect();
                let planned = query::plan(b, catalog, q, &targets)?;
                from_query(b, &table, &columns, named, planned)?
            }
        },
    };
    let alias = i.table_alias.as_ref().map(|a| scope::alias(&a.alias)).transpose()?;
    b.scope = Scope::of_table(&table, alias);
    b.aggregates.clear();
    let (returning, out) = returning(b, i.returning.as_deref())?;
    let program = Arc::new(Program::Insert { table: table.clone(), returning, on_conflict });
    Ok((Statement::Insert(Insert { table, source, program }), out))
}

/// Binds ON CONFLICT.
fn conflicts(b: &Binder<'_>, table: &TableDef, i: &ast::Insert) -> SqlResult<OnConflict> {
    let on = match &i.on {
        None => return Ok(OnConflict::Fail),
        Some(ast::OnInsert::OnConflict(on)) => on,
        Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
    };
    if !matches!(on.action, ast::OnConflictAction::DoNothing) {
        return Err(SqlError::unsupported("ON CONFLICT DO UPDATE"));
    }
    let primary = (!table.primary_key.is_empty()).then_some(UniqueKey::Primary);
    let unique = table.indexes.iter().enumerate().filter(|(_, index)| index.unique);
    let keys: Vec<UniqueKey> =
        primary.into_iter().chain(unique.map(|(at, _)| UniqueKey::Index(at))).collect();
    match &on.conflict_target {
        None => Ok(OnConflict::Ignore),
        Some(ast::ConflictTarget::Columns(names)) => {
            let sorted = |columns: &[usize]| {
                let mut c = columns.to_vec();
                c.sort_unstable();
                c.dedup();
                c
            };
            let wanted: SqlResult<Vec<usize>> =
                names.iter().map(|n| inferred(table, &fold(n))).collect();
            let wanted = wanted.map_err(|e| {
                match names.first().and_then(|n| b.parenthesis_before(n.span.start)) {
                    Some(at) => place(e, b.sql, at),
                    None => e,
                }
            })?;
            let wanted = sorted(&wanted);
            let meant: Vec<UniqueKey> = keys
                .iter()
                .copied()
                .filter(|key| sorted(table.unique_key(*key).1) == wanted)
                .collect();
            match meant[..] {
                [] => Err(SqlError::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                )),
                [key] => Ok(OnConflict::IgnoreKey(key)),
                _ if meant.len() == keys.len() => Ok(OnConflict::Ignore),
                _ => Err(SqlError::unsupported("ON CONFLICT on several of the unique keys")),
            }
        }
        Some(ast::ConflictTarget::OnConstraint(name)) => {
            let name = parts(name)?.last().map(|i| fold(i)).unwrap_or_default();
            let is_constraint = |key: UniqueKey| match key {
                UniqueKey::Primary => true,
                UniqueKey::Index(at) => table.indexes[at].constraint != Some(false),
            };
            let mut keys = keys.into_iter();
            let key = keys.find(|key| is_constraint(*key) && table.unique_key(*key).0 == name);
            key.map(OnConflict::IgnoreKey).ok_or_else(|| {
                if table.checks.iter().any(|check| check.name == name) {
                    let text = "constraint in ON CONFLICT clause has no associated index";
                    return SqlError::new(SqlState::WRONG_OBJECT_TYPE, text);
                }
                let text =
                    format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_OBJECT, text)
            })
        }
    }
}

/// Resolves a column named by ON CONFLICT; errors as in PostgreSQL.
fn inferred(table: &TableDef, name: &str) -> SqlResult<usize> {
    let missing =
        || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
    table.column(name).ok_or_else(missing)
}

fn insert_columns(
    b: &Binder<'_>,
    table: &TableDef,
    names: &[ast::ObjectName],
) -> SqlResult<Vec<usize>> {
    use ast::Spanned;
    if names.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut columns = Vec::new();
    for name in names {
        let at = name.span().start;
        columns.push(assigned_column(table, name).map_err(|e| place(e, b.sql, at))?);
        unique_columns(table, &columns).map_err(|e| place(e, b.sql, at))?;
    }
    Ok(columns)
}

/// Resolves a column that INSERT or UPDATE assigns to. PostgreSQL reads `a.b` as the field `b` of
/// the column `a`, never as a column of a table; 42804, since no column has fields.
fn assigned_column(table: &TableDef, name: &ast::ObjectName) -> SqlResult<usize> {
    let names: Vec<String> = parts(name)?.into_iter().map(fold).collect();
    let c = column(table, names.first().map_or("", String::as_str))?;
    let Some(field) = names.get(1) else { return Ok(c) };
    let Column { name, ty, .. } = &table.columns[c];
    let text = format!(
        "cannot assign to field \"{field}\" of column \"{name}\" because its type {} is not a composite type",
        shown(*ty)
    );
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text))
}

/// Returns 42701 if a column is named twice.
pub(crate) fn unique_columns(table: &TableDef, columns: &[usize]) -> SqlResult<()> {
    for (n, c) in columns.iter().enumerate() {
        if columns[..n].contains(c) {
            let text = format!("column \"{}\" specified more than once", table.columns[*c].name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text));
        }
    }
    Ok(())
}

/// How often a statement evaluates a bound expression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// Once, or for a stored row that is its input.
    Once,
    /// For each of several rows, which may be equal.
    PerRow,
}

/// Returns a row of defaults.
pub(crate) fn defaults(
    b: &mut Binder<'_>,
    table: &TableDef,
    evaluated: Evaluated,
) -> SqlResult<Vec<Expr>> {
    table.columns.iter().map(|column| default(b, column, evaluated)).collect()
}

/// Returns a column's default. Its calls of random() are distinguished from all others of the
/// statement: the catalog has their numbers in CREATE TABLE.
fn default(b: &mut Binder<'_>, column: &Column, evaluated: Evaluated) -> SqlResult<Expr> {
    let Some(default) = &column.default else { return Ok(Expr::Literal(Datum::Null)) };
    default.rewrite(&mut |e| {
        Ok(match e {
            Expr::Func(Func::Random, _) => {
                b.randoms += 1;
                let mut args = vec![Expr::Literal(Datum::Int4(b.randoms))];
                if evaluated == Evaluated::PerRow {
                    args.push(Expr::Literal(Datum::Bool(true)));
                }
                Some(Expr::Func(Func::Random, args))
            }
            _ => None,
        })
    })
}

fn wrong_count(more_expressions: bool) -> SqlError {
    let text = if more_expressions {
        "INSERT has more expressions than target columns"
    } else {
        "INSERT has more target columns than expressions"
    };
    SqlError::new(SqlState::SYNTAX, text)
}

fn value_rows(
    b: &mut Binder<'_>,
    table: &TableDef,
    columns: &[usize],
    named: bool,
    v: &ast::Values,
) -> SqlResult<Vec<Vec<Expr>>> {
    query::refuse_foreign(v)?;
    b.mode = Aggregates::Refused("VALUES");
    let width = v.rows.first().map_or(0, |r| r.content.len());
    let mut rows = Vec::with_capacity(v.rows.len());
    let mut bound = Vec::with_capacity(width);
    for row in &v.rows {
        if row.content.len() != width {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "VALUES lists must all be the same length",
            ));
        }
        if width > columns.len() || named && width < columns.len() {
            return Err(wrong_count(width > columns.len()));
        }
        let mut out = defaults(b, table, Evaluated::Once)?;
        // As in PostgreSQL, all values are bound before the first one gets its column's type.
        for e in &row.content {
            bound.push(if is_default(e) { None } else { Some(b.bind(e)?) });
        }
        for ((e, t), &c) in row.content.iter().zip(bound.drain(..)).zip(columns) {
            if let Some(t) = t {
                out[c] = assigned(b, e, t, &table.columns[c])?;
            }
        }
        rows.push(out);
    }
    Ok(rows)
}

/// Returns true if the expression is the keyword DEFAULT.
fn is_default(e: &ast::Expr) -> bool {
    let ast::Expr::Identifier(name) = e else { return false };
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
}

/// Converts a bound expression that is assigned to a column.
fn assigned(b: &mut Binder<'_>, e: &ast::Expr, t: Typed, to: &Column) -> SqlResult<Expr> {
    let undecided = is_undecided(&t);
    let r = b.assign(t, to.ty, &to.name);
    if undecided { b.at_literal(e, r) } else { b.at(e, r) }
}

/// Maps a query's columns to the table's.
fn from_query(
    b: &mut Binder<'_>,
    table: &TableDef,
    columns: &[usize],
    named: bool,
    planned: Planned,
) -> SqlResult<Query> {
    let width = planned.columns.len();
    if width > columns.len() || named && width < columns.len() {
        return Err(wrong_count(width > columns.len()));
    }
    let mut row = defaults(b, table, Evaluated::PerRow)?;
    for (n, (out, &c)) in planned.columns.iter().zip(columns).enumerate() {
        let t = Typed::new(Expr::Column(n), out.ty);
        row[c] = b.assign(t, table.columns[c].ty, &table.columns[c].name)?;
    }
    let mut query = planned.query;
    fuse(&mut query, row)?;
    Ok(query)
}

/// Appends a projection, or merges it into the last one if that evaluates nothing twice.
fn fuse(query: &mut Query, row: Vec<Expr>) -> SqlResult<()> {
    if let Some(Finish::Project(inner)) = query.finish.last_mut() {
        let mut uses = vec![0usize; inner.len()];
        for e in &row {
            walk(e, &mut |e| {
                if let Expr::Column(n) = e {
                    uses[*n] += 1;
                }
            });
        }
        if uses.iter().all(|n| *n <= 1) {
            let fused: SqlResult<Vec<Expr>> = row
                .iter()
                .map(|e| {
                    e.rewrite(&mut |e| {
                        Ok(if let Expr::Column(n) = e { Some(inner[*n].clone()) } else { None })
                    })
                })
                .collect();
            *inner = fused?;
            return Ok(());
        }
    }
    query.finish.push(Finish::Project(row));
    Ok(())
}

fn returning(
    b: &mut Binder<'_>,
    list: Option<&[ast::SelectItem]>,
) -> SqlResult<(Vec<Expr>, Vec<OutColumn>)> {
    let Some(list) = list else { return Ok((Vec::new(), Vec::new())) };
    b.mode = Aggregates::Refused("RETURNING");
    let mut outputs = items(b, list)?;
    decide_items(b, list, &[], &mut outputs)?;
    let exprs = outputs.iter().map(|o| o.expr.clone()).collect();
    Ok((exprs, outputs.into_iter().map(Output::column).collect()))
}

/// Resolves the single table of UPDATE or DELETE, and puts it in scope.
fn target_table(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    t: &ast::TableWithJoins,
) -> SqlResult<Arc<TableDef>> {
    if !t.joins.is_empty() {
        return Err(SqlError::unsupported("a join"));
    }
    let TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample,
        index_hints,
    } = &t.relation
    else {
        return Err(SqlError::unsupported("this target of UPDATE or DELETE"));
    };
    let hints = !with_hints.is_empty() || !index_hints.is_empty();
    foreign(&[
        (sample.is_some(), "TABLESAMPLE in UPDATE and DELETE"),
        (hints, "hints after a table's name"),
        (!partitions.is_empty(), "PARTITION after a table's name"),
        (
            alias.as_ref().is_some_and(|a| !a.columns.is_empty()),
            "column aliases in UPDATE and DELETE",
        ),
    ])?;
    let table = lookup(b, catalog, name)?;
    b.scope = Scope::of_table(&table, alias.as_ref().map(|a| scope::alias(&a.name)).transpose()?);
    Ok(table)
}

fn where_clause(b: &mut Binder<'_>, e: Option<&ast::Expr>) -> SqlResult<Option<Expr>> {
    b.mode = Aggregates::Refused("WHERE");
    e.map(|e| condition(b, e, "WHERE")).transpose()
}

/// Binds SET. All values are bound before the first one gets its column's type.
fn assignments(
    b: &mut Binder<'_>,
    table: &TableDef,
    list: &[ast::Assignment],
) -> SqlResult<Vec<(usize, Expr)>> {
    use ast::Spanned;
    b.mode = Aggregates::Refused("UPDATE");
    let mut bound = Vec::with_capacity(list.len());
    for a in list {
        let ast::AssignmentTarget::ColumnName(name) = &a.target else {
            return Err(SqlError::unsupported("UPDATE SET (columns)"));
        };
        let value = if is_default(&a.value) { None } else { Some(b.bind(&a.value)?) };
        bound.push((name, &a.value, value));
    }
    let mut set: Vec<(usize, Expr)> = Vec::with_capacity(list.len());
    for (name, e, value) in bound {
        let c = assigned_column(table, name).map_err(|e| place(e, b.sql, name.span().start))?;
        if set.iter().any(|(have, _)| *have == c) {
            let text = format!("multiple assignments to same column \"{}\"", table.columns[c].name);
            return Err(SqlError::new(SqlState::SYNTAX, text));
        }
        let def = &table.columns[c];
        let value = match value {
            Some(t) => assigned(b, e, t, def)?,
            None => default(b, def, Evaluated::Once)?,
        };
        set.push((c, value));
    }
    Ok(set)
}

/// Binds UPDATE.
pub(crate) fn update(b: &mut Binder<'_>, catalog: &Catalog, u: &ast::Update) -> SqlResult<Bound> {
    foreign(&[(u.output.is_some(), "OUTPUT")])?;
    if u.from.is_some() {
        return Err(SqlError::unsupported("UPDATE ... FROM"));
    }
    if !u.order_by.is_empty() || u.limit.is_some() || u.or.is_some() {
        return Err(SqlError::unsupported("UPDATE with ORDER BY or LIMIT"));
    }
    let table = target_table(b, catalog, &u.table)?;
    // Each clause may decide a parameter's type for the later ones: the order is PostgreSQL's.
    let filter = where_clause(b, u.selection.as_ref())?;
    let (mut access, route) = target(&table, filter);
    let (returning, out) = returning(b, u.returning.as_deref())?;
    let set = assignments(b, &table, &u.assignments)?;
    let sets = |columns: &[usize]| set.iter().any(|(c, _)| columns.contains(c));
    let placed = matches!(&table.distribution, Distribution::Hash(columns) if sets(columns));
    let moves = placed || table.global_indexes().any(|g| sets(g.columns));
    // Index entries are locked one by one unless the table is locked. A change of all rows would
    // lock too many entries.
    let all_entries =
        access.path == Path::Full && table.indexes.iter().any(|index| sets(&index.columns));
    let keys_stay = !moves && !all_entries && !set.iter().any(|(c, _)| table.is_in_key(*c));
    access.lock =
        Some(RowLocking::of(if keys_stay { RowLock::NoKeyUpdate } else { RowLock::Update }));
    let program = Arc::new(Program::update(access, set, returning, moves));
    Ok((Statement::Modify { program, route }, out))
}

/// Binds DELETE.
pub(crate) fn delete(b: &mut Binder<'_>, catalog: &Catalog, d: &ast::Delete) -> SqlResult<Bound> {
    foreign(&[(d.output.is_some(), "OUTPUT")])?;
    if d.using.is_some() {
        return Err(SqlError::unsupported("DELETE ... USING"));
    }
    if !d.order_by.is_empty() || d.limit.is_some() || !d.tables.is_empty() {
        return Err(SqlError::unsupported("DELETE with ORDER BY or LIMIT"));
    }
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &d.from;
    let [from] = &from[..] else { return Err(SqlError::unsupported("DELETE from several tables")) };
    let table = target_table(b, catalog, from)?;
    let filter = where_clause(b, d.selection.as_ref())?;
    let (access, route) = target(&table, filter);
    let (mut returning, out) = returning(b, d.returning.as_deref())?;
    returning.extend(table.global_index_columns().map(Expr::Column));
    let program = Arc::new(Program::Delete { access, returning });
    Ok((Statement::Modify { program, route }, out))
}
