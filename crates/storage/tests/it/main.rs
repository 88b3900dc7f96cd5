//! Trees, log and recovery together, from outside, on an in-memory disk.

mod additions;
mod additions_model;
mod backup;
mod backup_faults;
mod check;
mod common;
mod concurrent;
mod crash;
mod directory;
mod engines;
mod faults;
mod full;
mod full_log;
mod long;
mod long_rows;
mod nonsense;
mod row_number;
mod tree_model;
mod upgrade;
