//! The baton against pinned partitions: the same load where whoever finds a partition free runs its own fragment, and where each
//! partition belongs to one worker and fragments travel to it.

use crate::Options;
use crate::compare::{Contender, compare};
use crate::machine::Machine;
use crate::pgbench::{cases, clearway, conditions};
use crate::report::Report;
use clearway_harness::Res;

/// What it measures.
pub const ABOUT: &str = "partitions run by whoever holds the baton, against partitions pinned to workers";

/// Runs it.
pub fn run(options: &Options) -> Res<Report> {
    let scale = if options.quick { 1 } else { 10 };
    let mut contenders = Vec::new();
    for dispatch in ["baton", "pinned"] {
        let kind = clearway(options, &["--dispatch", dispatch])?;
        contenders.push(Contender::start(dispatch, &kind, scale)?);
    }
    let rows = compare(&mut contenders, &cases(), options)?;
    let configuration = conditions(scale, options);
    let contenders = contenders.into_iter().map(|c| c.name).collect();
    Ok(Report { experiment: "baton", machine: Machine::here(), configuration, contenders, rows, bars: Vec::new() })
}
