//! The names in schema `clearway`: system views, which can be read, and the function that resets
//! their counts to 0. Nothing else can be created there.

use crate::query::{self, Output, Planned};
use crate::scope::{fold, parts};
use crate::select::Tail;
use clearway_ir::Expr;
use clearway_ir::statement::{Query, Source};
use clearway_ir::system::SCHEMA;
use clearway_types::{SqlError, SqlState, SqlType};
use sqlparser::ast::{self, FunctionArguments, ObjectName};

/// The function that resets the counts of `clearway.contention` to 0.
const RESET: &str = "reset_contention";

/// Refuses a call of one of the schema's functions inside an expression.
pub(crate) fn refuse_call(name: &str) -> SqlError {
    if name == RESET {
        return SqlError::unsupported(format!("{SCHEMA}.{RESET} as a part of a statement"))
            .hint(format!("Call it alone: SELECT {SCHEMA}.{RESET}()."));
    }
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {SCHEMA}.{name}() does not exist"),
    )
}

/// Plans `SELECT clearway.reset_contention()`, if the statement is that.
pub(crate) fn reset(s: &ast::Select, tail: &Tail<'_>) -> Option<Planned> {
    let (call, alias) = match s.projection.as_slice() {
        [ast::SelectItem::UnnamedExpr(ast::Expr::Function(f))] => (f, None),
        [ast::SelectItem::ExprWithAlias { expr: ast::Expr::Function(f), alias }] => {
            (f, Some(fold(alias)))
        }
        _ => return None,
    };
    let alone = s.from.is_empty()
        && s.selection.is_none()
        && s.having.is_none()
        && s.distinct.is_none()
        && matches!(&s.group_by, ast::GroupByExpr::Expressions(by, _) if by.is_empty())
        && tail.order.is_empty()
        && tail.limit.is_none()
        && tail.offset.is_none()
        && tail.locks.is_empty();
    let bare = call.over.is_none() && call.filter.is_none() && is_empty(&call.args);
    if !alone || !bare || !is_reset(&call.name) {
        return None;
    }
    let item = Output {
        expr: Expr::Column(0),
        name: alias.unwrap_or_else(|| RESET.to_owned()),
        ty: SqlType::Void,
        origin: None,
    };
    Some(query::planned(
        Query { once: None, source: Source::ResetContention, finish: Vec::new() },
        vec![item],
    ))
}

fn is_reset(name: &ObjectName) -> bool {
    let Ok(names) = parts(name) else { return false };
    matches!(names.as_slice(), [schema, name] if fold(schema) == SCHEMA && fold(name) == RESET)
}

fn is_empty(args: &FunctionArguments) -> bool {
    matches!(args, FunctionArguments::List(list) if list.args.is_empty() && list.clauses.is_empty())
}
