//! Function calls: scalar functions and aggregates.

use crate::bind::{AGGREGATE, Aggregates, Binder, Exports, Typed};
use crate::checks;
use crate::coerce::{cast_expr, is_time};
use crate::error::foreign;
use crate::position::{is_undecided, of_value};
use crate::relation::{cross_database, no_schema};
use crate::scope::{fold, parts};
use crate::system::refuse_call;
use clearway_ir::Expr;
use clearway_ir::expr::{BinaryOp, Func};
use clearway_ir::program::{AggFunc, Aggregate};
use clearway_ir::search_path;
use clearway_ir::system::SCHEMA;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArguments};

/// PostgreSQL's limit on a function's arguments.
const MAX_ARGUMENTS: usize = 100;

/// Binds words that are calls without parentheses.
pub(crate) fn bare_word(name: &str) -> Option<Typed> {
    let (f, ty) = match name {
        "current_timestamp" => (Func::Now, SqlType::Timestamptz),
        "current_user" | "session_user" | "user" | "current_role" => {
            (Func::CurrentUser, SqlType::Name)
        }
        "current_catalog" => (Func::CurrentDatabase, SqlType::Name),
        "current_schema" => (Func::CurrentSchema, SqlType::Name),
        "localtimestamp" | "current_date" => {
            let now = Typed::new(Expr::Func(Func::Now, Vec::new()), SqlType::Timestamptz);
            let ty = if name == "current_date" { SqlType::Date } else { SqlType::Timestamp };
            return Some(cast_expr(now, ty, false));
        }
        _ => return None,
    };
    Some(Typed::new(Expr::Func(f, Vec::new()), ty))
}

/// Binds calls and constructs that resemble calls. Anything else is refused by its name with 0A000.
pub(crate) fn bind(b: &mut Binder<'_>, e: &ast::Expr) -> SqlResult<Typed> {
    use ast::Expr as E;
    match e {
        E::Function(f) => function(b, f),
        E::Substring { expr, substring_from, substring_for, .. } => {
            let mut args = vec![b.bind(expr)?];
            args.push(match substring_from {
                Some(e) => b.bind(e)?,
                None => Typed::new(Expr::Literal(Datum::Int4(1)), SqlType::Int4),
            });
            if let Some(e) = substring_for {
                args.push(b.bind(e)?);
            }
            scalar(b, "substring", args)
        }
        E::Trim { trim_where, trim_what, expr, trim_characters } => {
            let text = b.bind(expr)?;
            if let Some(more) = trim_characters.as_ref().filter(|c| c.len() > 1) {
                let mut types = vec![text.ty];
                for e in more {
                    types.push(b.bind(e)?.ty);
                }
                let r = Err(undefined("pg_catalog.btrim", &types));
                return b.of_call(expr, r);
            }
            let chars = trim_what.as_deref().or(trim_characters.as_ref().and_then(|c| c.first()));
            let chars = match chars {
                Some(e) => b.bind(e)?,
                None => Typed::new(Expr::Literal(" ".into()), SqlType::Text),
            };
            let mode = match trim_where {
                Some(ast::TrimWhereField::Leading) => 1,
                Some(ast::TrimWhereField::Trailing) => 2,
                _ => 0,
            };
            trim(b, text, chars, mode)
        }
        E::Position { expr, r#in } => {
            let args = vec![b.bind(r#in)?, b.bind(expr)?];
            scalar(b, "strpos", args)
        }
        E::Ceil { expr, field } => rounded(b, "ceil", expr, field),
        E::Floor { expr, field } => rounded(b, "floor", expr, field),
        _ => match (construct(e), b.mode) {
            (SUBQUERY, Aggregates::Refused(checks::CLAUSE)) => Err(checks::subquery(b, e)),
            (what, _) => Err(SqlError::unsupported(what)),
        },
    }
}

/// Binds CEIL and FLOOR: sqlparser knows them with a second argument, too.
fn rounded(
    b: &mut Binder<'_>,
    name: &str,
    e: &ast::Expr,
    field: &ast::CeilFloorKind,
) -> SqlResult<Typed> {
    use ast::{CeilFloorKind as Kind, DateTimeField};
    let mut args = vec![b.bind(e)?];
    match field {
        Kind::DateTimeField(DateTimeField::NoDateTime) => scalar(b, name, args),
        Kind::DateTimeField(_) => {
            foreign(&[(true, "TO in CEIL and FLOOR")])?;
            scalar(b, name, args)
        }
        Kind::Scale(scale) => {
            args.push(b.bind(&ast::Expr::Value(scale.clone()))?);
            let r = scalar(b, name, args);
            b.of_call(e, r)
        }
    }
}

const SUBQUERY: &str = "a subquery";

fn construct(e: &ast::Expr) -> &'static str {
    use ast::Expr as E;
    match e {
        E::Subquery(_) | E::InSubquery { .. } | E::Exists { .. } => SUBQUERY,
        E::CompoundFieldAccess { access_chain, .. }
            if access_chain.iter().any(|access| matches!(access, ast::AccessExpr::Dot(_))) =>
        {
            "a field of a row"
        }
        E::Array(_) | E::InUnnest { .. } | E::CompoundFieldAccess { .. } => "an array",
        E::AnyOp { .. } | E::AllOp { .. } => "ANY or ALL",
        E::Interval(_) => "type interval",
        E::Extract { .. } => "EXTRACT",
        E::AtTimeZone { .. } => "AT TIME ZONE",
        E::Tuple(_) | E::Struct { .. } => "a row constructor",
        E::Collate { .. } => "COLLATE",
        E::SimilarTo { .. } | E::RLike { .. } => "SIMILAR TO",
        E::Overlay { .. } => "OVERLAY",
        E::GroupingSets(_) | E::Cube(_) | E::Rollup(_) => "GROUPING SETS",
        E::Wildcard(_) | E::QualifiedWildcard(..) => "* in an expression",
        E::Like { .. } | E::ILike { .. } => "LIKE ANY",
        _ => "this expression",
    }
}

fn function(b: &mut Binder<'_>, f: &ast::Function) -> SqlResult<Typed> {
    let names: Vec<String> = parts(&f.name)?.into_iter().map(fold).collect();
    let name = match names.as_slice() {
        [name] => name.as_str(),
        [schema, name] if schema == "pg_catalog" => name.as_str(),
        [schema, name] if schema == SCHEMA => return Err(refuse_call(name)),
        [schema, name] if search_path::schema(schema).is_some() => {
            return Err(undefined(&format!("{schema}.{name}"), &[]));
        }
        [schema, _] => return Err(no_schema(schema)),
        _ => return Err(cross_database(&names.join("."))),
    };
    for (there, what) in [
        (f.over.is_some(), "a window function"),
        (f.filter.is_some(), "FILTER"),
        (!f.within_group.is_empty(), "WITHIN GROUP"),
        (f.null_treatment.is_some(), "IGNORE NULLS"),
    ] {
        if there {
            return Err(SqlError::unsupported(what));
        }
    }
    let list = match &f.args {
        FunctionArguments::None => return bare_word(name).ok_or_else(|| undefined(name, &[])),
        FunctionArguments::Subquery(_) => return Err(SqlError::unsupported(SUBQUERY)),
        FunctionArguments::List(list) => list,
    };
    if !list.clauses.is_empty() {
        return Err(SqlError::unsupported("a clause in a function's arguments"));
    }
    let is_star =
        |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
    if list.duplicate_treatment.is_some() && list.args.iter().any(is_star) {
        return Err(SqlError::new(SqlState::SYNTAX, "syntax error at or near \"*\""));
    }
    let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if let Some(func) = aggregate_function(name) {
        return aggregate(b, name, func, &list.args, distinct);
    }
    if distinct {
        let text = format!("DISTINCT specified, but {name} is not an aggregate function");
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, text));
    }
    // For PostgreSQL the others are constructs of the grammar.
    let limited = !matches!(name, "coalesce" | "greatest" | "least");
    if limited && list.args.len() > MAX_ARGUMENTS {
        let text = format!("cannot pass more than {MAX_ARGUMENTS} arguments to a function");
        return Err(SqlError::new(SqlState(*b"54023"), text));
    }
    let (mut args, mut undecided) = (Vec::with_capacity(list.args.len()), None);
    for arg in &list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else {
            return Err(SqlError::unsupported("this function argument"));
        };
        let t = b.bind(e)?;
        undecided = undecided.or(is_undecided(&t).then_some(e));
        args.push(t);
    }
    if name == "generate_series" && b.mode == Aggregates::Refused(checks::CLAUSE) {
        let text = format!("set-returning functions are not allowed in {}", checks::CLAUSE);
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    }
    let types: Vec<SqlType> = args.iter().map(|t| t.ty).collect();
    match (undecided, scalar(b, name, args)) {
        (Some(e), Err(error)) if of_value(&error) => b.at_literal(e, Err(error)),
        (_, Err(error)) if error.state() == SqlState::DATATYPE_MISMATCH => {
            match crate::operators::mismatch(&types).and_then(|n| list.args.get(n)) {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(e))) => b.at(e, Err(error)),
                _ => Err(error),
            }
        }
        (_, result) => result,
    }
}

fn aggregate_function(name: &str) -> Option<AggFunc> {
    Some(match name {
        "count" => AggFunc::Count,
        "sum" => AggFunc::Sum,
        "min" => AggFunc::Min,
        "max" => AggFunc::Max,
        "avg" => AggFunc::Avg,
        _ => return None,
    })
}

fn aggregate(
    b: &mut Binder<'_>,
    name: &str,
    func: AggFunc,
    args: &[FunctionArg],
    distinct: bool,
) -> SqlResult<Typed> {
    match b.mode {
        Aggregates::Allowed => {}
        Aggregates::Nested => {
            return Err(SqlError::new(
                SqlState::GROUPING,
                "aggregate function calls cannot be nested",
            ));
        }
        Aggregates::Refused(clause) => {
            let text = format!("aggregate functions are not allowed in {clause}");
            return Err(SqlError::new(SqlState::GROUPING, text));
        }
    }
    let arg = match args {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if func == AggFunc::Count => None,
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] => {
            b.mode = Aggregates::Nested;
            let bound = b.bind(e);
            b.mode = Aggregates::Allowed;
            Some(bound?)
        }
        [FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_))] => {
            return Err(SqlError::unsupported("a row as an argument"));
        }
        _ => return Err(undefined(name, &[])),
    };
    let (arg, ty) = match (func, arg) {
        (AggFunc::Count, arg) => {
            let arg = arg.map(|a| b.decide(a, SqlType::Text)).transpose()?;
            (arg, SqlType::Int8)
        }
        (_, None) => return Err(undefined(name, &[])),
        (AggFunc::Min | AggFunc::Max, Some(a)) => {
            let a = b.decide(a, SqlType::Text)?;
            let ty = if a.ty.is_string() && !matches!(a.ty, SqlType::Char(_)) {
                SqlType::Text
            } else {
                a.ty
            };
            if ty == SqlType::Bool {
                return Err(undefined(name, &[a.ty]));
            }
            (Some(a), ty)
        }
        (AggFunc::Sum | AggFunc::Avg, Some(a)) => {
            let ty = match a.ty {
                SqlType::Int2 | SqlType::Int4 if func == AggFunc::Sum => SqlType::Int8,
                SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Numeric => {
                    SqlType::Numeric
                }
                SqlType::Float8 => SqlType::Float8,
                other => return Err(undefined(name, &[other])),
            };
            (Some(a), ty)
        }
    };
    let agg = Aggregate { func, arg: arg.map(|a| a.expr), distinct, ty };
    let at = match b.aggregates.iter().position(|a| *a == agg) {
        Some(at) => at,
        None => {
            b.aggregates.push(agg);
            b.aggregates.len() - 1
        }
    };
    Ok(Typed::new(Expr::Column(AGGREGATE + at), ty))
}

fn trim(b: &mut Binder<'_>, text: Typed, chars: Typed, mode: i32) -> SqlResult<Typed> {
    let mut args = Vec::new();
    for t in [text, chars] {
        let t = b.decide(t, SqlType::Text)?;
        if !t.ty.is_string() {
            return Err(undefined("btrim", &[t.ty]));
        }
        args.push(t.expr);
    }
    args.push(Expr::Literal(Datum::Int4(mode)));
    Ok(Typed::new(Expr::Func(Func::Trim, args), SqlType::Text))
}

fn scalar(b: &mut Binder<'_>, name: &str, args: Vec<Typed>) -> SqlResult<Typed> {
    use SqlType as T;
    let call = |f, args, ty| Ok(Typed::new(Expr::Func(f, args), ty));
    match (name, args.len()) {
        ("now" | "transaction_timestamp", 0) => return call(Func::Now, vec![], T::Timestamptz),
        ("statement_timestamp", 0) => return call(Func::StatementNow, vec![], T::Timestamptz),
        ("clock_timestamp" | "timeofday", 0) => {
            return Err(SqlError::unsupported(format!("{name}()")));
        }
        ("version", 0) => return call(Func::Version, vec![], T::Text),
        ("current_database" | "current_catalog", 0) => {
            return call(Func::CurrentDatabase, vec![], T::Name);
        }
        ("current_schema", 0) => return call(Func::CurrentSchema, vec![], T::Name),
        // We have no advisory locks, so there is never one to release.
        ("pg_advisory_unlock_all", 0) => return Ok(Typed::new(Expr::Literal("".into()), T::Void)),
        ("pg_backend_pid", 0) => return call(Func::PgBackendPid, vec![], T::Int4),
        ("pg_export_snapshot", 0) => {
            if b.exports == Exports::Refused {
                return Err(SqlError::unsupported("pg_export_snapshot() in this place")
                    .hint("Call it in the select list of a query without FROM and aggregates."));
            }
            b.exports = Exports::Called;
            return Ok(Typed::new(Expr::Column(0), T::Text));
        }
        ("random", 0) => {
            b.randoms += 1;
            return call(Func::Random, vec![Expr::Literal(Datum::Int4(b.randoms))], T::Float8);
        }
        ("coalesce", 1..) => {
            let (args, ty) = b.unify(args, "COALESCE")?;
            return call(Func::Coalesce, args, ty);
        }
        ("greatest", 1..) => {
            let (args, ty) = b.unify(args, "GREATEST")?;
            return call(Func::Greatest, args, ty);
        }
        ("least", 1..) => {
            let (args, ty) = b.unify(args, "LEAST")?;
            return call(Func::Least, args, ty);
        }
        ("nullif", 2) => {
            return null_if(b, args);
        }
        ("btrim" | "ltrim" | "rtrim", 1 | 2) => {
            let mode =
                ["btrim", "ltrim", "rtrim"].iter().position(|n| *n == name).unwrap_or(0) as i32;
            let mut args = args.into_iter();
            let Some(text) = args.next() else { return Err(undefined(name, &[])) };
            let chars = args.next().unwrap_or(Typed::new(Expr::Literal(" ".into()), T::Text));
            return trim(b, text, chars, mode);
        }
        ("abs" | "round" | "floor" | "ceil" | "ceiling", 1) => return number(b, name, args),
        ("concat", 1..) => return concat(b, args),
        _ => {}
    }
    fixed(b, name, args)
}

/// Binds nullif(): the first argument, in the type that the operator = uses.
fn null_if(b: &mut Binder<'_>, args: Vec<Typed>) -> SqlResult<Typed> {
    let Ok([first, second]) = <[Typed; 2]>::try_from(args) else {
        return Err(undefined("nullif", &[]));
    };
    let own = first.ty;
    // Times of two types are compared as they are: the first one keeps its type.
    let value = if is_time(own) { Some(b.copy(&first)?) } else { None };
    let (a, c) = b.comparable("=", first, second)?;
    if let Some(value) = value.filter(|_| own != a.ty) {
        let equal = Expr::Binary(BinaryOp::Eq, Box::new(a.expr), Box::new(c.expr));
        let null = Expr::Literal(Datum::Null);
        return Ok(Typed::new(Expr::Case(vec![(equal, null)], Some(Box::new(value.expr))), own));
    }
    let ty = match own {
        SqlType::Varchar(_) if !matches!(c.ty, SqlType::Char(_)) => SqlType::Text,
        SqlType::Varchar(_) => {
            return Err(SqlError::unsupported("nullif of varchar and character"));
        }
        SqlType::Char(_) if matches!(c.ty, SqlType::Text | SqlType::Name) => SqlType::Text,
        _ => a.ty,
    };
    Ok(Typed::new(Expr::Func(Func::NullIf, vec![a.expr, c.expr]), ty))
}

fn concat(b: &mut Binder<'_>, args: Vec<Typed>) -> SqlResult<Typed> {
    // The blanks of a char(n) count.
    let part = |t: Typed| crate::bind::padded(b.decide(t, SqlType::Text)?).map(|t| t.expr);
    let parts = args.into_iter().map(part).collect::<SqlResult<_>>()?;
    Ok(Typed::new(Expr::Func(Func::Concat, parts), SqlType::Text))
}

fn number(b: &mut Binder<'_>, name: &str, args: Vec<Typed>) -> SqlResult<Typed> {
    let Some(arg) = args.into_iter().next() else { return Err(undefined(name, &[])) };
    let arg = b.decide(arg, SqlType::Float8)?;
    let f = match name {
        "abs" => Func::Abs,
        "round" => Func::Round,
        "floor" => Func::Floor,
        _ => Func::Ceil,
    };
    let arg = match arg.ty {
        ty if ty.is_integer() && f != Func::Abs => b.cast_to(arg, SqlType::Float8)?,
        ty if ty.is_integer() || matches!(ty, SqlType::Float8 | SqlType::Numeric) => arg,
        ty => return Err(undefined(name, &[ty])),
    };
    Ok(Typed::new(Expr::Func(f, vec![arg.expr]), arg.ty))
}

/// The functions that we have, in all of PostgreSQL's forms for our types.
const OURS: &[&str] = &[
    "abs",
    "avg",
    "btrim",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "concat",
    "count",
    "date_trunc",
    "floor",
    "left",
    "length",
    "lower",
    "ltrim",
    "max",
    "md5",
    "min",
    "now",
    "pg_cancel_backend",
    "pg_export_snapshot",
    "pg_terminate_backend",
    "repeat",
    "replace",
    "right",
    "round",
    "rtrim",
    "strpos",
    "substr",
    "substring",
    "sum",
    "upper",
];

/// Binds functions with fixed argument types.
fn fixed(b: &mut Binder<'_>, name: &str, args: Vec<Typed>) -> SqlResult<Typed> {
    use SqlType as T;
    let time = args.get(1).map_or(T::Timestamptz, |a| {
        if a.ty == T::Timestamp { T::Timestamp } else { T::Timestamptz }
    });
    if name == "substring" && args.get(1).is_some_and(|a| a.ty.is_string()) {
        return Err(SqlError::unsupported("substring with a regular expression"));
    }
    if name == "date_trunc" && args.len() == 3 {
        return Err(SqlError::unsupported("date_trunc with a time zone"));
    }
    if name == "date_trunc" && args.len() == 2 && args.iter().all(|a| a.ty == T::Unknown) {
        let text = "function date_trunc(unknown, unknown) is not unique";
        return Err(SqlError::new(SqlState(*b"42725"), text)
            .hint("Could not choose a best candidate function. You might need to add explicit type casts."));
    }
    let (f, wanted, ty): (Func, &[SqlType], SqlType) = match (name, args.len()) {
        ("lower", 1) => (Func::Lower, &[T::Text], T::Text),
        ("upper", 1) => (Func::Upper, &[T::Text], T::Text),
        ("length" | "char_length" | "character_length", 1) => (Func::Length, &[T::Text], T::Int4),
        ("md5", 1) => (Func::Md5, &[T::Text], T::Text),
        ("substring" | "substr", 2) => (Func::Substring, &[T::Text, T::Int4], T::Text),
        ("substring" | "substr", 3) => (Func::Substring, &[T::Text, T::Int4, T::Int4], T::Text),
        ("replace", 3) => (Func::Replace, &[T::Text, T::Text, T::Text], T::Text),
        ("repeat", 2) => (Func::Repeat, &[T::Text, T::Int4], T::Text),
        ("left", 2) => (Func::Left, &[T::Text, T::Int4], T::Text),
        ("right", 2) => (Func::Right, &[T::Text, T::Int4], T::Text),
        ("strpos", 2) => (Func::Position, &[T::Text, T::Text], T::Int4),
        ("round", 2) => (Func::Round, &[T::Numeric, T::Int4], T::Numeric),
        ("date_trunc", 2) => {
            let wanted: &[SqlType] = if time == T::Timestamp {
                &[T::Text, T::Timestamp]
            } else {
                &[T::Text, T::Timestamptz]
            };
            (Func::DateTrunc, wanted, time)
        }
        ("current_setting", 1) => (Func::CurrentSetting, &[T::Text], T::Text),
        ("current_setting", 2) => (Func::CurrentSetting, &[T::Text, T::Bool], T::Text),
        ("pg_cancel_backend", 1) => (Func::PgCancelBackend, &[T::Int4], T::Bool),
        ("pg_terminate_backend", 1) => (Func::PgTerminateBackend, &[T::Int4], T::Bool),
        ("pg_terminate_backend", 2) => (Func::PgTerminateBackend, &[T::Int4, T::Int8], T::Bool),
        ("pg_sleep", 1) => (Func::PgSleep, &[T::Float8], T::Void),
        _ => return Err(undefined(name, &args.iter().map(|a| a.ty).collect::<Vec<_>>())),
    };
    Ok(Typed::new(Expr::Func(f, converted(b, name, args, wanted)?), ty))
}

/// Converts a function's arguments implicitly to these types.
pub(crate) fn converted(
    b: &mut Binder<'_>,
    name: &str,
    args: Vec<Typed>,
    wanted: &[SqlType],
) -> SqlResult<Vec<Expr>> {
    use SqlType as T;
    let given: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
    let mut out = Vec::with_capacity(args.len());
    for (arg, &want) in args.into_iter().zip(wanted) {
        let arg = b.decide(arg, want)?;
        out.push(match (arg.ty, want) {
            (have, want) if have == want => arg.expr,
            (have, T::Text) if have.is_string() => arg.expr,
            (T::Int2, T::Int4)
            | (T::Int2 | T::Int4, T::Int8)
            | (T::Timestamp | T::Date, T::Timestamptz) => b.cast_to(arg, want)?.expr,
            (have, T::Float8 | T::Numeric)
                if crate::ops::numeric_common(have, want) == Some(want) =>
            {
                b.cast_to(arg, want)?.expr
            }
            _ => return Err(undefined(name, &given)),
        });
    }
    Ok(out)
}

/// PostgreSQL 15's functions, in order. Those that we do not have are refused by name.
const BUILTIN: &str = include_str!("functions.txt");

/// Returns 42883, or 0A000 if PostgreSQL may have the function.
fn undefined(name: &str, args: &[SqlType]) -> SqlError {
    // These belong to PostgreSQL's grammar, so that they are not in its list of functions.
    match name {
        "current_time" | "localtime" => return SqlError::unsupported(name),
        "current_timestamp" | "localtimestamp" => {
            return SqlError::unsupported(format!("{name} with a precision"));
        }
        _ => {}
    }
    if !OURS.contains(&name) && BUILTIN.lines().any(|n| n == name) {
        return SqlError::unsupported(format!("function {name}"));
    }
    let args: Vec<String> = args.iter().map(|ty| crate::ops::shown(*ty)).collect();
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", args.join(", ")))
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// Returns the name of a function's result column.
pub(crate) fn result_name(f: &ast::Function) -> String {
    parts(&f.name).ok().and_then(|p| p.last().map(|i| fold(i))).unwrap_or_default()
}
