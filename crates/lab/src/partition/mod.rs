//! Schemes of concurrency control, compared as in the source.
//!
//! Results come in three ways, which every table and chart names:
//! (i) the real engine with an injected stall, (ii) the simulated cluster with the recalled costs
//! of the source, and (iii) the simulated cluster with costs measured here.

mod driven;
mod engine;
mod figure;
mod figures;
mod judge;
mod lock_profile;
mod measured;
mod model;
mod real;
mod scale;
mod table1;

use crate::experiment::{Experiment, Task};
use crate::result::Configuration;
use clearway_cluster::ClusterCosts;

const SOURCE: &str = "Jones, Abadi, Madden, \"Low Overhead Concurrency Control for Partitioned Main \
                      Memory Databases\", SIGMOD 2010.";

/// Figure 4.
pub const FIG4: Experiment = Experiment {
    name: "partition/fig4",
    about: "blocking, speculation, locking: 0 to 100 % of transactions at both partitions",
    question: "How does each scheme's throughput fall as more transactions are at both partitions?",
    source: SOURCE,
    source_found: "Locking falls steeply up to 16 % and then linearly. Blocking is never above it. \
                   Speculation is about 10 % above locking up to 50 %, where its coordinator \
                   saturates; it is at best 13 % ahead below, and locking 45 % above.",
    limits: figures::FIG4.limits,
    bars: &[figures::LOCKING_IS_LINEAR, figures::LOCKING_IS_STEEP, figures::SPECULATION_IS_AHEAD],
    run: |task| figure::run(task, &figures::FIG4),
};

/// Figure 5.
pub const FIG5: Experiment = Experiment {
    name: "partition/fig5",
    about: "the same with conflicts: 0 to 100 % of transactions use a shared key",
    question: "Which schemes suffer from conflicts?",
    source: SOURCE,
    source_found: "Blocking and speculation are unchanged. Locking falls with the probability of a \
                   conflict; speculation is 2.5 times locking. Locking is ahead of blocking with \
                   many transactions at both, because each conflicts at one partition only.",
    limits: figures::FIG5.limits,
    bars: &[figures::CONFLICTS_FAVOUR_SPECULATION, figures::LOCKING_PASSES_BLOCKING],
    run: |task| figure::run(task, &figures::FIG5),
};

/// Figure 6.
pub const FIG6: Experiment = Experiment {
    name: "partition/fig6",
    about: "the same with aborts: 0 to 10 % of transactions",
    question: "Which schemes suffer from aborts?",
    source: SOURCE,
    source_found: "Only speculation suffers. It is ahead of locking until 5 % abort, and near \
                   blocking with 10 %. Blocking and locking are slightly faster with 10 % than \
                   without aborts.",
    limits: figures::FIG6.limits,
    bars: &[figures::AHEAD_WITH_3, figures::LEVEL_WITH_5, figures::ABORTS_EQUAL_BLOCKING],
    run: |task| figure::run(task, &figures::FIG6),
};

/// Figure 7.
pub const FIG7: Experiment = Experiment {
    name: "partition/fig7",
    about: "the same with two rounds of fragments",
    question: "Which scheme is best if transactions at both partitions take two rounds?",
    source: SOURCE,
    source_found: "Speculation is hardly better than blocking. Locking is best, except below 4 %.",
    limits: figures::FIG7.limits,
    bars: &[figures::LOCKING_IS_BEST],
    run: |task| figure::run(task, &figures::FIG7),
};

/// Table 1.
pub const TABLE1: Experiment = Experiment {
    name: "partition/table1",
    about: "the best scheme by aborts, conflicts and rounds",
    question: "Which scheme is best in which situation?",
    source: SOURCE,
    source_found: "Speculation for one round with few aborts, locking for many transactions of \
                   several rounds. We do not have the cells of its table.",
    limits: &[
        figures::RECALLED,
        "Aborts are 10 % of the transactions. Conflicts are in all, at one partition. We do not \
         have the cells of the source's table. Its text recommends speculation for one round and \
         few aborts (with conflicts: its figure 5), and locking for many transactions of several \
         rounds.",
        figures::UNCHARGED,
    ],
    bars: &[],
    run: table1::run,
};

/// The number of partitions.
pub const SCALE: Experiment = Experiment {
    name: scale::NAME,
    about: "the schemes with costs measured here, 2 to 64 partitions",
    question: "How do the schemes scale with this engine's costs?",
    source: SOURCE,
    source_found: "The source has two partitions.",
    limits: &[
        "\"Driver (iii)\" is the simulated cluster with costs measured here, of transactions at one \
         partition only. Throughput with transactions at two is predicted.",
        "A message in the network is half of a round trip by TCP over loopback, which probably depends \
         on how deep idle cores sleep: it varied from 6.6 to 29.8 us between two machines.",
        "Under blocking and speculation, one coordinator orders all transactions at two \
         partitions, as in the source, unless sessions coordinate, as in the server. The \
         coordinator's CPU time of a message is half of what a session spends on a statement.",
        figures::UNCHARGED,
    ],
    bars: &[],
    run: scale::run,
};

/// The real engine with a stall.
pub const ENGINE: Experiment = Experiment {
    name: real::NAME,
    about: "the schemes on the real engine with a stall of 0 to 150 us before each decision",
    question: "Are the schemes in the source's order on the real engine?",
    source: SOURCE,
    source_found: "Speculation is about 10 % above locking up to 50 % of transactions at both, and \
                   2.5 times locking with conflicts; beyond, locking is at best 45 % ahead. Blocking is never \
                   above locking without conflicts, and below it with conflicts and many \
                   transactions at both.",
    limits: &[
        "\"Engine (i)\" is the real engine with a stall before each decision. The source has a CPU \
         for each partition and one for the coordinator. Here one thread runs everything, and there \
         is no coordinator that could saturate.",
        "The source's stall is 2.4 times its transaction, as we recall its costs. The stalls here are given in microseconds, \
         so the one whose share of a transaction is nearest to the source's is 20 us.",
    ],
    bars: &[real::ORDERS[0], real::ORDERS[1]],
    run: real::run,
};

/// The share of locks.
pub const LOCK_PROFILE: Experiment = Experiment {
    name: lock_profile::NAME,
    about: "the share of CPU time on locks under locking, 10 % at both partitions",
    question: "How much of the CPU time do locks take?",
    source: SOURCE,
    source_found: "With TPC-C, 34 % of the time is on locks: 12 % in the table, 14 % for acquiring, \
                   6 % for releasing. More than in the micro-benchmark, because TPC-C locks more \
                   in a transaction, has a more complex lock manager, and more conflicts.",
    limits: &[
        "The source profiled TPC-C, which takes more locks, has a more complex lock manager, and \
         waits for locks; this is the micro-benchmark without conflicts.",
        "Shares are lower bounds: allocations and inlined functions count elsewhere. By time, a \
         transaction beside a lock takes longer than these shares say (partition/scale).",
    ],
    bars: &[],
    run: lock_profile::run,
};

fn configuration(task: &Task) -> Configuration {
    let settings = [
        (
            "load",
            "2 partitions, 40 clients with one transaction at a time, 12 rows read and changed, 6 \
             and 6 at both"
                .to_owned(),
        ),
        ("costs in ns", format!("{:?}", ClusterCosts::SOURCE)),
        ("transactions of a run", {
            driven::TRANSACTIONS[usize::from(task.options.quick)].to_string()
        }),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn seeds(task: &Task) -> Vec<u64> {
    (1..=u64::from(task.repetitions())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Options, Part};
    use crate::result::Record;

    fn quick(experiment: &Experiment) -> Record {
        let options =
            Options { quick: true, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        Record::make(experiment, &Task { options, part: Part::Whole }).unwrap()
    }

    #[test]
    fn quick_runs_cover_every_scheme_and_bar() {
        for experiment in [&FIG4, &FIG5, &FIG6, &FIG7] {
            let record = quick(experiment);
            let series = &record.findings.samples[0].series;
            for scheme in driven::schemes() {
                let name = format!("{scheme}, ");
                assert!(series.iter().any(|s| s.name.starts_with(&name)), "{scheme}");
            }
            assert_eq!(record.findings.bars.len(), experiment.bars.len());
            let findings = &record.findings;
            let titles = [&findings.samples[0].title, &findings.tables[0].title];
            assert!(titles.iter().all(|title| title.contains(driven::COSTS)), "{titles:?}");
        }
        let engine = quick(&ENGINE).findings;
        assert_eq!((engine.tables.len(), engine.bars.len()), (8, 2));
        let locks = quick(&LOCK_PROFILE).findings;
        assert_eq!((locks.tables[0].rows.len(), locks.samples[0].series.len()), (4, 3));
        let scale = quick(&SCALE).findings;
        assert_eq!(scale.tables.len(), 6);
        assert!(scale.samples.iter().all(|samples| !samples.series.is_empty()));
        let table = quick(&TABLE1).findings.tables[0].to_string();
        assert!(table.contains("two rounds, aborts, conflicts"), "{table}");
    }

    #[test]
    fn the_source_stall_is_between_a_fragment_and_its_decision() {
        let costs = ClusterCosts::SOURCE;
        let stall = 2 * costs.network + 2 * costs.coordinator + costs.sync;
        assert_eq!(stall as f64, 1e3 * model::Model::SOURCE.stall());
        let rows = |count: u64| count as f64 * (costs.row + costs.undo) as f64 / 1e3;
        let run = costs.run as f64 / 1e3;
        let model = model::Model::SOURCE;
        assert_eq!(run + 12.0 * costs.row as f64 / 1e3, model.single);
        assert_eq!((run + rows(12), run + rows(6)), (model.single_undo, model.multi_cpu));
        assert_eq!(costs.locking as f64, (1e3 * (model.locking - 1.0)).round());
    }
}
