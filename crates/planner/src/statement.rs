//! Plans every kind of statement.

use crate::bind::{Aggregates, Binder, Typed};
use crate::parse::{Kind, ParsedStatement};
use crate::relation::RelationName;
use crate::scope::column;
use crate::{backup, checks, copy, ddl, dml, explain, query, types};
use clearway_ir::search_path::SearchPath;
use clearway_ir::statement::Maintain;
use clearway_ir::statement::{Argument, OutColumn};
use clearway_ir::{Catalog, Plan, Statement, TableDef};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast;
use std::sync::Arc;

/// Plans a statement.
pub(crate) fn plan(
    stmt: &ParsedStatement,
    catalog: &Catalog,
    param_types: &[SqlType],
    path: &SearchPath,
) -> SqlResult<Plan> {
    plan_kind(Binder::new(&stmt.sql, param_types, path.clone()), &stmt.kind, catalog)
}

/// Plans a statement in which parameters stand for literals of these types. An error where the
/// literals themselves may be necessary: one that is used as two types, for example.
pub(crate) fn plan_with_literals(
    stmt: &ParsedStatement,
    catalog: &Catalog,
    literals: &[SqlType],
    path: &SearchPath,
) -> SqlResult<Plan> {
    let mut b = Binder::new(&stmt.sql, literals, path.clone());
    b.literals = literals.to_vec();
    plan_kind(b, &stmt.kind, catalog)
}

/// Plans the statement inside a PREPARE or DECLARE.
pub(crate) fn plan_inner(
    stmt: &ParsedStatement,
    catalog: &Catalog,
    param_types: &[SqlType],
    path: &SearchPath,
) -> SqlResult<Plan> {
    let inner = match &stmt.kind {
        Kind::Prepare { statement, .. } => statement,
        Kind::Declare { query, .. } => query,
        outer => outer,
    };
    plan_kind(Binder::new(&stmt.sql, param_types, path.clone()), inner, catalog)
}

fn plan_kind(mut b: Binder<'_>, kind: &Kind, catalog: &Catalog) -> SqlResult<Plan> {
    let (statement, columns) = bind(&mut b, kind, catalog)?;
    if columns.iter().any(|column| column.ty == types::BPCHAR) {
        return Err(types::no_bpchar());
    }
    let bound = !matches!(kind, Kind::Plain(_) | Kind::Execute { .. });
    Ok(Plan {
        params: b.final_params()?,
        columns,
        statement,
        catalog: bound.then_some(catalog.version),
    })
}

fn bind(
    b: &mut Binder<'_>,
    kind: &Kind,
    catalog: &Catalog,
) -> SqlResult<(Statement, Vec<OutColumn>)> {
    let none = Vec::new;
    Ok(match kind {
        Kind::Sql(s) => return sql_statement(b, s, catalog),
        Kind::Plain(Statement::Show(name)) => (Statement::Show(name.clone()), show_columns(name)),
        Kind::Plain(Statement::Backup(b)) => (Statement::Backup(b.clone()), backup::columns()),
        Kind::Plain(s) => (s.clone(), none()),
        Kind::Drop { table, names, if_exists, concurrently } => {
            (ddl::drop(b, *table, names, *if_exists, *concurrently)?, none())
        }
        Kind::CreateTable { create, distribution } => {
            (ddl::create_table(b, catalog, create, distribution.as_ref())?, none())
        }
        Kind::AddPrimaryKey { table: name, if_exists, name: constraint, columns } => {
            let def = match altered(b, catalog, name, *if_exists)? {
                Ok(def) => def,
                Err(skip) => return Ok((skip, none())),
            };
            let columns =
                columns.iter().map(|name| column(def, name)).collect::<SqlResult<Vec<_>>>()?;
            if !def.primary_key.is_empty() {
                let text = format!("multiple primary keys for table \"{name}\" are not allowed");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, text));
            }
            ddl::once_each(def, &columns, "primary key")?;
            let name = ddl::added_key_name(catalog, def, constraint.clone())?;
            (Statement::AddPrimaryKey { table: def.name.clone(), name, columns }, none())
        }
        Kind::AddCheck { table: name, if_exists, name: constraint, condition } => {
            let def = match altered(b, catalog, name, *if_exists)? {
                Ok(def) => def.clone(),
                Err(skip) => return Ok((skip, none())),
            };
            let check = checks::added(b, catalog, &def, constraint.clone(), condition)?;
            (Statement::AddCheck { table: def, check }, none())
        }
        Kind::CreateIndex {
            table: name,
            name: index,
            columns,
            unique,
            if_not_exists,
            concurrently,
        } => {
            let def = name.target(catalog, &b.path)?;
            let (table, if_not_exists, concurrently) =
                (def.name.clone(), *if_not_exists, *concurrently);
            let (name, columns) = ddl::create_index(catalog, def, index.as_deref(), columns)?;
            let index = Statement::CreateIndex {
                table,
                name,
                columns,
                unique: *unique,
                if_not_exists,
                concurrently,
            };
            (index, none())
        }
        Kind::Truncate(names) => {
            let table = |name: &RelationName| Ok(name.target(catalog, &b.path)?.name.clone());
            (
                Statement::Truncate { names: names.iter().map(table).collect::<SqlResult<_>>()? },
                none(),
            )
        }
        Kind::Maintain(kind, names) => {
            let mut skipped = Vec::new();
            for (name, columns) in names {
                if name.is_index(catalog, &b.path) {
                    let verb = if *kind == Maintain::Vacuum { "vacuum" } else { "analyze" };
                    skipped.push(format!(
                        "skipping \"{}\" --- cannot {verb} non-tables or special system tables",
                        name.name
                    ));
                    continue;
                }
                let def = name.target(catalog, &b.path)?;
                let columns =
                    columns.iter().map(|name| column(def, name)).collect::<SqlResult<Vec<_>>>()?;
                ddl::analyzed_once(def, &columns)?;
            }
            (Statement::Maintain { kind: *kind, skipped }, none())
        }
        Kind::Copy(c) => (Statement::Copy(copy::plan(b, catalog, c)?), none()),
        Kind::Explain(inner) => {
            let (statement, _) = bind(b, inner, catalog)?;
            let plan = explain::lines(&statement)?;
            (Statement::Explain(plan), text_column("QUERY PLAN"))
        }
        Kind::Prepare { name, types: declared, statement } => {
            let declared: Vec<SqlType> = declared
                .iter()
                .map(|t| types::resolve(t).map(types::base))
                .collect::<SqlResult<_>>()?;
            if !matches!(**statement, Kind::Sql(_)) {
                return Err(SqlError::unsupported(
                    "PREPARE of a statement other than SELECT, INSERT, UPDATE, DELETE or VALUES",
                ));
            }
            let inner = Binder::new(b.sql, &declared, b.path.clone());
            let plan = Arc::new(plan_kind(inner, statement, catalog)?);
            (Statement::Prepare { name: name.clone(), plan }, none())
        }
        Kind::Declare { name, options, query } => {
            let (statement, columns) = bind(b, query, catalog)?;
            let plan = Plan {
                params: b.final_params()?,
                columns,
                statement,
                catalog: Some(catalog.version),
            };
            let (name, plan) = (name.clone(), Arc::new(plan));
            (
                Statement::Declare {
                    name,
                    plan,
                    binary: options.binary,
                    no_scroll: options.no_scroll,
                },
                none(),
            )
        }
        Kind::Execute { name, args } => {
            b.mode = Aggregates::Refused("EXECUTE parameters");
            let mut bound = Vec::new();
            for e in args {
                let Typed { expr, ty } = b.bind(e)?;
                bound.push(Argument { expr, ty, position: b.position(e) });
            }
            (Statement::Execute { name: name.clone(), args: bound }, none())
        }
    })
}

/// Returns the table of an ALTER TABLE, or what it does instead if the table may be missing and is.
fn altered<'c>(
    b: &Binder<'_>,
    catalog: &'c Catalog,
    name: &RelationName,
    if_exists: bool,
) -> SqlResult<Result<&'c Arc<TableDef>, Statement>> {
    match name.target(catalog, &b.path) {
        Err(e) if if_exists && e.state() != SqlState::WRONG_OBJECT_TYPE => {
            let notice = format!("relation \"{}\" does not exist, skipping", name.name);
            Ok(Err(Statement::Skip { tag: "ALTER TABLE", notice }))
        }
        found => found.map(Ok),
    }
}

fn text_column(name: &str) -> Vec<OutColumn> {
    vec![OutColumn::computed(name, SqlType::Text)]
}

fn show_columns(name: &str) -> Vec<OutColumn> {
    if name == "all" {
        return ["name", "setting", "description"].into_iter().flat_map(text_column).collect();
    }
    let shown = match name {
        "timezone" => "TimeZone",
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        other => other,
    };
    text_column(shown)
}

fn sql_statement(
    b: &mut Binder<'_>,
    s: &ast::Statement,
    catalog: &Catalog,
) -> SqlResult<(Statement, Vec<OutColumn>)> {
    match s {
        ast::Statement::Query(q) => {
            let planned = query::plan(b, catalog, q, &[])?;
            Ok((Statement::Query(planned.query), planned.columns))
        }
        ast::Statement::Insert(i) => dml::insert(b, catalog, i),
        ast::Statement::Update(u) => dml::update(b, catalog, u),
        ast::Statement::Delete(d) => dml::delete(b, catalog, d),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(SqlError::unsupported(words.join(" ")))
        }
    }
}
