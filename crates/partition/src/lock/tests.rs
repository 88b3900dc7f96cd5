//! The lock table against a model that keeps lists and compares all with all.
//!
//! The model does not say who is to be granted what, but what must be true of it: the invariants of
//! the module, that edges are true, and that every deadlock is found.

mod model;
mod rules;
