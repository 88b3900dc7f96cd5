//! BP-Wrapper's evaluation on this engine: its figures and tables, measured on this machine and
//! simulated on the source's machines.

mod bare;
mod claims;
mod fig8;
pub mod grid;
mod judge;
pub mod point;
mod ratios;
pub mod real;
mod scaling;
mod sensitivity;
mod source;
mod systems;
mod tables;
mod tuning;
pub mod workload;

use crate::experiment::Experiment;
use clearway_replacement::PolicyKind;
use scaling::Figure;
use systems::{How, POLICY, Shared};

const SOURCE: &str = "Ding, Jiang, Zhang: BP-Wrapper: a system framework making any replacement algorithms (almost) lock contention free, ICDE 2009, doi:10.1109/ICDE.2009.96. PostgreSQL 8.2.3 on an Altix 350 with 16 processors and a PowerEdge 1900 with 8 cores.";

/// The limit of what is measured.
const MEASURED: &str = "Measured: no more threads run at once than this machine has cores. The latch yields its core up to 20 times before it sleeps, and a wait that only yields does not count among those that sleep.";
/// How bars count waits in figures 6 and 7.
const ADDED_UP: &str =
    "Bars that count waits add up the repetitions; the tables have their medians.";
/// The limit of what is simulated.
const SIMULATED: &str = "Simulated: the simulation knows of a workload only which pages it accesses, and has no coherence traffic except the policy's own lines, no log and no I/O. The costs are our estimates: the source gives none.";
/// What follows for the simulated clock.
const CLOCK: &str =
    "The simulated clock's linear scaling is built in: nothing that it does conflicts.";

/// Figure 2.
pub const FIG2: Experiment = Experiment {
    name: "bp-wrapper/fig2",
    about: "time to acquire and hold the policy's latch, per access, with batches of 1 to 64",
    question: "How much less time per access does the policy's latch take if it is acquired once for many accesses?",
    source: SOURCE,
    source_found: "On DBT-1 with 16 processors the time to acquire and hold the lock falls monotonically from batches of 1 to 64, on logarithmic axes (figure 2; no numbers).",
    limits: &[
        "The source's curve has no numbers, so only its direction is judged. Measured, no more threads run at once than this machine has cores; the rest of a wait is probably time without a core.",
    ],
    bars: &claims::FIG2,
    run: tuning::fig2,
};

/// Figure 6.
pub const FIG6: Experiment = Experiment {
    name: "bp-wrapper/fig6",
    about: "2Q shared in five ways and by our default, on three workloads: measured here, simulated on 1 to 16 processors",
    question: "Does an advanced replacement policy scale like the clock, which takes no lock on a hit, if threads share it through queues of their own?",
    source: SOURCE,
    source_found: "Altix 350: pgClock scales. pg2Q saturates at 4 to 8 processors; at 16 it reaches 61.1 % (DBT-1), 56.5 % (DBT-2) and 66.5 % (TableScan) against it. Prefetching reduces contention by 82.4 % with 2 processors and 38.6 % with 16. Batching reduces it by a factor of 127 to more than 9,000, to at most 400 per million accesses, and reaches pgClock's throughput.",
    limits: &[
        MEASURED,
        ADDED_UP,
        SIMULATED,
        CLOCK,
        "The source gives 30.1, 51.5 and 32.6 % for 8 processors as the throughput of the PowerEdge's pg2Q in shares of the Altix's pgClock. These do not fit its shares for 16 processors, so here they are read as the throughput of the Altix's own pg2Q in shares of its pgClock.",
    ],
    bars: &judge::FIG6,
    run: |task| {
        let (name, source, systems) = ("bp-wrapper/fig6", &source::ALTIX, &Shared::all(POLICY)[..]);
        scaling::run(&Figure { name, source, systems, bars: &judge::FIG6 }, task)
    },
};

/// Figure 7.
pub const FIG7: Experiment = Experiment {
    name: "bp-wrapper/fig7",
    about: "figure 6 on the source's other machine, with 8 cores, and with LIRS and MQ instead of 2Q",
    question: "Do the results hold on a machine with multi-core processors, and with other policies?",
    source: SOURCE,
    source_found: "PowerEdge 1900: contention is worse than on the Altix, since its processors' prefetchers speed up everything except the lists. With 8 cores pg2Q reaches 37.9 % (DBT-1), 52.1 % (DBT-2) and 57.2 % (TableScan) against pgClock. It has 74.4, 18.5 and 270.2 % of the Altix's contention. LIRS and MQ behave like 2Q.",
    limits: &[
        MEASURED,
        ADDED_UP,
        SIMULATED,
        CLOCK,
        "The source says that contention is worse than on the Altix, and gives 74.4, 18.5 and 270.2 % \"of\" the Altix's, of which two are less. So the table also has them as \"above\".",
        "The simulation charges every policy the same for a hit, so LIRS and MQ have the simulated numbers of 2Q.",
    ],
    bars: &judge::FIG7,
    run: |task| {
        let policies = [POLICY, PolicyKind::Lirs, PolicyKind::Mq];
        // The clock does not depend on the policy.
        let clock = |shared: &Shared| shared.how == How::Clock && shared.policy != POLICY;
        let systems: Vec<Shared> =
            policies.into_iter().flat_map(Shared::all).filter(|shared| !clock(shared)).collect();
        let (name, source, systems) = ("bp-wrapper/fig7", &source::POWER_EDGE, &systems[..]);
        scaling::run(&Figure { name, source, systems, bars: &judge::FIG7 }, task)
    },
};

/// Figure 8.
pub const FIG8: Experiment = Experiment {
    name: "bp-wrapper/fig8",
    about: "hit ratio and throughput by pool size, with direct I/O and data six times the largest pool",
    question: "What is an advanced policy worth if pages must be read, and does batching cost hits?",
    source: SOURCE,
    source_found: "8 processors, pools of 32 MB to 1 GB, data of 6.8 and 5.6 GB. With a small pool pg2Q and pgBat-Pre beat pgClock by their hit ratio. With 1 GB pg2Q falls below pgClock, and pgBat-Pre does not. The hit ratios of pg2Q and pgBat-Pre coincide (figure 8; no numbers).",
    limits: &[
        "The largest pool is a sixth of the accessed pages, so that most of the data must be read. The source's is a 6.8th and a 5.6th of the data, of which transactions access an unknown part.",
        "The source has eight processors. On fewer cores fewer threads are at the latch at once.",
    ],
    bars: &fig8::BARS,
    run: fig8::run,
};

/// Table II.
pub const TABLE2: Experiment = Experiment {
    name: "bp-wrapper/table2",
    about: "queues of 2 to 64 hits, committed from half of that on: throughput and contention",
    question: "How long must a thread's queue be?",
    source: SOURCE,
    source_found: "With 16 processors contention falls by a factor of 477, 32 and 130 from S = 2 to S = 8 (DBT-1, DBT-2, TableScan). It falls further beyond 8, where throughput hardly gains. S = 2 beats prefetching (table II; the translation has no further numbers).",
    limits: &[MEASURED, SIMULATED],
    bars: &claims::TABLE2,
    run: |task| tuning::run(&tuning::TABLE2, task),
};

/// Table III.
pub const TABLE3: Experiment = Experiment {
    name: "bp-wrapper/table3",
    about: "queues of 64 hits, committed from the 1st to the 64th on: throughput and contention",
    question: "After how many hits should a thread try the lock?",
    source: SOURCE,
    source_found: "With 16 processors and S = 64 contention falls until T = 32 and then rises, sharply at T = S, where the wait follows the only try. Throughput then falls (table III; the translation has no numbers).",
    limits: &[MEASURED, SIMULATED],
    bars: &claims::TABLE3,
    run: |task| tuning::run(&tuning::TABLE3, task),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Options, Part, Task};
    use crate::result::Record;

    fn quick(experiment: &Experiment) -> Record {
        let options =
            Options { quick: true, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        Record::make(experiment, &Task { options, part: Part::Whole }).unwrap()
    }

    #[test]
    fn fig6_measures_and_simulates_every_system() {
        let record = quick(&FIG6);
        assert_eq!(record.findings.bars.len(), judge::FIG6.len());
        for table in &record.findings.tables[2..] {
            assert_eq!(table.rows.len(), Shared::all(POLICY).len(), "{table}");
        }
    }

    #[test]
    fn fig7_includes_lirs_and_mq() {
        let record = quick(&FIG7);
        let judged: Vec<&str> = record.findings.bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(judged, judge::FIG7);
        let systems: Vec<String> =
            record.findings.tables[2].rows.iter().map(|row| row[0].to_string()).collect();
        let expected = ["2q", "lirs", "mq"].into_iter().flat_map(|policy| {
            let hows = ["locked", "prefetched", "batched", "batched-prefetched", "combining"];
            hows.map(|how| format!("{policy}/{how}"))
        });
        let expected: Vec<String> =
            std::iter::once("clock-sweep".to_owned()).chain(expected).collect();
        assert_eq!(systems, expected);
    }

    #[test]
    fn fig8_varies_the_pool_size() {
        let record = quick(&FIG8);
        assert_eq!(record.findings.bars.len(), FIG8.bars.len());
        // One for each workload, and where the cores were, if there are several.
        assert!(record.findings.tables.len() == 4 && record.findings.found.len() >= 2);
        let hits = &record.findings.samples[0];
        assert!(
            hits.series.iter().all(|s| s.points.len() == 2 && s.points[1].y[0].is_finite()),
            "{hits:?}"
        );
    }

    #[test]
    fn size_tables_have_a_column_per_size() {
        for (experiment, places) in [(FIG2, 7), (TABLE2, 6), (TABLE3, 7)] {
            let record = quick(&experiment);
            assert_eq!(record.findings.tables[0].columns.len(), 1 + places, "{}", experiment.name);
            assert!(!record.findings.found.is_empty() && !record.findings.agreement.is_empty());
            assert_eq!(record.findings.seeds, scaling::SEEDS);
            let alone = record.findings.samples.iter().find(|samples| {
                samples.title.starts_with("2Q, prefetching alone, measured here with 8 threads: ")
            });
            let runs = alone.map(|samples| samples.series.len());
            assert_eq!(runs, (experiment.name == TABLE2.name).then_some(3), "{}", experiment.name);
            let simulated = record.findings.samples.iter().flat_map(|samples| &samples.series);
            let seeds = simulated.flat_map(|series| &series.points).map(|point| point.y.len());
            assert_eq!(seeds.max(), Some(scaling::SEEDS.len()), "{}", experiment.name);
            let judged: Vec<&str> =
                record.findings.bars.iter().map(|bar| bar.name.as_str()).collect();
            assert_eq!(judged, experiment.bars);
        }
    }
}
