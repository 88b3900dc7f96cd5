//! PostgreSQL as the control: the anomalies that it allows at each level, and schedules that show
//! them deterministically.
//!
//! The schedules run two transactions in lockstep, so that nothing depends on chance: each anomaly
//! that a level allows appears, and each other one is prevented.

use super::steps::{self, REGISTERS, Step};
use clearway_harness::batch::MessageBatch;
use clearway_harness::client::{PgClient, QueryError};
use clearway_harness::{Endpoint, Res};
use clearway_history::{Anomaly, CheckerOptions, History, HistoryReport, Op, Txn, TxnOutcome};

/// PostgreSQL's isolation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// Parses the name of a level; serializable if there is none.
    pub fn parse(name: Option<&str>) -> Res<Self> {
        match name.map(str::to_lowercase).as_deref() {
            Some("read committed") => Ok(Self::ReadCommitted),
            Some("repeatable read") => Ok(Self::RepeatableRead),
            None | Some("serializable") => Ok(Self::Serializable),
            Some(other) => Err(format!(
                "--isolation `{other}`: `read committed`, `repeatable read` or `serializable`"
            )),
        }
    }

    /// Returns its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Returns the anomalies that it allows.
    fn allowed(self) -> &'static [Anomaly] {
        match self {
            Self::ReadCommitted => {
                &[Anomaly::GSingle, Anomaly::G2, Anomaly::LostUpdate, Anomaly::Internal]
            }
            // Snapshot isolation.
            Self::RepeatableRead => &[Anomaly::G2],
            Self::Serializable => &[],
        }
    }

    /// Fails if an anomaly was found that the level does not allow.
    pub fn judge(self, report: &HistoryReport) -> Res<()> {
        match report.anomalies().find(|anomaly| !self.allowed().contains(anomaly)) {
            None => Ok(()),
            Some(anomaly) => {
                Err(format!("history: {} does not allow {}", self.name(), anomaly.name()))
            }
        }
    }

    /// Describes a successful run.
    pub fn verdict(self) -> &'static str {
        match self {
            Self::Serializable => "no anomalies, as expected",
            _ => "expected anomalies found",
        }
    }
}

/// One step of a schedule: the number of the transaction, and its step.
type Move = (usize, Step);

const fn read(id: u64) -> Step {
    Step::Read { table: REGISTERS, first: id, last: id }
}

const fn write(id: u64, value: u64) -> Step {
    Step::Update { id, value }
}

const COMMIT: Step = Step::Control("commit");

/// Schedules over registers 0 and 1, which hold 1 and 2, each with the anomaly that it shows.
const SCHEDULES: [(Anomaly, &[Move]); 4] = [
    (
        Anomaly::LostUpdate,
        &[(0, read(0)), (1, read(0)), (0, write(0, 3)), (0, COMMIT), (1, write(0, 4)), (1, COMMIT)],
    ),
    (
        Anomaly::GSingle,
        &[(0, read(0)), (1, write(0, 3)), (1, write(1, 4)), (1, COMMIT), (0, read(1)), (0, COMMIT)],
    ),
    (Anomaly::Internal, &[(0, read(0)), (1, write(0, 3)), (1, COMMIT), (0, read(0)), (0, COMMIT)]),
    (
        Anomaly::G2,
        &[
            (0, read(0)),
            (0, read(1)),
            (1, read(0)),
            (1, read(1)),
            (0, write(0, 3)),
            (1, write(1, 4)),
            (0, COMMIT),
            (1, COMMIT),
        ],
    ),
];

/// Runs the schedules; each anomaly must be found if and only if the level allows it.
pub fn run(endpoint: &Endpoint, isolation: Isolation) -> Res<()> {
    for (anomaly, moves) in SCHEDULES {
        let report = schedule(endpoint, moves)
            .map_err(|why| format!("history: {}: {why}", anomaly.name()))?;
        let found: Vec<Anomaly> = report.anomalies().collect();
        if found.contains(&anomaly) != isolation.allowed().contains(&anomaly) {
            return Err(format!(
                "history: {} at {}: found {found:?}\n{report}",
                anomaly.name(),
                isolation.name()
            ));
        }
        isolation.judge(&report)?;
        println!(
            "history: schedule of {} at {}: {}",
            anomaly.name(),
            isolation.name(),
            report.summary()
        );
    }
    Ok(())
}

/// One transaction of a schedule.
struct Side {
    client: PgClient,
    ops: Vec<Op>,
    start: u64,
    end: u64,
    outcome: TxnOutcome,
}

fn schedule(endpoint: &Endpoint, moves: &[Move]) -> Res<HistoryReport> {
    let mut history = History::new();
    let keys = steps::Keys::new(&mut history);
    let mut first = steps::connect(endpoint)?;
    first.query("delete from h_reg")?;
    first.query("insert into h_reg values (0, 0, 1), (1, 0, 2)")?;
    let key = |id| keys.key(REGISTERS, id);
    let ops = vec![Op::Write { key: key(0), value: 1 }, Op::Write { key: key(1), value: 2 }];
    let set_up = Txn { session: 0, start: 0, end: Some(1), outcome: TxnOutcome::Committed, ops };
    history.push(set_up).map_err(|e| e.to_string())?;
    let mut sides = Vec::new();
    for client in [first, steps::connect(endpoint)?] {
        sides.push(Side {
            client,
            ops: Vec::new(),
            start: 2,
            end: 2,
            outcome: TxnOutcome::Unknown,
        });
    }
    // The position in the schedule is the time.
    for side in &mut sides {
        side.client.query("begin")?;
    }
    for (at, (who, step)) in moves.iter().enumerate() {
        let side = &mut sides[*who];
        if side.outcome == TxnOutcome::Aborted {
            continue;
        }
        let (mut batch, mut answers) = (MessageBatch::default(), Vec::new());
        step.add(&mut batch);
        side.end = 3 + at as u64;
        match side.client.run(&mut batch, &mut answers) {
            Ok(()) => {
                step.record(&answers[0], &keys, &mut side.ops)?;
                if answers[0].tag == "COMMIT" {
                    side.outcome = TxnOutcome::Committed;
                }
            }
            Err(QueryError::Sql { code, .. }) if code == "40001" => {
                side.outcome = TxnOutcome::Aborted;
                side.client.query("rollback")?;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    for (session, Side { ops, start, end, outcome, .. }) in sides.into_iter().enumerate() {
        let txn = Txn { session: session as u32 + 1, start, end: Some(end), outcome, ops };
        history.push(txn).map_err(|e| e.to_string())?;
    }
    clean(endpoint)?;
    Ok(history.check(&CheckerOptions::default()))
}

/// Deletes all registers: the load starts with none.
fn clean(endpoint: &Endpoint) -> Res<()> {
    steps::connect(endpoint)?.query("delete from h_reg").map(|_| ()).map_err(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_history::Order;

    fn found(anomaly: Anomaly) -> HistoryReport {
        HistoryReport { found: [((anomaly, Order::Data), 1)].into(), ..HistoryReport::default() }
    }

    #[test]
    fn each_level_allows_its_anomalies_only() {
        for isolation in
            [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
        {
            assert_eq!(Isolation::parse(Some(isolation.name())), Ok(isolation));
            assert!(isolation.judge(&HistoryReport::default()).is_ok());
            assert!(isolation.judge(&found(Anomaly::G1a)).is_err());
            assert_eq!(
                isolation.judge(&found(Anomaly::G2)).is_ok(),
                isolation != Isolation::Serializable
            );
            assert_eq!(
                isolation.judge(&found(Anomaly::LostUpdate)).is_ok(),
                isolation == Isolation::ReadCommitted
            );
        }
        assert!(Isolation::parse(Some("chaos")).unwrap_err().contains("chaos"));
    }
}
