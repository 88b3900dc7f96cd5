//! Tests the lock table against a model that keeps lists and compares everything with everything.
//!
//! The model does not predict the grants. It checks what must hold for them: the module's
//! invariants, correct edges, and detection of every deadlock.

mod large;
mod model;
mod rules;
