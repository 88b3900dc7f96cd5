//! Turns SQL text and a catalog snapshot into a plan.
//!
//! [`parse`] splits and parses the text. [`plan()`] binds one statement against a [`Catalog`]: it
//! resolves names, infers types as PostgreSQL does, and chooses the access path and the route.
//! [`normalize()`] and [`PlanCache`] let the simple protocol reuse plans.
//!
//! Everything here is a pure function of its arguments. Must not know: sessions, running
//! partitions, storage, the wire.

#![forbid(unsafe_code)]

mod access;
mod adapt;
mod backup;
mod bind;
mod cache;
mod checks;
mod coerce;
mod copy;
mod create;
mod cursor;
mod cursors;
mod ddl;
mod dialect;
mod dml;
mod error;
mod explain;
mod from;
mod funcs;
mod lexical;
mod literal;
mod locking;
mod normalize;
mod operators;
mod ops;
mod options;
mod parse;
mod position;
mod query;
mod relation;
mod scope;
mod select;
mod statement;
mod system;
mod tree;
mod types;
mod utility;

pub use cache::PlanCache;
pub use coerce::assignable as is_assignable;
pub use normalize::{Normalized, normalize, normalize_into};
pub use parse::{ParsedStatement, parse};

use clearway_ir::{Catalog, Plan, SessionEnv};
use clearway_types::{SqlResult, SqlType};

/// Plans one statement. `param_types` are the types that the client declared, or
/// [`SqlType::Unknown`] to infer them. The plan's `params` has the final types, and may be longer.
/// The plan depends on `session` only through the search path: sessions with the same path may
/// share it.
pub fn plan(
    stmt: &ParsedStatement,
    catalog: &Catalog,
    param_types: &[SqlType],
    session: &SessionEnv,
) -> SqlResult<Plan> {
    statement::plan(stmt, catalog, param_types, &session.path)
}

/// Like [`plan()`], for the statement inside a PREPARE or DECLARE.
pub fn plan_inner(
    stmt: &ParsedStatement,
    catalog: &Catalog,
    param_types: &[SqlType],
    session: &SessionEnv,
) -> SqlResult<Plan> {
    statement::plan_inner(stmt, catalog, param_types, &session.path)
}
