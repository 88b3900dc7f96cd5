//! Every kind of statement to its plan.

use crate::bind::{Aggregates, Binder};
use crate::parse::{Kind, ParsedStatement};
use crate::scope::table;
use crate::{backup, copy, ddl, dml, explain, query, system, types};
use clearway_plan::statement::OutColumn;
use clearway_plan::{Catalog, Plan, Statement};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast;
use std::sync::Arc;

/// Plans a statement.
pub(crate) fn plan(stmt: &ParsedStatement, catalog: &Catalog, param_types: &[SqlType]) -> SqlResult<Plan> {
    plan_kind(&stmt.sql, &stmt.kind, catalog, param_types)
}

fn plan_kind(sql: &str, kind: &Kind, catalog: &Catalog, param_types: &[SqlType]) -> SqlResult<Plan> {
    let mut b = Binder::new(sql, param_types);
    let (statement, columns) = bind(&mut b, sql, kind, catalog)?;
    let bound = !matches!(kind, Kind::Plain(_) | Kind::Execute { .. });
    Ok(Plan { params: b.final_params(), columns, statement, catalog: bound.then_some(catalog.version) })
}

fn bind(b: &mut Binder<'_>, sql: &str, kind: &Kind, catalog: &Catalog) -> SqlResult<(Statement, Vec<OutColumn>)> {
    let none = Vec::new;
    Ok(match kind {
        Kind::Sql(s) => return sql_statement(b, s, catalog),
        Kind::Plain(Statement::Show(name)) => (Statement::Show(name.clone()), show_columns(name)),
        Kind::Plain(Statement::Backup(b)) => (Statement::Backup(b.clone()), backup::columns()),
        Kind::Plain(s) => {
            if let Statement::DropTable { names, .. } = s {
                system::refuse_views(names)?;
            }
            (s.clone(), none())
        }
        Kind::CreateTable { create, distribution } => (ddl::create_table(b, create, distribution.as_ref())?, none()),
        Kind::AddPrimaryKey { table: name, name: constraint, columns } => {
            let def = table(catalog, name)?;
            if !def.primary_key.is_empty() {
                let text = format!("multiple primary keys for table \"{name}\" are not allowed");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, text));
            }
            let columns = ddl::key_columns(def, columns)?;
            (Statement::AddPrimaryKey { table: def.name.clone(), name: constraint.clone(), columns }, none())
        }
        Kind::CreateIndex { table: name, name: index, columns, unique, if_not_exists } => {
            let def = table(catalog, name)?;
            (ddl::create_index(def, index.as_deref(), columns, *unique, *if_not_exists)?, none())
        }
        Kind::Truncate(names) => {
            known(catalog, names)?;
            (Statement::Truncate { names: names.clone() }, none())
        }
        Kind::Maintain(kind, names) => {
            known(catalog, names)?;
            (Statement::Maintain { kind: *kind, names: names.clone() }, none())
        }
        Kind::Copy(c) => (Statement::Copy(copy::plan(b, catalog, c)?), none()),
        Kind::Explain(inner) => {
            let (statement, _) = bind(b, sql, inner, catalog)?;
            let plan = explain::lines(&statement)?;
            (Statement::Explain(plan), text_column("QUERY PLAN"))
        }
        Kind::Prepare { name, types: declared, statement } => {
            let declared: Vec<SqlType> =
                declared.iter().map(|t| types::resolve(t).map(types::base)).collect::<SqlResult<_>>()?;
            if !matches!(**statement, Kind::Sql(_)) {
                return Err(SqlError::unsupported("PREPARE of other than SELECT, INSERT, UPDATE, DELETE or VALUES"));
            }
            let plan = Arc::new(plan_kind(sql, statement, catalog, &declared)?);
            (Statement::Prepare { name: name.clone(), plan }, none())
        }
        Kind::Execute { name, args } => {
            b.mode = Aggregates::Refused("EXECUTE parameters");
            let mut bound = Vec::new();
            for e in args {
                bound.push(b.bind(e)?.expr);
            }
            (Statement::Execute { name: name.clone(), args: bound }, none())
        }
    })
}

fn known(catalog: &Catalog, names: &[String]) -> SqlResult<()> {
    names.iter().try_for_each(|n| table(catalog, n).map(|_| ()))
}

fn text_column(name: &str) -> Vec<OutColumn> {
    vec![OutColumn { name: name.to_owned(), ty: SqlType::Text }]
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

fn sql_statement(b: &mut Binder<'_>, s: &ast::Statement, catalog: &Catalog) -> SqlResult<(Statement, Vec<OutColumn>)> {
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
