//! The pool from outside.

mod common;
mod hit_path;
mod pool;
mod stress;
mod torn;
