//! Compares dispatch by baton with pinned partitions under the same load. With a baton, a worker
//! that finds a partition free runs its own fragment. Pinned, each partition belongs to one worker,
//! and fragments are sent to it.

use crate::compare::{Contender, compare, seeds};
use crate::experiment::{Experiment, Task};
use crate::pgbench::{cases, clearway, configuration, samples};
use crate::published;
use crate::result::Findings;
use crate::rival::Sizes;
use clearway_harness::Res;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "baton",
    about: "partitions run by the worker that holds the baton, against partitions pinned to workers",
    question: "Should the worker that finds a partition free run it (baton), or should one fixed worker run it for all others (pinned)?",
    source: "Our own question (docs/decisions/baton.md, which names the commit and machine of the published ratios). H-Store pins partitions to threads. In flat combining (Hendler et al., SPAA 2010, doi:10.1145/1810479.1810540) and BP-Wrapper's TryLock (Ding et al., ICDE 2009, doi:10.1109/ICDE.2009.96) the lock holder does the work of the waiters.",
    source_found: "The baton is faster if workers can sleep, and equal if both always have work.",
    bars: &[],
    run,
};

/// Page that publishes the baton's throughput over the pinned one's.
const PAGE: &str = include_str!("../../../docs/decisions/baton.md");

fn run(task: &Task) -> Res<Findings> {
    let (sizes, mut contenders) = (Sizes::of(task), Vec::new());
    for dispatch in ["baton", "pinned"] {
        let kind = clearway(task, &sizes, &["--dispatch", dispatch])?;
        contenders.push(Contender::start(dispatch, &kind, sizes.scale)?);
    }
    let comparison = compare(EXPERIMENT.name, &mut contenders, &cases(&task.part), task)?;
    let published = published::ratios(PAGE);
    Ok(Findings {
        configuration: configuration(task, &sizes),
        seeds: seeds(task),
        samples: samples(&comparison),
        tables: vec![
            comparison.table("Medians, and the baton's rate over the pinned one's", &published),
        ],
        found: comparison.summary().into_iter().collect(),
        agreement: comparison.agreement(&published),
        bars: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Part;
    use clearway_harness::pgbench::Run;

    #[test]
    fn published_cases_are_measured() {
        let names: Vec<String> = cases(&Part::Whole).iter().map(Run::name).collect();
        let published = published::ratios(PAGE);
        assert!(!published.is_empty() && published.iter().all(|(case, _)| names.contains(case)));
    }
}
