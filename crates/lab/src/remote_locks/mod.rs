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

/// The limit of simulated runs.
const SIMULATED: &str = "Simulated, with costs that are our estimates. One, the time that a message \
    spends between threads, is calibrated, such that two-sided is 3.2 times TCP at theta 0, as in \
    RCBench.";
/// What we chose where the source is silent.
const OURS: &str = "The source gives a share of transactions that write; here it is a share of rows. \
    The source does not state its number of rows: ours was chosen after a first run had too many \
    aborts, so abort rates are fitted. Transactions in flight and back-off are RCBench's.";
/// The limit of the ratios to TCP.
const IN_FLIGHT: &str = "The ratios to TCP depend on the number of transactions in flight and on \
    the length of a run, of which the source states neither.";

/// Figure 1.
pub const FIG1: Experiment = Experiment {
    name: "remote-locks/fig1",
    about: "fetch 8 bytes to 16 KiB from another thread: READ, message and reply, and TCP",
    question: "How do the transports' throughput and latency depend on the size of what is fetched?",
    source: SOURCE,
    source_found: "Its figure 1 compares TCP over Ethernet, TCP over InfiniBand and one-sided verbs by \
         message size. One-sided has the highest throughput and the lowest latency, TCP over Ethernet \
         the worst. We do not have its numbers.",
    limits: &[
        "Shared memory replaces the source's InfiniBand: a READ is a copy by the requester's CPU. Both threads share a machine's cores, and no network is measured.",
    ],
    bars: &[],
    run: sizes::run,
};

/// Figure 3.
pub const FIG3: Experiment = Experiment {
    name: "remote-locks/fig3",
    about: "NO_WAIT, 50 % writes, simulated: one-sided, two-sided and TCP, theta 0 to 0.95",
    question: "How many transactions do the variants of NO_WAIT commit and abort as skew grows?",
    source: SOURCE,
    source_found: "One-sided beats two-sided beats TCP at every theta, and one-sided has fewer aborts \
         than both; M/S is up to 5.3 times TCP, at 0.85. M beats M/S at low conflict; M/S wins above 0.8, where M aborts more than 20 %.",
    limits: &[SIMULATED, OURS, IN_FLIGHT],
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
    limits: &[SIMULATED, OURS],
    bars: &[judge::ORDER, judge::COLLAPSE],
    run: |task| figure::run(task, &figure::FIG4),
};

/// Figure 5.
pub const FIG5: Experiment = Experiment {
    name: "remote-locks/fig5",
    about: "WAIT_DIE, 50 % writes, simulated: one-sided, two-sided and TCP, theta 0 to 0.95",
    question: "How many transactions do the variants of WAIT_DIE commit and abort as skew grows?",
    source: SOURCE,
    source_found: "One-sided beats two-sided beats TCP at almost every theta, and one-sided \
         often has fewer aborts; M is up to 10.6 times TCP, at 0.85; M/S is better than M only above 0.9.",
    limits: &[SIMULATED, OURS, IN_FLIGHT],
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
    limits: &[
        SIMULATED,
        "Counts are per committed transaction and include its aborted attempts. The source does not say what it divides by.",
        "Verbs per wait are those of the waiter after its first verb. The releaser of a lock in line posts one more WRITE to hand it over.",
    ],
    bars: &[judge::ATOMICITY_RETRIES, judge::WAIT_RETRIES, judge::VERBS_A_WAIT],
    run: tables::retries,
};

/// Verbs by phase.
pub const VERBS: Experiment = Experiment {
    name: "remote-locks/verbs",
    about: "verbs and rounds per transaction by phase, simulated, theta 0, 50 % writes",
    question: "How many verbs and rounds does a transaction without conflicts need?",
    source: "dbiir/RCBench, 4 nodes: verbs per transaction.",
    source_found: "23.5 verbs per transaction with No-Wait and 30.2 with Wait-Die; for which kind of \
         lock is not known. Unlock and payload share one WRITE, whose words can land in any order.",
    limits: &[
        "RCBench writes payload and unlock word in one WRITE, which is incorrect, and saves a verb for each changed row. Ours has no difference between the protocols. It does not say how rows were located. Its transactions have rows of 2 nodes, ours of 4.",
    ],
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
    source_found: "Choosing M or M/S at run time, from conflicts and the share of transactions that \
         read, is future work.",
    limits: &[
        SIMULATED,
        "Without back-off, 3,000 commits after a warm-up, which are not tested for a stationary state.",
        "In parentheses are the adaptive rates of the lowest and the highest seed, over the median of the better of M and M/S. With 100 % writes adaptive locks are mutual, so 1.00 follows from the method.",
    ],
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
    limits: &[
        SIMULATED,
        "Without back-off, 3,000 commits after a warm-up. By messages up to 640,000 transactions are in flight, and nothing tested whether their rates are stationary.",
    ],
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
    source_found: "One-sided beats two-sided beats TCP: at every theta with NO_WAIT, where one-sided \
         has fewer aborts than the others, and at almost every theta with WAIT_DIE, where it often has.",
    limits: &[
        "The processes outnumber the cores. A holder that is preempted keeps its lock for a time slice, which probably causes many aborts of hot rows; that was not measured. The source has a core for each worker.",
        "All transports access a key store with cached locations of keys. The source's two-sided and TCP owners look up the row themselves, and its one-sided modes first read the location of a row of another node.",
        "One round, adaptive, and M in line are our own modes.",
    ],
    bars: &[
        judge::REAL_ONE_SIDED,
        judge::REAL_TWO_SIDED,
        judge::REAL_WAIT_DIE,
        judge::REAL_OVER_TCP,
    ],
    run: real::run,
};

/// Key of the number of nodes in a configuration.
const NODES_KEY: &str = "nodes";

fn configuration(task: &Task) -> Configuration {
    let setup = systems::sized(task, Setup::new(Mode::PUBLISHED[0], Transport::OneSided, 0.0, 0.0));
    let settings = [
        (NODES_KEY, setup.nodes.to_string()),
        (
            "a node",
            format!(
                "{} workers, {} transactions in flight per worker, one-sided 1 running",
                setup.workers, setup.in_flight
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
