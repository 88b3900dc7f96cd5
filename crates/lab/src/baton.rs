//! The baton against pinned partitions: the same load where whoever finds a partition free runs its own fragment, and where each
//! partition belongs to one worker and fragments travel to it.

use crate::compare::{Contender, compare, seeds};
use crate::experiment::{Experiment, Task};
use crate::pgbench::{cases, clearway, configuration, samples, scale};
use crate::result::Findings;
use clearway_harness::Res;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "baton",
    about: "partitions run by whoever holds the baton, against partitions pinned to workers",
    question: "Should a partition be run by whoever finds it free (the baton), or by one worker that the others send their work to (pinned)?",
    source: "Our own question (docs/decisions/baton.md, commit 15d4e54, two cores of an AMD EPYC). H-Store pins partitions to threads; flat combining (Hendler and others, SPAA 2010) and BP-Wrapper's TryLock (Ding and others, ICDE 2009) let whoever holds a lock do the work of those who would wait.",
    source_found: "The baton is ahead wherever a worker may sleep (1.37 times with one client of select-only), and level where both always have work.",
    bars: &[],
    run,
};

/// The baton's rate over the pinned one's, from docs/decisions/baton.md.
const PUBLISHED: [(&str, f64); 7] = [
    ("select-only -M prepared -c 1", 47_897.0 / 35_077.0),
    ("select-only -M prepared -c 16", 171_325.0 / 141_750.0),
    ("select-only -M prepared -c 100", 175_701.0 / 174_249.0),
    ("simple-update -M prepared -c 1", 4_041.0 / 3_518.0),
    ("simple-update -M prepared -c 16", 20_905.0 / 18_757.0),
    ("tpcb-like -M prepared -c 16", 12_143.0 / 10_767.0),
    ("tpcb-like -M prepared -c 100", 11_338.0 / 11_062.0),
];

fn run(task: &Task) -> Res<Findings> {
    let mut contenders = Vec::new();
    for dispatch in ["baton", "pinned"] {
        let kind = clearway(task, &["--dispatch", dispatch])?;
        contenders.push(Contender::start(dispatch, &kind, scale(task))?);
    }
    let comparison = compare(EXPERIMENT.name, &mut contenders, &cases(&task.part), task)?;
    Ok(Findings {
        configuration: configuration(task),
        seeds: seeds(task),
        samples: samples(&comparison),
        tables: vec![comparison.table("Medians, and the baton's rate over the pinned one's", &PUBLISHED)],
        found: comparison.summary().into_iter().collect(),
        agreement: comparison.agreement(&PUBLISHED),
        bars: Vec::new(),
    })
}
