//! The names in schema `clearway`: system views, which can be read, and the functions that reset
//! their counts to 0 and change the partitions' schemes. Nothing else can be created there.

use crate::bind::{Aggregates, Binder};
use crate::funcs;
use crate::position::{is_undecided, of_value};
use crate::query::{self, Output, Planned};
use crate::scope::{fold, parts};
use crate::select::Tail;
use clearway_ir::Expr;
use clearway_ir::statement::{Query, Source};
use clearway_ir::system::SCHEMA;
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName};

/// The function that resets the counts of `clearway.contention` to 0.
const RESET: &str = "reset_contention";
/// The function that changes the scheme of a partition, or of all.
const SET_SCHEME: &str = "set_scheme";

/// Refuses a call of one of the schema's functions inside an expression.
pub(crate) fn refuse_call(name: &str) -> SqlError {
    let arguments = match name {
        RESET => "",
        SET_SCHEME => "partition, scheme",
        _ => {
            let text = format!("function {SCHEMA}.{name}() does not exist");
            return SqlError::new(SqlState::UNDEFINED_FUNCTION, text);
        }
    };
    SqlError::unsupported(format!("{SCHEMA}.{name} as a part of a statement"))
        .hint(format!("Call it alone: SELECT {SCHEMA}.{name}({arguments})."))
}

/// Plans a call of one of the schema's functions, if the statement is one and nothing else.
pub(crate) fn call(
    b: &mut Binder<'_>,
    s: &ast::Select,
    tail: &Tail<'_>,
) -> SqlResult<Option<Planned>> {
    let (e, alias) = match s.projection.as_slice() {
        [ast::SelectItem::UnnamedExpr(e)] => (e, None),
        [ast::SelectItem::ExprWithAlias { expr, alias }] => (expr, Some(fold(alias))),
        _ => return Ok(None),
    };
    let ast::Expr::Function(call) = e else { return Ok(None) };
    let Some(name) = function(&call.name).filter(|_| is_alone(s, tail)) else { return Ok(None) };
    let bare = call.over.is_none() && call.filter.is_none();
    let Some(given) = arguments(&call.args).filter(|_| bare) else { return Ok(None) };
    let source = match (name, given.len()) {
        (RESET, 0) => Source::ResetContention,
        (SET_SCHEME, 1 | 2) => {
            let types = &[SqlType::Int4, SqlType::Text][2 - given.len()..];
            let mut bound = bind(b, e, &given, types)?;
            let Some(scheme) = bound.pop() else { return Ok(None) };
            Source::SetScheme { partition: bound.pop(), scheme }
        }
        _ => return Ok(None),
    };
    let item = Output {
        expr: Expr::Column(0),
        name: alias.unwrap_or_else(|| name.to_owned()),
        ty: SqlType::Void,
        origin: None,
    };
    Ok(Some(query::planned(Query { once: None, source, finish: Vec::new() }, vec![item])))
}

fn is_alone(s: &ast::Select, tail: &Tail<'_>) -> bool {
    s.from.is_empty()
        && s.selection.is_none()
        && s.having.is_none()
        && s.distinct.is_none()
        && matches!(&s.group_by, ast::GroupByExpr::Expressions(by, _) if by.is_empty())
        && tail.order.is_empty()
        && tail.limit.is_none()
        && tail.offset.is_none()
        && tail.locks.is_empty()
}

/// Returns the function of this name.
fn function(name: &ObjectName) -> Option<&'static str> {
    let names = parts(name).ok()?;
    let [schema, name] = names.as_slice() else { return None };
    let name = fold(name);
    [RESET, SET_SCHEME].into_iter().find(|known| fold(schema) == SCHEMA && name == *known)
}

/// Returns the arguments, if they are plain expressions.
fn arguments(list: &FunctionArguments) -> Option<Vec<&ast::Expr>> {
    let FunctionArguments::List(list) = list else { return None };
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref e)) => Some(e),
        _ => None,
    };
    let none = list.clauses.is_empty() && list.duplicate_treatment.is_none();
    list.args.iter().map(plain).collect::<Option<Vec<_>>>().filter(|_| none)
}

/// Binds the arguments of a call, and converts them to these types.
fn bind(
    b: &mut Binder<'_>,
    call: &ast::Expr,
    arguments: &[&ast::Expr],
    types: &[SqlType],
) -> SqlResult<Vec<Expr>> {
    b.mode = Aggregates::Refused("function arguments");
    let bound = arguments.iter().map(|e| b.bind(e)).collect::<SqlResult<Vec<_>>>()?;
    let literal = bound.iter().zip(arguments).find(|(t, _)| is_undecided(t)).map(|(_, e)| *e);
    let converted = funcs::converted(b, &format!("{SCHEMA}.{SET_SCHEME}"), bound, types);
    match literal {
        Some(literal) if converted.as_ref().is_err_and(of_value) => {
            b.at_literal(literal, converted)
        }
        _ => b.at(call, converted),
    }
}
