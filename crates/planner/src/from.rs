//! FROM: one table, system view or generate_series, and whether locking clauses may lock it.

use crate::bind::Binder;
use crate::error::foreign;
use crate::locking::Lock;
use crate::relation::{RelationName, no_schema};
use crate::scope::{self, Scope, fold, parts};
use clearway_ir::search_path;
use clearway_ir::system::SystemView;
use clearway_ir::{Catalog, Expr, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableFactor};
use std::sync::Arc;

/// The item in FROM.
pub(crate) enum From {
    Nothing,
    /// No FROM, and the select list calls pg_export_snapshot().
    Export,
    Table(Arc<TableDef>),
    View(SystemView),
    Series {
        start: Expr,
        stop: Expr,
        step: Expr,
        ty: SqlType,
    },
}

/// Binds FROM and puts its columns in scope.
pub(crate) fn from(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    from: &[ast::TableWithJoins],
) -> SqlResult<From> {
    let [item] = from else {
        if from.is_empty() {
            return Ok(From::Nothing);
        }
        // Every name is looked up first, since an unknown relation is the more useful error.
        for item in from {
            check_relations(b, catalog, item)?;
        }
        return Err(SqlError::unsupported("a join"));
    };
    if !item.joins.is_empty() {
        check_relations(b, catalog, item)?;
        return Err(SqlError::unsupported("a join"));
    }
    if let TableFactor::Table { args, with_hints, sample, index_hints, .. } = &item.relation {
        foreign(&[
            (!with_hints.is_empty() || !index_hints.is_empty(), "hints after a table's name"),
            (args.is_some() && sample.is_some(), "TABLESAMPLE after a function"),
        ])?;
    }
    match &item.relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            sample: None,
            with_ordinality: false,
            ..
        } => {
            let renamed = alias.as_ref().map(|a| scope::alias(&a.name)).transpose()?;
            let from = match RelationName::of(name)?.view() {
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
                b.scope.rename(&column_names(a)?)?;
            }
            Ok(from)
        }
        TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } => {
            series(b, name, &args.args, alias.as_ref())
        }
        TableFactor::Function { lateral: false, name, args, alias, .. } => {
            series(b, name, args, alias.as_ref())
        }
        TableFactor::Derived { .. } => Err(SqlError::unsupported("a subquery in FROM")),
        TableFactor::Table { with_ordinality: true, .. } => {
            Err(SqlError::unsupported("WITH ORDINALITY"))
        }
        TableFactor::Table { sample: Some(_), .. } => Err(SqlError::unsupported("TABLESAMPLE")),
        TableFactor::UNNEST { .. } => Err(SqlError::unsupported("UNNEST in FROM")),
        TableFactor::NestedJoin { .. } => Err(SqlError::unsupported("a join")),
        _ => Err(SqlError::unsupported("this item of FROM")),
    }
}

fn check_relations(b: &Binder<'_>, catalog: &Catalog, item: &ast::TableWithJoins) -> SqlResult<()> {
    for factor in std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation)) {
        if let TableFactor::Table { name, args: None, .. } = factor
            && RelationName::of(name)?.view().is_none()
        {
            lookup(b, catalog, name)?;
        }
    }
    Ok(())
}

/// Returns the table with this name, or 42P01 at the name's position.
pub(crate) fn lookup(
    b: &Binder<'_>,
    catalog: &Catalog,
    name: &ast::ObjectName,
) -> SqlResult<Arc<TableDef>> {
    use ast::Spanned;
    let found = RelationName::of(name).and_then(|n| n.table(catalog, &b.path).cloned());
    found.map_err(|e| crate::error::place(e, b.sql, name.span().start))
}

/// Returns the new names of an alias's columns.
fn column_names(a: &ast::TableAlias) -> SqlResult<Vec<String>> {
    if a.columns.iter().any(|c| c.data_type.is_some()) {
        let text = "a column definition list is only allowed for functions returning \"record\"";
        return Err(SqlError::new(SqlState::SYNTAX, text));
    }
    Ok(a.columns.iter().map(|c| fold(&c.name)).collect())
}

fn series(
    b: &mut Binder<'_>,
    name: &ast::ObjectName,
    args: &[FunctionArg],
    alias: Option<&ast::TableAlias>,
) -> SqlResult<From> {
    use ast::Spanned;
    let names: Vec<String> = parts(name)?.into_iter().map(fold).collect();
    if let [schema, _] = names.as_slice()
        && search_path::schema(schema).is_none()
    {
        return Err(crate::error::place(no_schema(schema), b.sql, name.span().start));
    }
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
        return Err(SqlError::unsupported(
            "generate_series with arguments other than two or three integers",
        ));
    }
    let ty =
        if bound.iter().any(|t| t.ty == SqlType::Int8) { SqlType::Int8 } else { SqlType::Int4 };
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
    b.scope = Scope { columns: vec![(relation.clone(), ty)], relation, ..Scope::default() };
    if let Some(a) = alias {
        b.scope.rename(&column_names(a)?)?;
    }
    Ok(From::Series { start, stop, step, ty })
}

/// Checks that the items named by a locking clause can be locked.
pub(crate) fn locked(b: &Binder<'_>, lock: &Lock, from: &From) -> SqlResult<()> {
    use ast::Spanned;
    if let Some(of) = &lock.of {
        let name = RelationName::of(of)?;
        if name.schema.is_some() || name.name != b.scope.relation {
            let text =
                format!("relation \"{name}\" in {} clause not found in FROM clause", lock.name);
            let error = SqlError::new(SqlState::UNDEFINED_TABLE, text);
            return Err(crate::error::place(error, b.sql, of.span().start));
        }
    }
    match from {
        From::Table(_) => Ok(()),
        _ => Err(SqlError::unsupported(format!("{} without a table", lock.name))),
    }
}
