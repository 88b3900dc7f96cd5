//! The traces and pool sizes of an experiment.

use crate::experiment::{Part, Task};
use clearway_harness::Res;
use clearway_traces::{FIGURES, Known, Trace, generate, load};
use std::rc::Rc;

/// Name of the generated trace with a Zipf distribution.
const ZIPF: &str = "zipf";
/// Trace of an OLTP database, from the ARC paper.
const OLTP: &str = "OLTP";

/// Parameters of the Zipf trace: pages, skew (as in YCSB), accesses, seed and pool size.
const ZIPF_PAGES: u32 = 1_000_000;
const ZIPF_SKEW: f64 = 0.99;
const ZIPF_ACCESSES: usize = 4_000_000;
const ZIPF_SEED: u64 = 1;
const ZIPF_FRAMES: u32 = 50_000;

/// Sizes of a quick run.
const QUICK_ACCESSES: usize = 20_000;
const QUICK_FRAMES: u32 = 200;
/// The published trace that a quick run includes, if it is present.
const QUICK_TRACE: &str = "lirs_cpp";

/// A trace with one pool size.
#[derive(Clone, Debug)]
pub struct Case {
    /// The trace.
    pub trace: Rc<Trace>,
    /// Pool size in frames.
    pub frames: u32,
    /// Published results, by policy name.
    pub known: &'static [(&'static str, Known)],
}

/// The cases of a run.
#[derive(Debug)]
pub struct Cases {
    /// The requested cases whose trace is present.
    pub cases: Vec<Case>,
    /// Names of missing traces.
    pub missing: Vec<&'static str>,
}

impl Case {
    /// Returns the name in tables and for `--only`.
    pub fn name(&self) -> String {
        format!("{} at {}", self.trace.name, self.frames)
    }

    /// Returns true if the report draws the cache throughput of this case.
    pub fn is_raced(&self) -> bool {
        [ZIPF, OLTP].contains(&self.trace.name.as_str())
    }

    /// Returns the published hit ratio of a policy, in percent.
    pub fn published(&self, policy: &str) -> Option<f64> {
        let known = self.known.iter().find(|(name, _)| *name == policy)?.1;
        Some(match known {
            Known::About(percent) | Known::Printed(percent) => percent,
            Known::Misses(misses) => self.trace.hit_percent(misses),
            Known::MissesOfFirst(misses, counted) => (1.0 - misses as f64 / counted as f64) * 100.0,
        })
    }
}

/// Returns the requested cases. An unreadable trace is an error; a missing one is not.
pub fn cases(task: &Task) -> Res<Cases> {
    let mut cases = Cases { cases: Vec::new(), missing: Vec::new() };
    let mut last: Option<Rc<Trace>> = None;
    for figure in FIGURES.iter().filter(|figure| !task.options.quick || figure.trace == QUICK_TRACE)
    {
        let name = figure.trace;
        if cases.missing.contains(&name) {
            continue;
        }
        let known_trace = || {
            cases
                .cases
                .iter()
                .map(|case: &Case| &case.trace)
                .find(|trace| trace.name == name)
                .cloned()
        };
        last = last.filter(|trace| trace.name == name).or_else(known_trace);
        if last.is_none() {
            last = load(name).transpose().map_err(|why| why.to_string())?.map(Rc::new);
        }
        match &last {
            Some(trace) => cases.cases.push(Case {
                trace: trace.clone(),
                frames: figure.frames,
                known: figure.known,
            }),
            None => cases.missing.push(name),
        }
    }
    let drawn = |trace: Trace, frames| Case { trace: Rc::new(trace), frames, known: &[] };
    if task.options.quick {
        let traces = generate::all(QUICK_FRAMES, QUICK_ACCESSES, ZIPF_SEED);
        cases.cases.extend(traces.into_iter().map(|trace| drawn(trace, QUICK_FRAMES)));
    } else {
        let trace = generate::zipf(ZIPF_PAGES, ZIPF_SKEW, ZIPF_ACCESSES, ZIPF_SEED);
        cases.cases.push(drawn(trace, ZIPF_FRAMES));
    }
    // The bars need every case.
    if let Part::Only(text) = &task.part {
        cases.cases.retain(|case| case.name().contains(text.as_str()));
    }
    Ok(cases)
}

/// Describes the generated trace for the record; also returns its seed.
pub fn drawn() -> (String, u64) {
    let what = format!("{ZIPF_ACCESSES} accesses to {ZIPF_PAGES} pages, skew {ZIPF_SKEW}");
    (what, ZIPF_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_results_become_hit_ratios() {
        let trace = Rc::new(Trace::new("t", [1, 1, 1, 2]));
        let case = Case {
            trace,
            frames: 1,
            known: &[("lru", Known::About(33.0)), ("lirs", Known::Misses(2))],
        };
        assert_eq!(
            (case.published("lru"), case.published("lirs"), case.published("2q")),
            (Some(33.0), Some(50.0), None)
        );
        assert_eq!(case.name(), "t at 1");
    }
}
