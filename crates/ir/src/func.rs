//! Scalar functions.

use crate::Expr;
use crate::arith::{negate, out_of_range, owned};
use crate::decimal;
use crate::expr::Func;
use crate::md5::md5_hex;
use crate::operand::Value;
use crate::program::{Env, SessionEnv, Signal};
use crate::search_path::PUBLIC;
use crate::sort::compare;
use crate::trunc::date_trunc;
use crate::value::to_text;
use clearway_types::{DatumRef, RowView, SqlError, SqlResult, SqlState, SqlType, hash};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::cmp::Ordering;

/// The result of version().
pub const VERSION: &str = concat!(
    "PostgreSQL 15.0 (Clearway ",
    env!("CARGO_PKG_VERSION"),
    ") on a partitioned storage engine"
);
/// Maximum length of a text that an expression creates, in bytes: it uses memory that all sessions
/// share.
const MAX_TEXT: usize = 64 << 20;

/// Returns 54000 if a text of this length would be too long.
pub(crate) fn check_length(bytes: usize) -> SqlResult<()> {
    if bytes <= MAX_TEXT {
        return Ok(());
    }
    let limit = format!("A text created by an expression can have at most {} MiB.", MAX_TEXT >> 20);
    Err(SqlError::new(SqlState::LIMIT_EXCEEDED, "requested length too large").hint(limit))
}

/// Calls a function. All functions except those in the first `match` return NULL if an argument is
/// NULL.
pub(crate) fn call<'a>(
    f: Func,
    args: &'a [Expr],
    row: RowView<'a>,
    env: &'a Env,
) -> SqlResult<Value<'a>> {
    match f {
        Func::Coalesce => {
            for arg in args {
                let v = arg.eval_ref(row, env)?;
                if !v.is_null() {
                    return Ok(v);
                }
            }
            return Ok(Value::NULL);
        }
        Func::Concat => return concat(args, row, env),
        Func::Greatest => return extreme(args, Ordering::Greater, row, env),
        Func::Least => return extreme(args, Ordering::Less, row, env),
        Func::NullIf => {
            let (a, b) = (args[0].eval_ref(row, env)?, args[1].eval_ref(row, env)?);
            let equal = !a.is_null() && !b.is_null() && compare(a.as_ref(), b.as_ref()).is_eq();
            return Ok(if equal { Value::NULL } else { a });
        }
        Func::Random => return Ok(Value::Ref(DatumRef::Float8(random(args, row, env)?))),
        _ => {}
    }
    let mut values: [Value<'a>; 3] = [Value::NULL, Value::NULL, Value::NULL];
    let mut null = false;
    for (slot, arg) in values.iter_mut().zip(args) {
        *slot = arg.eval_ref(row, env)?;
        null |= slot.is_null();
    }
    // Only now: an argument that fails is an error even if another one is NULL.
    if null {
        return Ok(Value::NULL);
    }
    if let Some(v) = of_session(f, env) {
        return Ok(v);
    }
    let [a, b, c] = [values[0].as_ref(), values[1].as_ref(), values[2].as_ref()];
    match f {
        Func::Abs
        | Func::Round
        | Func::Floor
        | Func::Ceil
        | Func::ExactInt
        | Func::FloorInt
        | Func::CeilInt => number(f, a, b),
        Func::DateTrunc => date_trunc(a, b, env.zone()),
        Func::CurrentSetting => current_setting(a, b, env),
        // The server has already replaced the calls in which it sleeps.
        Func::PgSleep => Err(SqlError::unsupported("pg_sleep in this place")
            .hint("Call it in the select list of a query without FROM.")),
        Func::PgCancelBackend => signal(Signal::Cancel, a, env),
        Func::PgTerminateBackend => {
            check_timeout(b).and_then(|()| signal(Signal::Terminate, a, env))
        }
        _ => text(f, a, b, c),
    }
}

fn concat<'a>(args: &'a [Expr], row: RowView<'a>, env: &'a Env) -> SqlResult<Value<'a>> {
    let mut all = String::new();
    for arg in args {
        let v = arg.eval_ref(row, env)?;
        match v.as_ref() {
            DatumRef::Text(s) => all.push_str(s),
            other => all += &to_text(SqlType::Text, other, env.zone()),
        }
        check_length(all.len())?;
    }
    Ok(Value::text(all))
}

fn extreme<'a>(
    args: &'a [Expr],
    wanted: Ordering,
    row: RowView<'a>,
    env: &'a Env,
) -> SqlResult<Value<'a>> {
    let mut best = Value::NULL;
    for arg in args {
        let v = arg.eval_ref(row, env)?;
        if !v.is_null() && (best.is_null() || compare(v.as_ref(), best.as_ref()) == wanted) {
            best = v;
        }
    }
    Ok(best)
}

/// Returns a number in [0, 1). It depends on the execution's seed, the call's position in the
/// statement (its first argument), and the row or, with a second argument, [`Env::draws`].
fn random(args: &[Expr], row: RowView<'_>, env: &Env) -> SqlResult<f64> {
    let place = match args.first() {
        Some(arg) => arg.eval(row, env)?.as_i64().unwrap_or(0),
        None => 0,
    };
    let which = match args.len() {
        0 | 1 => hash::stable_hash(row.bytes()),
        _ => env.draws.next(),
    };
    let mut bytes = [0u8; 24];
    bytes[..8].copy_from_slice(&env.seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.to_le_bytes());
    bytes[16..].copy_from_slice(&which.to_le_bytes());
    Ok((hash::stable_hash(&bytes) >> 11) as f64 / (1u64 << 53) as f64)
}

fn of_session<'a>(f: Func, env: &'a Env) -> Option<Value<'a>> {
    let session = env.session.as_deref();
    let name = |get: fn(&SessionEnv) -> &str| Value::Ref(DatumRef::Text(session.map_or("", get)));
    Some(match f {
        Func::Now => Value::Ref(DatumRef::Timestamptz(env.now)),
        Func::StatementNow => Value::Ref(DatumRef::Timestamptz(env.statement_now)),
        Func::Version => Value::Ref(DatumRef::Text(VERSION)),
        Func::CurrentUser => name(|s| &s.user),
        Func::CurrentDatabase => name(|s| &s.database),
        Func::CurrentSchema => match session.map_or(Some(PUBLIC), |s| s.path.first()) {
            Some(schema) => Value::Ref(DatumRef::Text(schema)),
            None => Value::NULL,
        },
        Func::PgBackendPid => Value::Ref(DatumRef::Int4(session.map_or(0, |s| s.pid))),
        _ => return None,
    })
}

/// Rejects the timeout of pg_terminate_backend: an expression cannot wait. The server has already
/// replaced the calls for which it can wait.
fn check_timeout(timeout: DatumRef<'_>) -> SqlResult<()> {
    match timeout {
        DatumRef::Int8(ms) if ms < 0 => {
            Err(SqlError::new(SqlState::OUT_OF_RANGE, "\"timeout\" must not be negative"))
        }
        DatumRef::Int8(ms) if ms > 0 => {
            Err(SqlError::unsupported("pg_terminate_backend with a timeout in this place")
                .hint("Call it in the select list of a query without FROM."))
        }
        _ => Ok(()),
    }
}

/// Signals a session; returns whether it exists. A session that signals itself fails immediately,
/// without completing its statement.
fn signal<'a>(signal: Signal, pid: DatumRef<'_>, env: &'a Env) -> SqlResult<Value<'a>> {
    let (DatumRef::Int4(pid), Some(session)) = (pid, env.session.as_deref()) else {
        return Ok(Value::NULL);
    };
    if pid == session.pid {
        return Err(signal.error());
    }
    env.acted.set();
    let signalled = session.backends.as_ref().is_some_and(|backends| backends.signal(pid, signal));
    Ok(Value::Ref(DatumRef::Bool(signalled)))
}

fn current_setting<'a>(
    name: DatumRef<'_>,
    missing_ok: DatumRef<'_>,
    env: &'a Env,
) -> SqlResult<Value<'a>> {
    let DatumRef::Text(name) = name else { return Ok(Value::NULL) };
    let found = env
        .session
        .as_deref()
        .and_then(|s| s.settings.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)));
    match found {
        Some((_, v)) => Ok(Value::Ref(DatumRef::Text(v))),
        None if missing_ok == DatumRef::Bool(true) => Ok(Value::NULL),
        None => Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    }
}

fn number<'a>(f: Func, v: DatumRef<'_>, places: DatumRef<'_>) -> SqlResult<Value<'a>> {
    use DatumRef as D;
    Ok(match (f, v) {
        (Func::Abs, D::Int2(x)) if x < 0 => return negate(v),
        (Func::Abs, D::Int4(x)) if x < 0 => return negate(v),
        (Func::Abs, D::Int8(x)) if x < 0 => return negate(v),
        (Func::Abs, D::Float8(x)) => Value::Ref(D::Float8(x.abs())),
        (Func::Abs, D::Numeric(x)) => Value::Ref(D::Numeric(x.abs())),
        (Func::Round, D::Float8(x)) => Value::Ref(D::Float8(x.round_ties_even())),
        (Func::Floor, D::Float8(x)) => Value::Ref(D::Float8(x.floor())),
        (Func::Ceil, D::Float8(x)) => Value::Ref(D::Float8(x.ceil())),
        (Func::Floor, D::Numeric(x)) => Value::Ref(D::Numeric(decimal::floor(x)?)),
        (Func::Ceil, D::Numeric(x)) => Value::Ref(D::Numeric(decimal::ceil(x)?)),
        (Func::Round, D::Numeric(x)) => Value::Ref(D::Numeric(decimal::round(x, integer(places))?)),
        (Func::ExactInt, D::Numeric(x)) => {
            match x.fract().is_zero().then(|| x.to_i64()).flatten() {
                Some(v) => Value::Ref(D::Int8(v)),
                None => Value::NULL,
            }
        }
        (Func::ExactInt, D::Float8(x)) => {
            match (-9.2e18..9.2e18).contains(&x) && x.fract() == 0.0 {
                true => Value::Ref(D::Int8(x as i64)),
                false => Value::NULL,
            }
        }
        (Func::FloorInt, D::Numeric(x)) => Value::Ref(D::Int8(clamped(x.floor()))),
        (Func::CeilInt, D::Numeric(x)) => Value::Ref(D::Int8(clamped(x.ceil()))),
        // A float8 beyond 2^53 equals several bigints after their conversion: widen the range on
        // both sides.
        (Func::FloorInt, D::Float8(x)) => Value::Ref(D::Int8(widened(x.floor(), false))),
        (Func::CeilInt, D::Float8(x)) => Value::Ref(D::Int8(widened(x.ceil(), true))),
        _ => owned(v),
    })
}

fn clamped(v: Decimal) -> i64 {
    v.to_i64().unwrap_or(if v.is_sign_negative() { i64::MIN } else { i64::MAX })
}

fn widened(v: f64, up: bool) -> i64 {
    if v.is_nan() {
        return if up { i64::MAX } else { i64::MIN };
    }
    let near = v as i64;
    let room = if v.abs() < 9_007_199_254_740_992.0 { 0 } else { 2048 };
    if up { near.saturating_add(room) } else { near.saturating_sub(room) }
}

fn integer(v: DatumRef<'_>) -> i64 {
    v.to_owned().as_i64().unwrap_or(0)
}

fn text<'a>(f: Func, a: DatumRef<'_>, b: DatumRef<'_>, c: DatumRef<'_>) -> SqlResult<Value<'a>> {
    let DatumRef::Text(s) = a else {
        return Err(SqlError::internal("a string function on a value that is not text"));
    };
    let other = if let DatumRef::Text(t) = b { t } else { "" };
    Ok(match f {
        Func::Lower => Value::text(s.to_lowercase()),
        Func::Upper => Value::text(s.to_uppercase()),
        Func::Length => Value::Ref(DatumRef::Int4(s.chars().count() as i32)),
        Func::Md5 => Value::text(md5_hex(s.as_bytes())),
        Func::Repeat => {
            let times = integer(b).max(0) as usize;
            check_length(s.len().saturating_mul(times))?;
            Value::text(s.repeat(times))
        }
        Func::Pad => {
            let missing = (integer(b) as usize).saturating_sub(s.chars().count());
            Value::text(s.to_owned() + &" ".repeat(missing))
        }
        Func::Left | Func::Right => Value::text(side(s, integer(b), f == Func::Right)),
        Func::Position => Value::Ref(DatumRef::Int4(
            s.find(other).map_or(0, |i| s[..i].chars().count() as i32 + 1),
        )),
        Func::Replace => match c {
            DatumRef::Text(to) if !other.is_empty() => {
                if to.len() > other.len() {
                    let more = s.matches(other).count().saturating_mul(to.len() - other.len());
                    check_length(s.len().saturating_add(more))?;
                }
                Value::text(s.replace(other, to))
            }
            _ => Value::text(s),
        },
        Func::Trim => Value::text(trim(s, other, integer(c))),
        Func::Substring => {
            Value::text(substring(s, integer(b), (!c.is_null()).then(|| integer(c)))?)
        }
        _ => return Err(SqlError::internal("a function without an implementation")),
    })
}

/// Removes these characters from the start (side 1), the end (2) or both (0).
fn trim<'s>(s: &'s str, characters: &str, side: i64) -> &'s str {
    let mut sorted: Vec<char> = characters.chars().collect();
    sorted.sort_unstable();
    let cut = |c: char| sorted.binary_search(&c).is_ok();
    match side {
        1 => s.trim_start_matches(cut),
        2 => s.trim_end_matches(cut),
        _ => s.trim_matches(cut),
    }
}

/// `left` and `right`: a negative count -n means all but n characters.
fn side(s: &str, n: i64, right: bool) -> &str {
    let have = s.chars().count() as i64;
    let keep = if n < 0 { (have + n).max(0) } else { n.min(have) };
    let cut = if right { have - keep } else { keep };
    let at = s.char_indices().nth(cut as usize).map_or(s.len(), |(i, _)| i);
    if right { &s[at..] } else { &s[..at] }
}

fn substring(s: &str, from: i64, len: Option<i64>) -> SqlResult<&str> {
    let end = match len {
        Some(n) if n < 0 => {
            return Err(SqlError::new(
                SqlState(*b"22011"),
                "negative substring length not allowed",
            ));
        }
        Some(n) => from.checked_add(n).ok_or_else(|| out_of_range("integer"))?,
        None => i64::MAX,
    };
    let at = |n: i64| s.char_indices().nth((n.max(1) - 1) as usize).map_or(s.len(), |(i, _)| i);
    let (start, end) = (at(from), at(end));
    Ok(if start < end { &s[start..end] } else { "" })
}
