//! Scalar expressions, typed by the planner.

use clearway_types::{Datum, SqlResult, SqlType};
use serde::{Deserialize, Serialize};

/// A scalar expression. The planner has resolved names, inserted casts and checked types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// A constant.
    Literal(Datum),
    /// Parameter `n` of the statement, from 0, already converted to the type that the planner
    /// chose.
    Param(usize),
    /// Column `n` of the input row.
    Column(usize),
    /// NOT or unary minus.
    Unary(UnaryOp, Box<Expr>),
    /// A binary operator; both operands already have the operator's input type.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A conversion by PostgreSQL's rules. To `char(n)` or `varchar(n)` it checks the length, or
    /// truncates if `explicit`.
    Cast {
        /// The operand.
        expr: Box<Expr>,
        /// The target type.
        to: SqlType,
        /// Whether the user wrote the cast; an assignment cast is implicit.
        explicit: bool,
    },
    /// IS NULL.
    IsNull(Box<Expr>),
    /// `expr IN (list)`, with three-valued logic.
    InList(Box<Expr>, Vec<Expr>),
    /// LIKE, or ILIKE if `insensitive`.
    Like {
        /// The string.
        expr: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// Whether it is ILIKE.
        insensitive: bool,
    },
    /// CASE WHEN ... THEN ... ELSE ... END.
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// CASE operand WHEN ... THEN ... ELSE ... END. The operand is evaluated once.
    Switch {
        /// The operand.
        operand: Box<Expr>,
        /// The first arm whose value equals the operand gives the result.
        arms: Vec<SwitchArm>,
        /// The result without such an arm; `None`: NULL.
        otherwise: Option<Box<Expr>>,
    },
    /// A function call.
    Func(Func, Vec<Expr>),
}

/// WHEN ... THEN ... of a CASE with an operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchArm {
    /// The type that the operand is converted to (implicitly) for the comparison, if not its own.
    pub to: Option<SqlType>,
    /// The value to compare with.
    pub value: Expr,
    /// The result.
    pub then: Expr,
}

impl Expr {
    /// Returns true if the expression has the same value at every evaluation within one execution,
    /// without a row, and no evaluation has an effect.
    pub fn is_constant(&self) -> bool {
        let changes =
            |f: &Func| matches!(f, Func::Random | Func::PgCancelBackend | Func::PgTerminateBackend);
        !self.any(&mut |e| match e {
            Self::Column(_) => true,
            Self::Func(f, _) => changes(f),
            _ => false,
        })
    }

    /// Returns true if `is` holds for the expression or any of its descendants.
    pub fn any(&self, is: &mut dyn FnMut(&Self) -> bool) -> bool {
        if is(self) {
            return true;
        }
        match self {
            Self::Literal(_) | Self::Param(_) | Self::Column(_) => false,
            Self::Unary(_, a) | Self::IsNull(a) | Self::Cast { expr: a, .. } => a.any(is),
            Self::Binary(_, a, b) | Self::Like { expr: a, pattern: b, .. } => {
                a.any(is) || b.any(is)
            }
            Self::InList(a, list) => a.any(is) || list.iter().any(|e| e.any(is)),
            Self::Case(arms, last) => {
                arms.iter().any(|(when, then)| when.any(is) || then.any(is))
                    || last.as_deref().is_some_and(|e| e.any(is))
            }
            Self::Switch { operand, arms, otherwise } => {
                operand.any(is)
                    || arms.iter().any(|arm| arm.value.any(is) || arm.then.any(is))
                    || otherwise.as_deref().is_some_and(|e| e.any(is))
            }
            Self::Func(_, args) => args.iter().any(|e| e.any(is)),
        }
    }

    /// Rebuilds the expression. `change` may replace a node; its children are then not visited.
    pub fn rewrite(
        &self,
        change: &mut dyn FnMut(&Self) -> SqlResult<Option<Self>>,
    ) -> SqlResult<Self> {
        if let Some(new) = change(self)? {
            return Ok(new);
        }
        let mut sub = |e: &Self| e.rewrite(change);
        Ok(match self {
            Self::Literal(_) | Self::Param(_) | Self::Column(_) => self.clone(),
            Self::Unary(op, a) => Self::Unary(*op, Box::new(sub(a)?)),
            Self::IsNull(a) => Self::IsNull(Box::new(sub(a)?)),
            Self::Cast { expr, to, explicit } => {
                Self::Cast { expr: Box::new(sub(expr)?), to: *to, explicit: *explicit }
            }
            Self::Binary(op, a, b) => Self::Binary(*op, Box::new(sub(a)?), Box::new(sub(b)?)),
            Self::Like { expr, pattern, insensitive } => Self::Like {
                expr: Box::new(sub(expr)?),
                pattern: Box::new(sub(pattern)?),
                insensitive: *insensitive,
            },
            Self::InList(a, list) => Self::InList(
                Box::new(sub(a)?),
                list.iter().map(&mut sub).collect::<SqlResult<_>>()?,
            ),
            Self::Case(arms, last) => {
                let arms =
                    arms.iter().map(|(w, t)| Ok((sub(w)?, sub(t)?))).collect::<SqlResult<_>>()?;
                Self::Case(arms, last.as_ref().map(|e| sub(e).map(Box::new)).transpose()?)
            }
            Self::Switch { operand, arms, otherwise } => {
                let operand = Box::new(sub(operand)?);
                let mut arm = |arm: &SwitchArm| -> SqlResult<SwitchArm> {
                    Ok(SwitchArm { to: arm.to, value: sub(&arm.value)?, then: sub(&arm.then)? })
                };
                let arms = arms.iter().map(&mut arm).collect::<SqlResult<_>>()?;
                let otherwise = otherwise.as_ref().map(|e| sub(e).map(Box::new)).transpose()?;
                Self::Switch { operand, arms, otherwise }
            }
            Self::Func(f, args) => {
                Self::Func(*f, args.iter().map(&mut sub).collect::<SqlResult<_>>()?)
            }
        })
    }
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnaryOp {
    /// NOT.
    Not,
    /// Unary minus.
    Neg,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BinaryOp {
    /// AND.
    And,
    /// OR.
    Or,
    /// `=`.
    Eq,
    /// `<>`.
    Ne,
    /// `<`.
    Lt,
    /// `<=`.
    Le,
    /// `>`.
    Gt,
    /// `>=`.
    Ge,
    /// `+`.
    Add,
    /// `-`.
    Sub,
    /// `*`.
    Mul,
    /// `/`.
    Div,
    /// `%`.
    Mod,
    /// String concatenation.
    Concat,
    /// IS NOT DISTINCT FROM.
    NotDistinct,
}

impl BinaryOp {
    /// Returns the operator's SQL spelling.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::And => "AND",
            Self::Or => "OR",
            Self::Eq | Self::NotDistinct => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Concat => "||",
        }
    }
}

/// Functions that need only their arguments and the [`crate::program::Env`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Func {
    /// now(), CURRENT_TIMESTAMP: the transaction's start.
    Now,
    /// abs(number).
    Abs,
    /// lower(text).
    Lower,
    /// upper(text).
    Upper,
    /// length(text), in characters.
    Length,
    /// COALESCE(value, ...): the first value that is not NULL.
    Coalesce,
    /// NULLIF(a, b): NULL if `a` equals `b`, else `a`.
    NullIf,
    /// GREATEST(value, ...); ignores NULLs.
    Greatest,
    /// LEAST(value, ...); ignores NULLs.
    Least,
    /// substring(text, from [, length]), in characters from 1.
    Substring,
    /// trim(text, characters, side); side is 0 for both ends, 1 for leading, 2 for trailing.
    Trim,
    /// concat(value, ...): the text forms of all values; nothing for a NULL.
    Concat,
    /// replace(text, from, to).
    Replace,
    /// round(number [, decimal places]).
    Round,
    /// floor(number).
    Floor,
    /// ceil(number).
    Ceil,
    /// random(); its argument is a constant that distinguishes the calls within a statement. With a
    /// second argument, each evaluation gives another number, also for equal rows.
    Random,
    /// md5(text), in hexadecimal.
    Md5,
    /// repeat(text, times).
    Repeat,
    /// pad(text, n): pads with blanks to n characters, for the output of `char(n)`.
    Pad,
    /// left(text, n).
    Left,
    /// right(text, n).
    Right,
    /// strpos(text, substring).
    Position,
    /// date_trunc(unit, timestamp).
    DateTrunc,
    /// statement_timestamp().
    StatementNow,
    /// version().
    Version,
    /// CURRENT_USER.
    CurrentUser,
    /// current_database().
    CurrentDatabase,
    /// current_schema: the first schema of the search path, or NULL.
    CurrentSchema,
    /// pg_backend_pid().
    PgBackendPid,
    /// pg_cancel_backend(pid).
    PgCancelBackend,
    /// pg_terminate_backend(pid [, timeout in milliseconds]).
    PgTerminateBackend,
    /// current_setting(name [, missing_ok]).
    CurrentSetting,
    /// pg_sleep(seconds): fails, because an expression cannot wait; the server recognises the calls
    /// in which it can wait, and replaces them.
    PgSleep,
    /// For key lookups: converts a numeric or float8 to the integer that equals it, or NULL if
    /// there is none.
    ExactInt,
    /// For key ranges: the largest integer not above the argument, clamped to bigint.
    FloorInt,
    /// For key ranges: the smallest integer not below the argument, clamped to bigint.
    CeilInt,
}
