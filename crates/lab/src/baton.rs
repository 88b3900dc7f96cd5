//! The baton against pinned partitions: the same load where whoever finds a partition free runs its
//! own fragment, and where each partition belongs to one worker and fragments travel to it.

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
    about: "partitions run by whoever holds the baton, against partitions pinned to workers",
    question: "Should a partition be run by whoever finds it free (the baton), or by one worker that the others send their work to (pinned)?",
    source: "Our own question (docs/decisions/baton.md, which names the commit and machine of the published ratios). H-Store pins partitions to threads; flat combining (Hendler and others, SPAA 2010) and BP-Wrapper's TryLock (Ding and others, ICDE 2009) let whoever holds a lock do the work of those who would wait.",
    source_found: "The baton is ahead wherever a worker may sleep, and level where both always have work.",
    bars: &[],
    run,
};

/// The baton's rate over the pinned one's was published here.
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
    fn what_was_published_is_measured() {
        let names: Vec<String> = cases(&Part::Whole).iter().map(Run::name).collect();
        let published = published::ratios(PAGE);
        assert!(!published.is_empty() && published.iter().all(|(case, _)| names.contains(case)));
    }
}
