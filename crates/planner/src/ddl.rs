//! CREATE TABLE and CREATE INDEX.

use crate::bind::{Aggregates, Binder};
use crate::checks::{self, DeclaredCheck};
use crate::error::{foreign, place};
use crate::parse::Distributed;
use crate::position::is_undecided;
use crate::relation::RelationName;
use crate::scope::{column, fold};
use crate::tree::storable;
use crate::types;
use clearway_ir::catalog::{IndexDef, object_name};
use clearway_ir::statement::unnumbered_table;
use clearway_ir::{Catalog, Column, Distribution, Expr, Statement, TableDef};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, ColumnOption, Spanned, TableConstraint};

/// PostgreSQL's limit on columns.
const MAX_COLUMNS: usize = 1600;

/// A key as declared: name, columns.
type Key = (Option<String>, Vec<String>);

/// The constraints of a CREATE TABLE as declared.
#[derive(Default)]
struct Constraints<'a> {
    primary: Option<Key>,
    uniques: Vec<Key>,
    checks: Vec<DeclaredCheck<'a>>,
}

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
    let forms = [
        (c.like.is_some(), "LIKE in CREATE TABLE"),
        (c.query.is_some(), "CREATE TABLE AS"),
        (c.inherits.is_some(), "INHERITS"),
        (c.partition_by.is_some(), "PARTITION BY"),
    ];
    if let Some((_, what)) = forms.iter().find(|(is_used, _)| *is_used) {
        return Err(SqlError::unsupported(what));
    }
    if c.columns.len() > MAX_COLUMNS {
        return Err(SqlError::new(
            SqlState(*b"54011"),
            format!("tables can have at most {MAX_COLUMNS} columns"),
        ));
    }
    let mut declared = Constraints::default();
    let mut columns: Vec<Column> = Vec::new();
    for def in &c.columns {
        let column = table_column(b, &name, def, &mut declared)?;
        if columns.iter().any(|have| have.name == column.name) {
            let text = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, text));
        }
        columns.push(column);
    }
    for constraint in &c.constraints {
        table_constraint(&name, constraint, &mut declared)?;
    }
    let Constraints { primary, uniques, checks } = declared;
    let mut table = unnumbered_table(&name, columns, Vec::new(), Distribution::Random);
    let primary = primary
        .map(|(name, names)| Ok((name, key_columns(&table, &names, "primary key")?)))
        .transpose()?;
    let uniques = uniques
        .into_iter()
        .map(|(name, names)| Ok((name, key_columns(&table, &names, "unique")?, names)))
        .collect::<SqlResult<Vec<_>>>()?;
    // The names of keys are chosen after those of CHECK constraints.
    table.checks = checks::bind_all(b, catalog, &table, checks)?;
    if let Some((constraint, columns)) = primary {
        table.primary_key_name = key_name(catalog, &table, constraint, None, "pkey")?;
        table.primary_key = columns;
        for c in table.primary_key.clone() {
            table.columns[c].not_null = true;
        }
    }
    for (constraint, columns, names) in uniques {
        let name = key_name(catalog, &table, constraint, Some(&names.join("_")), "key")?;
        table.indexes.push(IndexDef {
            name,
            tree: Default::default(),
            columns,
            unique: true,
            constraint: Some(true),
            global_index: None,
        });
    }
    table.distribution = distribute(&table, distribution)?;
    if table.columns.is_empty() {
        return Err(SqlError::unsupported("a table without columns"));
    }
    Ok(Statement::CreateTable { table, if_not_exists: c.if_not_exists })
}

/// Returns the name of a key: the one given, or else a free one, from its columns and a label.
/// 42710 if a CHECK constraint of the table has that name.
fn key_name(
    catalog: &Catalog,
    table: &TableDef,
    given: Option<String>,
    columns: Option<&str>,
    label: &str,
) -> SqlResult<String> {
    let Some(name) = given else {
        return Ok(free_name(catalog, table, columns, label, |name| {
            table.has_constraint(name) || catalog.has_constraint(name)
        }));
    };
    if table.checks.iter().any(|check| check.name == name) {
        return Err(checks::exists(table, &name));
    }
    Ok(name)
}

/// Returns the name of a primary key that is added to a table; `None` is the default.
pub(crate) fn added_key_name(
    catalog: &Catalog,
    table: &TableDef,
    given: Option<String>,
) -> SqlResult<Option<String>> {
    let default = object_name(&table.name, None, "pkey");
    if given.is_none() && !table.has_constraint(&default) && !catalog.has_relation(&default) {
        return Ok(None);
    }
    key_name(catalog, table, given, None, "pkey").map(Some)
}

/// Returns the first default name of an index that no relation has and that is not `taken`.
fn free_name(
    catalog: &Catalog,
    table: &TableDef,
    columns: Option<&str>,
    label: &str,
    taken: impl Fn(&str) -> bool,
) -> String {
    checks::free_object_name(&table.name, columns, label, |name| {
        name == table.name
            || table.indexes.iter().any(|i| i.name == name)
            || catalog.has_relation(name)
            || taken(name)
    })
}

fn table_column<'a>(
    b: &mut Binder<'_>,
    table: &str,
    def: &'a ast::ColumnDef,
    declared: &mut Constraints<'a>,
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
                let value = storable(default(b, e, &column)?)?;
                column.default = (value != Expr::Literal(Datum::Null)).then_some(value);
            }
            ColumnOption::PrimaryKey(_) => {
                set_primary(table, &mut declared.primary, (named, vec![name.clone()]))?
            }
            ColumnOption::Unique(_) => declared.uniques.push((named, vec![name.clone()])),
            ColumnOption::ForeignKey(_) => {
                return Err(SqlError::unsupported("a FOREIGN KEY constraint"));
            }
            ColumnOption::Check(check) => declared.checks.push(DeclaredCheck::of(named, check)?),
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
    // The length is checked where the default is used.
    let bounded = matches!(column.ty, SqlType::Char(_) | SqlType::Varchar(Some(_)));
    let t = if bounded { b.decide(t, SqlType::Text)? } else { t };
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

fn table_constraint<'a>(
    table: &str,
    constraint: &'a TableConstraint,
    declared: &mut Constraints<'a>,
) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(k) => {
            plain_key(&k.index_name, &k.index_type, &k.index_options)?;
            set_primary(
                table,
                &mut declared.primary,
                (k.name.as_ref().map(fold), constraint_columns(&k.columns)?),
            )
        }
        TableConstraint::Unique(k) => {
            plain_key(&k.index_name, &k.index_type, &k.index_options)?;
            declared.uniques.push((k.name.as_ref().map(fold), constraint_columns(&k.columns)?));
            Ok(())
        }
        TableConstraint::ForeignKey(_) => Err(SqlError::unsupported("a FOREIGN KEY constraint")),
        TableConstraint::Check(check) => {
            declared.checks.push(DeclaredCheck::of(check.name.as_ref().map(fold), check)?);
            Ok(())
        }
        _ => Err(SqlError::unsupported("this table constraint")),
    }
}

/// Refuses the index that sqlparser allows in a constraint.
fn plain_key(
    name: &Option<ast::Ident>,
    method: &Option<ast::IndexType>,
    options: &[ast::IndexOption],
) -> SqlResult<()> {
    foreign(&[
        (name.is_some(), "the name of an index in a constraint"),
        (method.is_some() || !options.is_empty(), "options of an index in a constraint"),
    ])
}

fn constraint_columns(columns: &[ast::IndexColumn]) -> SqlResult<Vec<String>> {
    let name = |c: &ast::IndexColumn| {
        let ast::OrderByOptions { sort, nulls_first } = &c.column.options;
        let ordered = sort.is_some() || nulls_first.is_some() || c.column.with_fill.is_some();
        foreign(&[
            (ordered, "an order of a constraint's columns"),
            (c.operator_class.is_some(), "an operator class in a constraint"),
        ])?;
        match &c.column.expr {
            ast::Expr::Identifier(i) => Ok(fold(i)),
            _ => Err(SqlError::unsupported("a key on an expression")),
        }
    };
    columns.iter().map(name).collect()
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
        None => free_name(catalog, table, Some(&names.join("_")), "idx", |_| false),
    };
    Ok((name, columns))
}
