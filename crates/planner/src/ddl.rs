//! CREATE TABLE and CREATE INDEX.

use crate::bind::{Aggregates, Binder};
use crate::error::place;
use crate::parse::Distributed;
use crate::position::is_undecided;
use crate::relation::RelationName;
use crate::scope::{column, fold};
use crate::types;
use clearway_ir::catalog::IndexDef;
use clearway_ir::statement::unnumbered_table;
use clearway_ir::{Catalog, Column, Distribution, Expr, Statement, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, ColumnOption, Spanned, TableConstraint};

/// PostgreSQL's limit on columns.
const MAX_COLUMNS: usize = 1600;

/// A key as declared: name, columns.
type Key = (Option<String>, Vec<String>);

/// Binds CREATE TABLE.
pub(crate) fn create_table(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    c: &ast::CreateTable,
    distribution: Option<&Distributed>,
) -> SqlResult<Statement> {
    let name = RelationName::of(&c.name).and_then(|name| name.created(&b.path));
    let name = name.map_err(|e| match e.state() {
        SqlState::INSUFFICIENT_PRIVILEGE => e,
        _ => place(e, b.sql, c.name.span().start),
    })?;
    if c.like.is_some() || c.query.is_some() || c.inherits.is_some() || c.partition_by.is_some() {
        return Err(SqlError::unsupported("this form of CREATE TABLE"));
    }
    if c.columns.len() > MAX_COLUMNS {
        return Err(SqlError::new(
            SqlState(*b"54011"),
            format!("tables can have at most {MAX_COLUMNS} columns"),
        ));
    }
    let (mut primary, mut uniques): (Option<Key>, Vec<Key>) = (None, Vec::new());
    let mut columns: Vec<Column> = Vec::new();
    for def in &c.columns {
        let column = table_column(b, &name, def, &mut primary, &mut uniques)?;
        if columns.iter().any(|have| have.name == column.name) {
            let text = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text));
        }
        columns.push(column);
    }
    for constraint in &c.constraints {
        table_constraint(&name, constraint, &mut primary, &mut uniques)?;
    }
    let mut table = unnumbered_table(&name, columns, Vec::new(), Distribution::Random);
    if let Some((constraint, names)) = primary {
        table.primary_key = key_columns(&table, &names, "primary key")?;
        table.primary_key_name =
            constraint.unwrap_or_else(|| free_name(catalog, &table, format!("{name}_pkey")));
        for c in table.primary_key.clone() {
            table.columns[c].not_null = true;
        }
    }
    for (constraint, names) in uniques {
        let columns = key_columns(&table, &names, "unique")?;
        let default = format!("{name}_{}_key", names.join("_"));
        let name = constraint.unwrap_or_else(|| free_name(catalog, &table, default));
        table.indexes.push(IndexDef {
            name,
            tree: Default::default(),
            columns,
            unique: true,
            global_index: None,
        });
    }
    table.distribution = distribute(&table, distribution)?;
    Ok(Statement::CreateTable { table, if_not_exists: c.if_not_exists })
}

fn free_name(catalog: &Catalog, table: &TableDef, wanted: String) -> String {
    let taken = |name: &str| {
        name == table.name
            || table.indexes.iter().any(|i| i.name == name)
            || catalog.has_relation(name)
    };
    let numbered = (1..).map(|n| format!("{wanted}{n}"));
    std::iter::once(wanted.clone()).chain(numbered).find(|n| !taken(n)).unwrap_or(wanted)
}

fn table_column(
    b: &mut Binder<'_>,
    table: &str,
    def: &ast::ColumnDef,
    primary: &mut Option<Key>,
    uniques: &mut Vec<Key>,
) -> SqlResult<Column> {
    let name = fold(&def.name);
    let ty = types::resolve_column(&def.data_type).map_err(|e| b.type_error(e, def))?;
    let mut column = Column { name: name.clone(), ty, not_null: false, default: None };
    let (mut said, mut defaulted) = (None, false);
    for option in &def.options {
        let named = option.name.as_ref().map(fold);
        match &option.option {
            ColumnOption::Null | ColumnOption::NotNull => {
                let not_null = matches!(option.option, ColumnOption::NotNull);
                if said.is_some_and(|said| said != not_null) {
                    let text = format!(
                        "conflicting NULL/NOT NULL declarations for column \"{name}\" of table \"{table}\""
                    );
                    return Err(SqlError::new(SqlState::SYNTAX, text));
                }
                said = Some(not_null);
                column.not_null = not_null;
            }
            ColumnOption::Default(e) => {
                if defaulted {
                    let text = format!(
                        "multiple default values specified for column \"{name}\" of table \"{table}\""
                    );
                    return Err(SqlError::new(SqlState::SYNTAX, text));
                }
                defaulted = true;
                let value = default(b, e, &column)?;
                column.default = (value != Expr::Literal(Datum::Null)).then_some(value);
            }
            ColumnOption::PrimaryKey(_) => {
                set_primary(table, primary, (named, vec![name.clone()]))?
            }
            ColumnOption::Unique(_) => uniques.push((named, vec![name.clone()])),
            ColumnOption::ForeignKey(_) => {
                return Err(SqlError::unsupported("a FOREIGN KEY constraint"));
            }
            ColumnOption::Check(_) => return Err(SqlError::unsupported("a CHECK constraint")),
            ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                return Err(SqlError::unsupported("a generated column"));
            }
            ColumnOption::Collation(_) => return Err(SqlError::unsupported("COLLATE")),
            other => return Err(SqlError::unsupported(format!("column option {other}"))),
        }
    }
    Ok(column)
}

/// Binds a DEFAULT's value.
fn default(b: &mut Binder<'_>, e: &ast::Expr, column: &Column) -> SqlResult<Expr> {
    b.mode = Aggregates::Refused("DEFAULT expressions");
    let t = b.bind(e).map_err(|err| match (err.state(), err.position()) {
        (SqlState::UNDEFINED_COLUMN, Some(at)) => {
            let text = "cannot use column reference in DEFAULT expression";
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text).at(at)
        }
        _ => err,
    })?;
    let (undecided, ty) = (is_undecided(&t), t.ty);
    let value = b.assign(t, column.ty, &column.name);
    if undecided {
        return b.at_literal(e, value);
    }
    value.map_err(|err| match err.state() {
        SqlState::DATATYPE_MISMATCH => {
            let text = format!(
                "column \"{}\" is of type {} but default expression is of type {ty}",
                column.name, column.ty
            );
            SqlError::new(SqlState::DATATYPE_MISMATCH, text)
                .hint("You will need to rewrite or cast the expression.")
        }
        _ => err,
    })
}

fn set_primary(table: &str, primary: &mut Option<Key>, key: Key) -> SqlResult<()> {
    if primary.is_some() {
        let text = format!("multiple primary keys for table \"{table}\" are not allowed");
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, text));
    }
    *primary = Some(key);
    Ok(())
}

fn table_constraint(
    table: &str,
    constraint: &TableConstraint,
    primary: &mut Option<Key>,
    uniques: &mut Vec<Key>,
) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(k) => set_primary(
            table,
            primary,
            (k.name.as_ref().map(fold), constraint_columns(&k.columns)?),
        ),
        TableConstraint::Unique(k) => {
            uniques.push((k.name.as_ref().map(fold), constraint_columns(&k.columns)?));
            Ok(())
        }
        TableConstraint::ForeignKey(_) => Err(SqlError::unsupported("a FOREIGN KEY constraint")),
        TableConstraint::Check(_) => Err(SqlError::unsupported("a CHECK constraint")),
        _ => Err(SqlError::unsupported("this table constraint")),
    }
}

fn constraint_columns(columns: &[ast::IndexColumn]) -> SqlResult<Vec<String>> {
    columns
        .iter()
        .map(|c| match &c.column.expr {
            ast::Expr::Identifier(i) => Ok(fold(i)),
            _ => Err(SqlError::unsupported("a key on an expression")),
        })
        .collect()
}

/// Resolves a key's column names. Each must exist and occur once.
fn key_columns(table: &TableDef, names: &[String], what: &str) -> SqlResult<Vec<usize>> {
    let missing = |name: &str| {
        SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" named in key does not exist"),
        )
    };
    let columns = names
        .iter()
        .map(|n| table.column(n).ok_or_else(|| missing(n)))
        .collect::<SqlResult<Vec<_>>>()?;
    once_each(table, &columns, what)?;
    Ok(columns)
}

/// Returns a column that occurs twice.
fn repeated<'t>(table: &'t TableDef, columns: &[usize]) -> Option<&'t str> {
    let twice = (1..columns.len()).find(|n| columns[..*n].contains(&columns[*n]));
    twice.map(|n| table.columns[columns[n]].name.as_str())
}

/// Returns 42701 if a key has a column twice.
pub(crate) fn once_each(table: &TableDef, columns: &[usize], what: &str) -> SqlResult<()> {
    repeated(table, columns).map_or(Ok(()), |name| {
        let text = format!("column \"{name}\" appears twice in {what} constraint");
        Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text))
    })
}

/// Returns 42701 if ANALYZE names a column twice.
pub(crate) fn analyzed_once(table: &TableDef, columns: &[usize]) -> SqlResult<()> {
    repeated(table, columns).map_or(Ok(()), |name| {
        let text =
            format!("column \"{name}\" of relation \"{}\" appears more than once", table.name);
        Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text))
    })
}

/// Binds DROP TABLE and DROP INDEX.
pub(crate) fn drop(
    b: &Binder<'_>,
    table: bool,
    names: &[RelationName],
    if_exists: bool,
    concurrently: bool,
) -> SqlResult<Statement> {
    let what = if table { "table" } else { "index" };
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        match name.dropped(&b.path, what) {
            Ok(name) => found.push(name),
            Err(e) if if_exists && e.state() != SqlState::WRONG_OBJECT_TYPE => {
                skipped.push(format!("{}, skipping", e.message()));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(if table {
        Statement::DropTable { names: found, if_exists, skipped }
    } else {
        Statement::DropIndex { names: found, if_exists, concurrently, skipped }
    })
}

/// Chooses the distribution: DISTRIBUTED BY, otherwise the first column of the primary key or of
/// the first unique key, otherwise random.
fn distribute(table: &TableDef, asked: Option<&Distributed>) -> SqlResult<Distribution> {
    let first = table.primary_key.first().or(table.indexes.first().and_then(|i| i.columns.first()));
    Ok(match asked {
        Some(Distributed::By(names)) => {
            let mut columns = Vec::new();
            for name in names {
                columns.push(column(table, name)?);
            }
            crate::dml::unique_columns(table, &columns)?;
            Distribution::Hash(columns)
        }
        Some(Distributed::Randomly) => Distribution::Random,
        None => first.map_or(Distribution::Random, |c| Distribution::Hash(vec![*c])),
    })
}

/// Returns the name and the columns of a CREATE INDEX on an existing table.
pub(crate) fn create_index(
    catalog: &Catalog,
    table: &TableDef,
    name: Option<&str>,
    names: &[String],
) -> SqlResult<(String, Vec<usize>)> {
    let mut columns = Vec::new();
    for name in names {
        let missing = || {
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
        };
        columns.push(table.column(name).ok_or_else(missing)?);
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => free_name(catalog, table, format!("{}_{}_idx", table.name, names.join("_"))),
    };
    Ok((name, columns))
}
