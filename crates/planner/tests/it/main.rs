//! The planner's tests, text in and plan out, in one binary.

mod additions;
mod cache;
mod checks;
mod common;
mod expressions;
mod params;
mod plans;
mod statements;
