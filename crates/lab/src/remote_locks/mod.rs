//! Row locks over one-sided memory: the source's figures 3 to 5 and table 2, and verbs by phase,
//! simulated.
//!
//! [`systems`] defines the systems compared. [`figure`] measures throughput and aborts against
//! theta, [`sensitivity`] how the judged ratios depend on costs, [`kinds`] the choice of locks,
//! [`tables`] the counts, and [`nodes`] larger clusters. [`measures`] reads values from runs, and
//! [`judge`] holds the bars. Protocols and cluster are those of [`clearway_remote::ycsb`]: the real
//! code in virtual time. [`real`] runs processes.

mod figure;
mod judge;
mod kinds;
mod measures;
mod nodes;
mod process;
mod real;
mod sensitivity;
mod sizes;
mod systems;
mod tables;

use crate::experiment::{Experiment, Task};
use crate::result::Configuration;
use clearway_remote::ycsb::{Costs, Setup, TOLERANCE, Transport};
use clearway_remote::{Mode, Protocol};

const SOURCE: &str = "Li, Zhang, Zhao, Lu, Zhang, Du (Renmin University): two-phase locking over \
     one-sided verbs, Journal of Frontiers of Computer Science and Technology 17(5), pages 1201 to \
     1209: 4 nodes, 8 workers each, ConnectX-5, YCSB, 10 operations a transaction.";

/// Figure 1.
pub const FIG1: Experiment = Experiment {
    name: "remote-locks/fig1",
    about: "fetch 8 bytes to 16 KiB from another thread: READ, message and reply, and TCP",
    question: "How do the transports' throughput and latency depend on the size of what is fetched?",
    source: SOURCE,
    source_found: "Its figure 1 compares the transports by message size on InfiniBand. We do not \
         have its numbers.",
    bars: &[],
    run: sizes::run,
};

/// Figure 3.
pub const FIG3: Experiment = Experiment {
    name: "remote-locks/fig3",
    about: "NO_WAIT, 50 % writes, simulated: one-sided, two-sided and TCP, theta 0 to 0.95",
    question: "How many transactions do the variants of NO_WAIT commit and abort as skew grows?",
    source: SOURCE,
    source_found: "One-sided beats two-sided beats TCP at every theta; M/S is up to 5.3 times TCP, \
         at 0.85. M beats M/S at low conflict; M/S wins above 0.8, where M aborts more than 20 %.",
    bars: &[judge::NO_WAIT_OVER_TCP.name],
    run: |task| figure::run(task, &figure::FIG3),
};

/// Figure 4.
pub const FIG4: Experiment = Experiment {
    name: "remote-locks/fig4",
    about: "NO_WAIT, read-only, simulated: one-sided, two-sided and TCP, theta 0 to 0.95",
    question: "What do mutual locks cost read-only transactions?",
    source: SOURCE,
    source_found: "M/S beats two-sided beats TCP at every theta, and all three are flat without \
         aborts; M collapses, below TCP above 0.9, with more than 40 % aborts.",
    bars: &[judge::ORDER, judge::COLLAPSE],
    run: |task| figure::run(task, &figure::FIG4),
};

/// Figure 5.
pub const FIG5: Experiment = Experiment {
    name: "remote-locks/fig5",
    about: "WAIT_DIE, 50 % writes, simulated: one-sided, two-sided and TCP, theta 0 to 0.95",
    question: "How many transactions do the variants of WAIT_DIE commit and abort as skew grows?",
    source: SOURCE,
    source_found: "One-sided beats two-sided beats TCP at almost every theta; M is up to 10.6 times \
         TCP, at 0.85; M/S is better than M only above 0.9.",
    bars: &[judge::WAIT_DIE_OVER_TCP.name],
    run: |task| figure::run(task, &figure::FIG5),
};

/// Table 2.
pub const TABLE2: Experiment = Experiment {
    name: "remote-locks/table2",
    about: "both kinds of retry, and verbs per wait, simulated, 50 % writes",
    question: "How often is a lock step repeated because the word changed, and how often because \
         the holder is younger?",
    source: SOURCE,
    source_found: "Less than 0.2 atomicity retries a transaction (NO_WAIT, M/S); up to about 12 \
         wait retries (WAIT_DIE, M/S, theta 0.95).",
    bars: &[judge::ATOMICITY_RETRIES, judge::WAIT_RETRIES, judge::VERBS_A_WAIT],
    run: tables::retries,
};

/// Verbs by phase.
pub const VERBS: Experiment = Experiment {
    name: "remote-locks/verbs",
    about: "verbs and rounds per transaction by phase, simulated, theta 0, 50 % writes",
    question: "How many verbs and rounds does a transaction without conflicts need?",
    source: "dbiir/RCBench, 4 nodes: verbs per transaction.",
    source_found: "23.5 verbs per transaction with No-Wait and 30.2 with Wait-Die. Unlock and \
         payload share one WRITE, whose words can land in any order.",
    bars: &[judge::ROUNDS_A_ROW, judge::VERBS],
    run: tables::verbs,
};

/// M or M/S chosen at run time.
pub const KINDS: Experiment = Experiment {
    name: "remote-locks/kinds",
    about: "M or M/S chosen for each read, simulated: shares of writes from 0 to 100 %, theta 0 to \
         0.95",
    question: "Does choosing the lock kind at run time reach the better of M and M/S everywhere?",
    source: SOURCE,
    source_found: "Choosing M or M/S at run time, from aborts and the read fraction, is future \
         work.",
    bars: &[judge::NO_WAIT_ADAPTIVE, judge::WAIT_DIE_ADAPTIVE],
    run: kinds::run,
};

/// More nodes.
pub const NODES: Experiment = Experiment {
    name: "remote-locks/nodes",
    about: "NO_WAIT, 50 % writes, simulated: 4 to 64 nodes, theta 0 and 0.85",
    question: "How do the variants of NO_WAIT scale if each node adds workers and rows?",
    source: SOURCE,
    source_found: "It has only 4 nodes.",
    bars: &[],
    run: nodes::run,
};

/// Processes on this machine.
pub const REAL: Experiment = Experiment {
    name: "remote-locks/real",
    about: "NO_WAIT and WAIT_DIE, 50 % writes, 4 processes: shared memory one-sided and by \
         messages, and TCP",
    question: "How do one-sided verbs on shared memory compare with messages through it and with \
         TCP if all processes share a few cores?",
    source: SOURCE,
    source_found: "One-sided beats two-sided beats TCP: at every theta with NO_WAIT, at almost every \
         theta with WAIT_DIE.",
    bars: &[judge::REAL_ONE_SIDED, judge::REAL_TWO_SIDED, judge::REAL_OVER_TCP],
    run: real::run,
};

fn configuration(task: &Task) -> Configuration {
    let setup = systems::sized(task, Setup::new(Mode::PUBLISHED[0], Transport::OneSided, 0.0, 0.0));
    let settings = [
        (
            "cluster",
            format!(
                "{} nodes, {} workers each, {} transactions in flight per worker, one-sided 1 \
                 running",
                setup.nodes, setup.workers, setup.in_flight
            ),
        ),
        ("rows of a node", setup.rows.to_string()),
        (
            "measurement",
            format!(
                "until two windows of 20 ms, 40 ms, ... agree within {:.0} % and the second \
                 has as many starts as commits, and as many commits as transactions in \
                 flight; without back-off {} \
                 commits after a warm-up",
                TOLERANCE * 100.0,
                setup.commits
            ),
        ),
        ("costs in ns", format!("{:?}", Costs::default())),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn seeds(task: &Task) -> Vec<u64> {
    (1..=u64::from(task.repetitions())).collect()
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NoWait => "NO_WAIT",
        Protocol::WaitDie => "WAIT_DIE",
    }
}
