//! Operator trees as data: what the planner makes, the coordinator routes, and partitions execute.
//!
//! A plan refers to the catalog by `Arc`s of immutable definitions and by ids; it never holds a lock, a page or a session.
//! Must not know: SQL text, storage, threads.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod expr;
pub mod program;
pub mod statement;

pub use catalog::{Catalog, Column, Distribution, IndexDef, TableDef};
pub use expr::Expr;
pub use program::{Access, Path, Program};
pub use statement::{OutColumn, Plan, Statement};
