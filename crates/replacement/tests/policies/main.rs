//! The replacement policies: against models of the same papers, against the figures that are known,
//! and their invariants.
//!
//! A policy that is added to [`clearway_replacement::PolicyKind`] needs a model in `models/`, which
//! `models::build` names; everything else here runs over all policies. What is known of it on the
//! literature's traces belongs into `clearway_traces::FIGURES`.

mod arbiter;
mod cache;
mod differential;
mod figures;
mod models;
