//! CHECK constraints of CREATE TABLE and ALTER TABLE.

use crate::bind::{Aggregates, Binder};
use crate::error::place;
use crate::position::is_word;
use crate::scope::Scope;
use crate::select::condition;
use crate::tree::storable;
use clearway_ir::catalog::object_name;
use clearway_ir::expr::Func;
use clearway_ir::{Catalog, CheckConstraint, Expr, TableDef};
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::Token;

/// What the binder refuses in a condition.
pub(crate) const CLAUSE: &str = "check constraints";

/// A CHECK constraint as declared.
pub(crate) struct DeclaredCheck<'a> {
    pub(crate) name: Option<String>,
    pub(crate) condition: &'a ast::Expr,
}

impl<'a> DeclaredCheck<'a> {
    /// Accepts NO INHERIT, since no table has children.
    pub(crate) fn of(name: Option<String>, check: &'a ast::CheckConstraint) -> SqlResult<Self> {
        if check.enforced.is_some() {
            return Err(SqlError::new(SqlState::SYNTAX, "syntax error at or near \"ENFORCED\""));
        }
        Ok(Self { name, condition: &check.expr })
    }
}

/// Binds the constraints of a new table, and sorts them by name.
pub(crate) fn bind_all(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    table: &TableDef,
    mut declared: Vec<DeclaredCheck<'_>>,
) -> SqlResult<Vec<CheckConstraint>> {
    // Default names are chosen in the order of the text.
    declared.sort_by_key(|check| check.condition.span().start);
    let mut checks: Vec<CheckConstraint> = Vec::new();
    for check in declared {
        let condition = bind(b, table, check.condition)?;
        let taken = |name: &str| checks.iter().any(|have| have.name == name);
        let name = match check.name {
            Some(name) if taken(&name) => {
                let text = format!("check constraint \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, text));
            }
            Some(name) => name,
            None => {
                default_name(table, &condition, |name| taken(name) || catalog.has_constraint(name))
            }
        };
        checks.push(CheckConstraint { name, condition });
    }
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(checks)
}

/// Returns 0A000 for a subquery, at the position that PostgreSQL gives it.
pub(crate) fn subquery(b: &Binder<'_>, e: &ast::Expr) -> SqlError {
    let text = "cannot use subquery in check constraint";
    let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text);
    let inside = match e {
        ast::Expr::InSubquery { expr, .. } => {
            let result: SqlResult<()> = Err(error.clone());
            let is_in = |t: &Token| is_word(t, &["not", "in"]);
            return b.of_operator(result, &[(false, expr)], is_in).err().unwrap_or(error);
        }
        ast::Expr::Exists { subquery, .. } => b.before(subquery.span().start),
        ast::Expr::Subquery(subquery) => b.parenthesis_before(subquery.span().start),
        _ => None,
    };
    match inside {
        Some(at) => place(error, b.sql, at),
        None => error,
    }
}

/// Binds a constraint that is added to a table. PostgreSQL gives no position to its errors.
pub(crate) fn added(
    b: &mut Binder<'_>,
    catalog: &Catalog,
    table: &TableDef,
    name: Option<String>,
    condition: &ast::Expr,
) -> SqlResult<CheckConstraint> {
    let condition = bind(b, table, condition).map_err(|error| {
        let unplaced = SqlError::new(error.state(), error.message());
        error.get_hint().map_or(unplaced.clone(), |hint| unplaced.hint(hint))
    })?;
    let name = match name {
        Some(name) if table.has_constraint(&name) => return Err(exists(table, &name)),
        Some(name) => name,
        None => default_name(table, &condition, |name| catalog.has_constraint(name)),
    };
    Ok(CheckConstraint { name, condition })
}

/// Binds a condition on the table's rows.
fn bind(b: &mut Binder<'_>, table: &TableDef, e: &ast::Expr) -> SqlResult<Expr> {
    b.mode = Aggregates::Refused(CLAUSE);
    b.scope = Scope::of_table(table, None);
    let condition = condition(b, e, "CHECK")?;
    // Their effects are not those of an expression: a test of rows must have none.
    let mut acts = |e: &Expr| match e {
        Expr::Func(func, _) => {
            matches!(func, Func::PgSleep | Func::PgCancelBackend | Func::PgTerminateBackend)
        }
        _ => false,
    };
    if condition.any(&mut acts) {
        return Err(SqlError::unsupported("this function in a CHECK constraint"));
    }
    storable(condition)
}

/// Returns 42710: the table has a constraint of this name.
pub(crate) fn exists(table: &TableDef, name: &str) -> SqlError {
    let text = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
    SqlError::new(SqlState::DUPLICATE_OBJECT, text)
}

/// Returns PostgreSQL's name for a CHECK constraint without one: `table_column_check`, or
/// `table_check` unless the condition mentions exactly one column. A number follows if that name is
/// taken.
fn default_name(table: &TableDef, condition: &Expr, taken: impl Fn(&str) -> bool) -> String {
    let mut mentioned = Vec::new();
    condition.any(&mut |e| {
        match e {
            Expr::Column(n) if !mentioned.contains(n) => mentioned.push(*n),
            _ => {}
        }
        false
    });
    let column = match mentioned[..] {
        [column] => Some(table.columns[column].name.as_str()),
        _ => None,
    };
    free_object_name(&table.name, column, "check", taken)
}

/// Returns the first default name that is not `taken`: a number follows all labels but the first.
pub(crate) fn free_object_name(
    first: &str,
    second: Option<&str>,
    label: &str,
    taken: impl Fn(&str) -> bool,
) -> String {
    let (mut name, mut number) = (object_name(first, second, label), 0);
    while taken(&name) {
        number += 1;
        name = object_name(first, second, &format!("{label}{number}"));
    }
    name
}
