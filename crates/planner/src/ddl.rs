//! CREATE TABLE and CREATE INDEX.

use crate::bind::{Aggregates, Binder};
use crate::parse::Distributed;
use crate::scope::{column, fold, table_name};
use crate::system::refuse_name;
use crate::types;
use clearway_plan::catalog::IndexDef;
use clearway_plan::statement::unnumbered_table;
use clearway_plan::{Column, Distribution, Expr, Statement, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, ColumnOption, TableConstraint};

/// PostgreSQL's limit of columns.
const MAX_COLUMNS: usize = 1600;

/// A key as declared: name, columns.
type Key = (Option<String>, Vec<String>);

/// CREATE TABLE.
pub(crate) fn create_table(
    b: &mut Binder<'_>,
    c: &ast::CreateTable,
    distribution: Option<&Distributed>,
) -> SqlResult<Statement> {
    let name = table_name(&c.name)?;
    refuse_name(&name)?;
    if c.like.is_some() || c.query.is_some() || c.inherits.is_some() || c.partition_by.is_some() {
        return Err(SqlError::unsupported("this form of CREATE TABLE"));
    }
    if c.columns.len() > MAX_COLUMNS {
        return Err(SqlError::new(SqlState(*b"54011"), format!("tables can have at most {MAX_COLUMNS} columns")));
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
        table.primary_key = key_columns(&table, &names)?;
        table.primary_key_name = constraint.unwrap_or_else(|| format!("{name}_pkey"));
        for c in table.primary_key.clone() {
            table.columns[c].not_null = true;
        }
    }
    for (constraint, names) in uniques {
        let columns = key_columns(&table, &names)?;
        let default = format!("{name}_{}_key", names.join("_"));
        let name = constraint.unwrap_or_else(|| free_name(&table, default));
        table.indexes.push(IndexDef { name, tree: Default::default(), columns, unique: true, guard: None });
    }
    table.distribution = distribute(&table, distribution)?;
    Ok(Statement::CreateTable { table, if_not_exists: c.if_not_exists })
}

fn free_name(table: &TableDef, wanted: String) -> String {
    let taken = |name: &str| table.indexes.iter().any(|i| i.name == name);
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
    let ty = types::resolve_column(&def.data_type).map_err(|e| crate::error::place(e, b.sql, def.name.span.start))?;
    let mut column = Column { name: name.clone(), ty, not_null: false, default: None };
    for option in &def.options {
        let named = option.name.as_ref().map(fold);
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(e) => {
                b.mode = Aggregates::Refused("DEFAULT expressions");
                let t = b.bind(e)?;
                let value = b.assign(t, ty, &name)?;
                column.default = (value != Expr::Literal(Datum::Null)).then_some(value);
            }
            ColumnOption::PrimaryKey(_) => set_primary(table, primary, (named, vec![name.clone()]))?,
            ColumnOption::Unique(_) => uniques.push((named, vec![name.clone()])),
            ColumnOption::ForeignKey(_) => return Err(SqlError::unsupported("a FOREIGN KEY constraint")),
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
        TableConstraint::PrimaryKey(k) => {
            set_primary(table, primary, (k.name.as_ref().map(fold), constraint_columns(&k.columns)?))
        }
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

/// The columns of a key by name: each once, all there.
pub(crate) fn key_columns(table: &TableDef, names: &[String]) -> SqlResult<Vec<usize>> {
    let mut out = Vec::new();
    for name in names {
        let c = table.column(name).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })?;
        if out.contains(&c) {
            let text = format!("column \"{name}\" appears twice in primary key constraint");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text));
        }
        out.push(c);
    }
    Ok(out)
}

/// DISTRIBUTED BY, else the first column of the primary key or of the first unique one, else anywhere.
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

/// CREATE INDEX on a table of the catalog.
pub(crate) fn create_index(
    table: &TableDef,
    name: Option<&str>,
    names: &[String],
    unique: bool,
    if_not_exists: bool,
) -> SqlResult<Statement> {
    let mut columns = Vec::new();
    for name in names {
        let missing = || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        columns.push(table.column(name).ok_or_else(missing)?);
    }
    let name = match name {
        Some(n) => {
            refuse_name(n)?;
            n.to_owned()
        }
        None => free_name(table, format!("{}_{}_idx", table.name, names.join("_"))),
    };
    Ok(Statement::CreateIndex { table: table.name.clone(), name, columns, unique, if_not_exists })
}
