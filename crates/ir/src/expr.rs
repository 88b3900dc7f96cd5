//! Scalar expressions, typed by the planner.

use clearway_types::{Datum, SqlType};
use serde::{Deserialize, Serialize};

/// A scalar expression. The planner has resolved names, inserted casts and checked types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// A constant.
    Literal(Datum),
    /// Parameter `n` of the statement, from 0, already converted to the type the planner gave it.
    Param(usize),
    /// Column `n` of the input row.
    Column(usize),
    /// NOT, unary minus.
    Unary(UnaryOp, Box<Expr>),
    /// Both sides already have the type that the operator works on.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Conversion with PostgreSQL's rules; to `char(n)`/`varchar(n)` it checks the length
    /// (`explicit`: it truncates).
    Cast {
        /// What is converted.
        expr: Box<Expr>,
        /// To what.
        to: SqlType,
        /// Whether the user wrote the cast; an assignment's is implicit.
        explicit: bool,
    },
    /// IS NULL.
    IsNull(Box<Expr>),
    /// `expr IN (list)`, three-valued.
    InList(Box<Expr>, Vec<Expr>),
    /// LIKE; `insensitive` for ILIKE.
    Like {
        /// The string.
        expr: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// ILIKE.
        insensitive: bool,
    },
    /// CASE WHEN ... THEN ... ELSE ... END; the simple form has been rewritten.
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A call.
    Func(Func, Vec<Expr>),
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnaryOp {
    /// NOT
    Not,
    /// -
    Neg,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum BinaryOp {
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Concat,
    /// IS NOT DISTINCT FROM
    NotDistinct,
}

impl BinaryOp {
    /// How it is written between its operands.
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

/// Functions that need nothing but their arguments and the [`crate::program::Env`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Func {
    /// now(), CURRENT_TIMESTAMP: the transaction's start.
    Now,
    Abs,
    Lower,
    Upper,
    Length,
    Coalesce,
    NullIf,
    Greatest,
    Least,
    Substring,
    /// trim(text, characters, 0 both ends | 1 leading | 2 trailing)
    Trim,
    Replace,
    Round,
    Floor,
    Ceil,
    /// random(); its argument is a constant that tells the calls of a statement apart.
    Random,
    Md5,
    Repeat,
    /// pad(text, n): with blanks to n characters, as a `char(n)` is shown.
    Pad,
    Left,
    Right,
    /// strpos(text, sought)
    Position,
    DateTrunc,
    /// statement_timestamp()
    StatementNow,
    /// version()
    Version,
    CurrentUser,
    CurrentDatabase,
    CurrentSchema,
    PgBackendPid,
    /// pg_cancel_backend(pid)
    PgCancelBackend,
    /// pg_terminate_backend(pid [, timeout in milliseconds])
    PgTerminateBackend,
    /// current_setting(name)
    CurrentSetting,
    /// pg_sleep(seconds): evaluates to the empty text at once; the server recognises it and waits.
    PgSleep,
    /// For key lookups: a numeric or float8 as the integer that equals it, NULL if there is none.
    ExactInt,
    /// For key ranges: the greatest integer not above, held within bigint.
    FloorInt,
    /// For key ranges: the least integer not below, held within bigint.
    CeilInt,
}
