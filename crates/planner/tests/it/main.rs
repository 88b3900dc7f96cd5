//! The planner, text in and plan out, in one binary.

mod cache;
mod common;
mod expressions;
mod plans;
mod statements;
