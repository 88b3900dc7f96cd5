//! Counts per transaction: retries, verbs and rounds.

use super::systems::{LINE, LINE_CACHED, Load, M, M_S, ONE_ROUND, ONE_ROUND_CACHED, System};
use super::{configuration, judge, protocol_name, seeds};
use crate::bars::{Bar, Reading};
use crate::experiment::Task;
use crate::number::median;
use crate::progress::Progress;
use crate::result::{Axis, Findings, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_harness::Res;
use clearway_remote::ycsb::YcsbOutcome;
use clearway_remote::{Phase, Protocol};

const WRITES: f64 = 0.5;
/// Rows of other nodes, among 10 rows on 4 nodes.
const REMOTE_ROWS: f64 = 7.5;
const RETRY_THETAS: [f64; 4] = [0.6, 0.8, 0.9, 0.95];
const QUICK_THETAS: [f64; 1] = [0.95];

/// A system at a theta, with all repetitions.
struct Case {
    protocol: Protocol,
    system: System,
    theta: f64,
    runs: Vec<YcsbOutcome>,
}

impl Case {
    fn name(protocol: Protocol, system: System) -> String {
        format!("{}, {}", protocol_name(protocol), system.name)
    }

    fn of(&self, count: fn(&YcsbOutcome) -> f64) -> f64 {
        median(&self.runs.iter().map(count).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }
}

fn cases(
    task: &Task,
    name: &'static str,
    systems: &[(Protocol, System)],
    thetas: &[f64],
) -> Res<Vec<Case>> {
    let all = systems.iter().flat_map(|system| thetas.iter().map(move |theta| (*system, *theta)));
    let judged = |protocol, system, theta| match (protocol, system) {
        (_, LINE) | (Protocol::WaitDie, M_S) => theta == 0.95,
        (Protocol::NoWait, M_S) => theta > 0.0,
        _ => system == ONE_ROUND_CACHED,
    };
    let wanted = |((protocol, system), theta): &((Protocol, System), f64)| {
        task.part.wants(
            &format!("{} {theta}", Case::name(*protocol, *system)),
            judged(*protocol, *system, *theta),
        )
    };
    let wanted: Vec<_> = all.filter(wanted).collect();
    let mut progress = Progress::new(name, wanted.len());
    let mut cases = Vec::new();
    for ((protocol, system), theta) in wanted {
        progress.step(&format!("{}, theta {theta}", Case::name(protocol, system)));
        let one = |seed: &u64| system.run(task, protocol, Load::new(theta, WRITES), *seed);
        cases.push(Case {
            protocol,
            system,
            theta,
            runs: seeds(task).iter().map(one).collect::<Res<_>>()?,
        });
    }
    Ok(cases)
}

/// Counts the verbs to other nodes that a request for a remote row posts in order to wait.
fn remote_verbs_per_wait(run: &YcsbOutcome) -> f64 {
    run.stats.remote_wait_verbs as f64 / run.stats.remote_waits.max(1) as f64
}

/// A count of the systems: its name, its digits, and how it is computed.
type Count = (&'static str, u8, fn(&YcsbOutcome) -> f64);

const RETRIES: [Count; 4] = [
    ("atomicity retries", 3, |run| run.a_commit(run.stats.atomicity_retries)),
    ("wait retries", 2, |run| run.a_commit(run.stats.wait_retries)),
    ("requests that waited", 2, |run| run.a_commit(run.stats.waits)),
    ("remote verbs per wait for a remote row", 3, remote_verbs_per_wait),
];

/// Runs table 2.
pub fn retries(task: &Task) -> Res<Findings> {
    use Protocol::{NoWait, WaitDie};
    let systems = [(NoWait, M), (NoWait, M_S), (WaitDie, M), (WaitDie, M_S), (WaitDie, LINE)];
    let thetas: &[f64] = if task.options.quick { &QUICK_THETAS } else { &RETRY_THETAS };
    let cases = cases(task, "remote-locks/table2", &systems, thetas)?;
    let published = |case: &Case| match (case.protocol, case.system, case.theta) {
        (NoWait, M_S, _) => Cell::text("atomicity < 0.2"),
        (WaitDie, M_S, 0.95) => Cell::text("waits about 12"),
        _ => Cell::Empty,
    };
    let in_line = cases.iter().find(|case| case.system == LINE && case.theta == 0.95);
    let bar = in_line.map(|case| {
        let waits = case.of(RETRIES[2].2);
        let reading = Reading::new("requests that waited, per transaction", waits, "", 2);
        judge::at_most(
            judge::VERBS_A_WAIT,
            judge::VERBS_A_WAIT_AT_MOST,
            case.of(remote_verbs_per_wait),
            vec![reading],
        )
    });
    let bars = retry_bars(&cases).into_iter().chain(bar).collect();
    Ok(Findings {
        configuration: configuration(task),
        seeds: seeds(task),
        samples: RETRIES.iter().map(|count| samples(&cases, count)).collect(),
        tables: vec![table("Per committed transaction", &cases, &RETRIES, ("", &published))],
        found: Vec::new(),
        agreement: Vec::new(),
        bars,
    })
}

/// Judges the source's two numbers.
fn retry_bars(cases: &[Case]) -> Vec<Bar> {
    let worst = |protocol, at: usize, thetas: &dyn Fn(f64) -> bool| {
        let of = cases.iter().filter(|c| (c.protocol, c.system) == (protocol, M_S));
        let of =
            of.filter(|case| thetas(case.theta)).map(|case| (case.theta, case.of(RETRIES[at].2)));
        of.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let bar = |name, most, (theta, value): (f64, f64)| {
        let reading = Reading::new(&format!("theta {theta}"), value, "", 3);
        judge::at_most(name, most, value, vec![reading])
    };
    let atomicity = worst(Protocol::NoWait, 0, &|_| true)
        .map(|of| bar(judge::ATOMICITY_RETRIES, judge::ATOMICITY_RETRIES_AT_MOST, of));
    let waits = worst(Protocol::WaitDie, 1, &|theta| theta == 0.95)
        .map(|of| bar(judge::WAIT_RETRIES, judge::WAIT_RETRIES_AT_MOST, of));
    atomicity.into_iter().chain(waits).collect()
}

const PHASES: [Count; 8] = [
    ("lock: verbs", 2, |run| run.a_commit(run.stats.phase(Phase::Lock).verbs)),
    ("lock: rounds", 2, |run| run.a_commit(run.stats.phase(Phase::Lock).rounds)),
    ("commit: verbs", 2, |run| run.a_commit(run.stats.phase(Phase::Commit).verbs)),
    ("commit: rounds", 2, |run| run.a_commit(run.stats.phase(Phase::Commit).rounds)),
    ("abort: verbs", 2, |run| run.a_commit(run.stats.phase(Phase::Abort).verbs)),
    ("abort: rounds", 2, |run| run.a_commit(run.stats.phase(Phase::Abort).rounds)),
    ("verbs of 7.5 remote rows", 2, remote_verbs),
    ("rounds per remote row", 3, rounds_a_row),
];

fn remote_verbs(run: &YcsbOutcome) -> f64 {
    run.stats.remote().verbs as f64 / run.remote_rows as f64 * REMOTE_ROWS
}

fn rounds_a_row(run: &YcsbOutcome) -> f64 {
    run.stats.remote().rounds as f64 / run.remote_rows as f64
}

/// Counts verbs and rounds by phase.
pub fn verbs(task: &Task) -> Res<Findings> {
    let of = |protocol, systems: [System; 4]| systems.map(|system| (protocol, system));
    let systems = [
        of(Protocol::NoWait, [M, M_S, ONE_ROUND, ONE_ROUND_CACHED]),
        of(Protocol::WaitDie, [M, M_S, LINE, LINE_CACHED]),
    ];
    let cases = cases(task, "remote-locks/verbs", systems.as_flattened(), &[0.0])?;
    let published = |case: &Case| match (case.protocol, case.system) {
        (Protocol::NoWait, M) => Cell::number(23.5, 1),
        (Protocol::WaitDie, M) => Cell::number(30.2, 1),
        _ => Cell::Empty,
    };
    let judged = cases.iter().find(|case| case.system == ONE_ROUND_CACHED);
    let bars = judged.map(|case| {
        let rows = Reading::new(
            "remote rows per transaction",
            case.of(|run| run.a_commit(run.remote_rows)),
            "",
            2,
        );
        let (rounds, verbs) = (case.of(rounds_a_row), case.of(remote_verbs));
        [
            judge::at_most(
                judge::ROUNDS_A_ROW,
                judge::ROUNDS_A_ROW_AT_MOST,
                rounds,
                vec![rows.clone()],
            ),
            judge::at_most(judge::VERBS, judge::VERBS_AT_MOST, verbs, vec![rows]),
        ]
    });
    Ok(Findings {
        configuration: configuration(task),
        seeds: seeds(task),
        samples: PHASES.iter().map(|count| samples(&cases, count)).collect(),
        tables: vec![table(
            "Per committed transaction, theta 0",
            &cases,
            &PHASES,
            ("RCBench: rows of 2 nodes, unlock and payload in one WRITE", &published),
        )],
        found: Vec::new(),
        agreement: Vec::new(),
        bars: bars.into_iter().flatten().collect(),
    })
}

fn table(
    title: &str,
    cases: &[Case],
    counts: &[Count],
    (heading, published): (&str, &dyn Fn(&Case) -> Cell),
) -> Table {
    let mut columns = vec![Column::ours("system", ""), Column::ours("theta", "")];
    columns.extend(counts.iter().map(|(name, ..)| Column::ours(name, "")));
    columns.push(Column::published(heading, ""));
    let row = |case: &Case| {
        let mut row =
            vec![Cell::text(Case::name(case.protocol, case.system)), Cell::number(case.theta, 2)];
        row.extend(counts.iter().map(|(_, digits, of)| {
            Cell::measured(&case.runs.iter().map(of).collect::<Vec<_>>(), *digits)
        }));
        row.push(published(case));
        row
    };
    Table { title: title.into(), columns, rows: cases.iter().map(row).collect() }
}

fn samples(cases: &[Case], (name, _, of): &Count) -> Samples {
    let point = |case: &Case| Point { x: case.theta, y: case.runs.iter().map(of).collect() };
    let mut series: Vec<Series> = Vec::new();
    for case in cases {
        let name = Case::name(case.protocol, case.system);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point(case)),
            None => series.push(Series { name, points: vec![point(case)] }),
        }
    }
    Samples {
        title: (*name).into(),
        x: Axis::linear("theta", ""),
        y: Axis::linear(name, ""),
        series,
        drawn: *name == RETRIES[1].0,
        marked: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;

    #[test]
    fn retries_are_judged_by_the_numbers_of_the_source() {
        let case = |protocol, theta, atomicity_retries, wait_retries| {
            let mut run = YcsbOutcome::default();
            run.stats.commits = 1_000;
            run.stats.atomicity_retries = atomicity_retries;
            run.stats.wait_retries = wait_retries;
            let runs = vec![run];
            Case { protocol, system: M_S, theta, runs }
        };
        let verdicts = |atomicity, waits| -> Vec<Verdict> {
            let cases = [
                case(Protocol::NoWait, 0.8, 100, 0),
                case(Protocol::NoWait, 0.95, atomicity, 0),
                case(Protocol::WaitDie, 0.9, 0, 90_000),
                case(Protocol::WaitDie, 0.95, 0, waits),
            ];
            retry_bars(&cases).iter().map(|bar| bar.verdict(false)).collect()
        };
        assert_eq!(verdicts(200, 13_000), [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts(302, 17_420), [Verdict::Short, Verdict::Short]);
        assert_eq!(retry_bars(&[]), Vec::new());
    }
}
