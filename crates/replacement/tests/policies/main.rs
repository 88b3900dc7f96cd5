//! Tests of the replacement policies: against models of the same papers, against known figures, and
//! of their invariants.
//!
//! A policy that is added to [`clearway_replacement::PolicyKind`] needs a model in `models/`, which
//! `models::build` must return. All other tests here run over all policies. Known results on the
//! literature's traces belong in `clearway_traces::FIGURES`.

mod arbiter;
mod cache;
mod differential;
mod figures;
mod models;
