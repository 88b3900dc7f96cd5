//! Replacement policies on traces of page accesses: their hit ratios, and the throughput of the
//! buffer pool as a cache.
//!
//! [`alone`] replays a trace against a policy. [`race`] runs threads over the pool with a policy
//! ([`cache`]), or over a crate's cache ([`contender`]).

mod alone;
mod cache;
mod cases;
mod contender;
mod judge;
mod measure;
mod race;
mod show;
mod wrapped;

use crate::experiment::{Experiment, Part, Task};
use crate::result::{Configuration, Findings};
use clearway_harness::Res;
use clearway_replacement::ReplacementKind;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "policies/traces",
    about: "hit ratio of every policy on every trace, and the throughput of the pool as a cache, against quick_cache, moka and foyer",
    question: "What hit ratio does each policy reach on published traces, compared with the optimum and with cache crates, and how fast is the pool with them as a cache, with one and two threads?",
    source: "The policies' papers, cited in the source files. Hit ratios from an independent simulator; LIRS miss counts from its authors' program (Jiang, Zhang: LIRS, SIGMETRICS 2002, doi:10.1145/511334.511340); ARC ratios as printed (Megiddo, Modha: ARC, USENIX FAST 2003).",
    source_found: "LIRS misses 5,011 of 15,858 on multi1 at 1,000 pages, where LRU hits 48.23 %; on OLTP at 1,000 pages LRU hits 32.83 %, ARC 38.93 %, S3-FIFO 40.84 % and the optimum 53.61 %.",
    limits: &[
        "A policy alone has all of the capacity. In the pool as a cache some frames are kept free, and several threads report hits, so its hit ratios there differ; most are lower.",
        "The crates choose their own sizes: moka may exceed its capacity between two calls of its housekeeping, and then even the optimum.",
        "As a cache, a page of 8 KiB stands for an entry of a few bytes.",
    ],
    bars: &judge::BARS,
    run,
};

fn run(task: &Task) -> Res<Findings> {
    let cases = cases::cases(task)?;
    let missing = cases.missing;
    let measured = measure::measure(EXPERIMENT.name, cases.cases, task)?;
    let (what, seed) = cases::drawn();
    let mut found = show::found(&measured);
    found.extend(show::as_a_cache(&measured));
    if !missing.is_empty() && !task.options.quick {
        found.push(format!("These traces are not on this machine: {}.", missing.join(", ")));
    }
    Ok(Findings {
        configuration: configuration(task, what),
        seeds: vec![seed],
        samples: show::samples(&measured),
        tables: show::tables(&measured),
        found,
        agreement: show::agreement(&measured),
        bars: if matches!(task.part, Part::Only(_)) { Vec::new() } else { judge::bars(&measured) },
    })
}

fn configuration(task: &Task, zipf: String) -> Configuration {
    let settings = [
        ("zipf", if task.options.quick { "small, like all generated traces".into() } else { zipf }),
        ("default", ReplacementKind::default().to_string()),
        ("cache", "ours: the buffer pool without a disk, an entry is a page of 8 KiB, optimistic reads; keys and values of 8 bytes".into()),
        ("crates", "quick_cache, moka (sync), foyer-memory: defaults, the same hash function, weight 1, capacity in entries".into()),
        ("threads", "each takes the next 32 accesses of the trace; short traces are replayed several times".into()),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Options;
    use crate::result::Record;

    fn quick(part: Part) -> Task {
        let options =
            Options { quick: true, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        Task { options, part }
    }

    #[test]
    fn quick_run_covers_every_policy_and_bar() {
        let record = Record::make(&EXPERIMENT, &quick(Part::Whole)).unwrap();
        let hits = &record.findings.tables[0];
        assert!(hits.rows.len() >= 5 && hits.columns.len() > 4, "{hits}");
        assert!(record.findings.samples.len() >= 2 * hits.rows.len());
        let bars = Record::make(&EXPERIMENT, &quick(Part::Bars)).unwrap();
        assert_eq!(bars.findings.bars.len(), judge::BARS.len());
        let part = Record::make(&EXPERIMENT, &quick(Part::Only("zipf".into()))).unwrap();
        assert_eq!(part.findings.tables[0].rows.len(), 1);
    }
}
