//! Plans and programs as data: the planner creates them, the coordinator routes them, and
//! partitions execute them.
//!
//! A plan refers to the catalog by ids and by `Arc`s of immutable definitions; it never holds a
//! lock, a page or a session. Must not know: SQL text, storage, threads.

#![forbid(unsafe_code)]

pub mod agg;
mod arith;
mod bounds;
pub mod cast;
pub mod catalog;
pub mod check;
mod decimal;
pub mod eval;
pub mod expr;
mod func;
pub mod global_index;
pub mod increment;
pub mod learned;
mod like;
mod md5;
pub mod memory;
mod operand;
mod plan_text;
pub mod program;
pub mod route;
pub mod search_path;
pub mod show;
pub mod sort;
pub mod statement;
pub mod system;
mod trunc;
pub mod value;

pub use bounds::Bounds;
pub use catalog::{Catalog, Column, Distribution, IndexDef, TableDef};
pub use check::CheckConstraint;
pub use expr::Expr;
pub use func::VERSION;
pub use global_index::{GlobalIndex, GlobalIndexOp, UniqueKey};
pub use learned::{Evidence, LearnedLock, LearnedRow, LearnedSlot};
pub use memory::{Charge, MemoryAccount};
pub use operand::Value;
pub use plan_text::plan_text;
pub use program::{
    Access, Acted, Backends, Draws, Env, LockWait, OnConflict, Path, Program, Requester, RowLock,
    RowLocking, SessionEnv, Signal, StatementText,
};
pub use statement::{OutColumn, Plan, Statement};
pub use value::Zone;
