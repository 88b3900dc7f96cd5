//! Way (iii): the simulated cluster with costs measured here.
//!
//! Transactions at one partition of the real engine are timed while no transaction is at both. All
//! costs follow from that. What the driver says about transactions at two partitions is predicted.
//!
//! The engine's worker runs sessions and partitions in one thread, so its CPU time is that of both.
//! A statement that needs no partition shows what the session's part costs. In the cluster that is
//! the coordinator's.

use super::engine::{Call, MicroBenchmark, Reach};
use crate::cpu;
use crate::number::median;
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_cluster::{ClusterCosts, SchemeKind};
use clearway_coordinator::Stall;
use clearway_harness::Res;
use clearway_ir::Plan;
use clearway_types::Lsn;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// Name of this way in tables and charts.
pub const MEASURED: &str = "driver (iii)";
/// Rows of the timed transactions.
pub const ROWS: [usize; 6] = [2, 4, 6, 8, 10, 12];
/// The row at which a transaction fails. It sorts after all keys.
const BAD_KEY: &str = "~~~";
/// The session that runs the transactions, and the one that holds a lock.
const RUNS: usize = 0;
const HOLDS: usize = 1;
/// Bytes of a message over the network.
const MESSAGE: usize = 128;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// A statement without a partition.
    NoPartition,
    /// BEGIN and COMMIT.
    EmptyBlock,
    /// A transaction of one statement, alone: no locks.
    Alone,
    /// The same beside an idle transaction that holds a lock, so it takes locks.
    BesideHolder,
    /// A transaction of one statement, alone, that fails at its last row, so it undoes the others.
    Failing,
    /// A transaction of BEGIN, the statement, and COMMIT.
    Block,
}

impl Timed {
    const OF_ROWS: [Self; 4] = [Self::Alone, Self::BesideHolder, Self::Failing, Self::Block];

    fn name(self) -> &'static str {
        match self {
            Self::NoPartition => "statement without a partition",
            Self::EmptyBlock => "BEGIN, COMMIT",
            Self::Alone => "alone",
            Self::BesideHolder => "beside a lock",
            Self::Failing => "fails at the last row",
            Self::Block => "BEGIN, statement, COMMIT",
        }
    }
}

/// CPU times of a transaction in nanoseconds, one for each round.
#[derive(Debug, Default)]
pub struct Times(Vec<(Timed, usize, Vec<f64>)>);

impl Times {
    fn record(&mut self, what: Timed, rows: usize, time: f64) {
        match self.0.iter_mut().find(|(w, r, _)| (*w, *r) == (what, rows)) {
            Some((_, _, times)) => times.push(time),
            None => self.0.push((what, rows, vec![time])),
        }
    }

    /// Returns the median; 0 if it was not measured.
    fn of(&self, what: Timed, rows: usize) -> f64 {
        median(self.rounds(what, rows)).unwrap_or(0.0)
    }

    /// Returns the times of all rounds.
    fn rounds(&self, what: Timed, rows: usize) -> &[f64] {
        let found = self.0.iter().find(|(w, r, _)| (*w, *r) == (what, rows));
        found.map_or(&[], |(_, _, times)| times)
    }

    fn points(&self, what: Timed) -> Vec<(f64, f64)> {
        ROWS.map(|rows| (rows as f64, self.of(what, rows))).to_vec()
    }

    /// Returns all times, which are stored and not drawn.
    pub fn samples(&self) -> Samples {
        let series = |what: Timed| {
            let here = self.0.iter().filter(|(w, _, _)| *w == what);
            let point = |(_, rows, times): &(Timed, usize, Vec<f64>)| Point {
                x: *rows as f64,
                y: times.clone(),
            };
            Series { name: what.name().into(), points: here.map(point).collect() }
        };
        let without = [Timed::NoPartition, Timed::EmptyBlock];
        Samples {
            title: "The engine's CPU time of a transaction at one partition".into(),
            x: Axis::linear("rows", ""),
            y: Axis::linear("CPU time", "ns"),
            series: without.into_iter().chain(Timed::OF_ROWS).map(series).collect(),
            drawn: false,
            marked: None,
        }
    }
}

/// Costs that were fitted to times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The cluster's costs.
    pub costs: ClusterCosts,
    /// CPU time of the session's part of a transaction in nanoseconds.
    session: f64,
    /// CPU time of undoing a changed row in nanoseconds. No transaction aborts in the cluster.
    undoing: f64,
}

impl Fit {
    /// Fits costs to times. The engine records undo of every transaction of several rows, so a
    /// row's cost includes it, and keeping it longer costs nothing. `network` is the time that a
    /// message takes in nanoseconds.
    pub fn new(times: &Times, network: f64) -> Self {
        let session = times.of(Timed::NoPartition, 0);
        let (intercept, row) = line(&times.points(Timed::Alone));
        let run = (intercept - session).max(0.0);
        let ratios = ROWS.map(|rows| {
            let locked = times.of(Timed::BesideHolder, rows) - session;
            locked / (run + rows as f64 * row)
        });
        let locking = (mean(&ratios) - 1.0).max(0.0);
        // What a block's statement costs beyond a one-shot, with its end.
        let fragments = ROWS.map(|rows| {
            let [block, beside] =
                [Timed::Block, Timed::BesideHolder].map(|what| times.of(what, rows));
            (block - beside - times.of(Timed::EmptyBlock, 0)) / (1.0 + locking)
        });
        let whole = |ns: f64| ns.round() as u64;
        let costs = ClusterCosts {
            run: whole(run),
            fragment: whole(mean(&fragments).max(0.0)),
            row: whole(row.max(0.0)),
            undo: 0,
            locking: whole(1e3 * locking),
            control: 0,
            // Its request and its answer.
            coordinator: whole(session / 2.0),
            network: whole(network),
            sync: 0,
        };
        let (_, failing) = line(&times.points(Timed::Failing));
        Self { costs, session, undoing: failing - row }
    }

    /// Returns the fitted time of a transaction in nanoseconds.
    fn time(&self, rows: usize, locks: bool) -> f64 {
        let ClusterCosts { run, row, locking, .. } = self.costs;
        let [run, row, locking] = [run, row, locking].map(|cost| cost as f64);
        let factor = if locks { 1.0 + locking / 1e3 } else { 1.0 };
        self.session + (run + rows as f64 * row) * factor
    }

    /// Tabulates the costs.
    pub fn table(&self) -> Table {
        let costs = &self.costs;
        let source = &ClusterCosts::SOURCE;
        let row = |what: &str, ours: u64, source: u64| {
            vec![Cell::text(what), Cell::number(ours as f64, 0), Cell::number(source as f64, 0)]
        };
        Table {
            title: format!("Costs, {MEASURED}, fitted without transactions at both partitions"),
            columns: vec![
                Column::ours("cost", ""),
                Column::ours("here", ""),
                // No source has these: most are recalled, and the coordinator's is fitted.
                Column::ours("in figures 4 to 7 (recalled or fitted)", ""),
            ],
            rows: vec![
                row("transaction at a partition, ns", costs.run, source.run),
                row("row, ns", costs.row, source.row),
                row("keeping undo of a row, ns", costs.undo, source.undo),
                row("locks, 1/1000 of the work", costs.locking, source.locking),
                row(
                    "fragment beyond a one-shot, with its end, ns",
                    costs.fragment,
                    source.fragment,
                ),
                row("message at a coordinator, ns", costs.coordinator, source.coordinator),
                row("message in the network, ns", costs.network, source.network),
                vec![
                    Cell::text("undoing a row, ns; not used, as nothing aborts"),
                    Cell::number(self.undoing, 0),
                    Cell::Empty,
                ],
            ],
        }
    }

    /// Tabulates the fit beside the times.
    pub fn residuals(&self, times: &Times) -> Table {
        let mut columns = vec![Column::ours("rows", "")];
        for what in [Timed::Alone, Timed::BesideHolder] {
            columns.push(Column::ours(what.name(), "ns"));
            columns.push(Column::ours("fit", "ns"));
            columns.push(Column::ours("difference", "%"));
        }
        let row = |rows: usize| {
            let mut cells = vec![Cell::number(rows as f64, 0)];
            for what in [Timed::Alone, Timed::BesideHolder] {
                let measured = times.of(what, rows);
                let fit = self.time(rows, what == Timed::BesideHolder);
                cells.extend([Cell::measured(times.rounds(what, rows), 0), Cell::number(fit, 0)]);
                cells.push(Cell::number(100.0 * (fit / measured - 1.0), 1));
            }
            cells
        };
        Table {
            title: "CPU time of a transaction at one partition beside the fit".into(),
            columns,
            rows: ROWS.into_iter().map(row).collect(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the intercept and the slope of the line through points by least squares.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let [x, y] = [|p: &(f64, f64)| p.0, |p: &(f64, f64)| p.1]
        .map(|of| mean(&points.iter().map(of).collect::<Vec<_>>()));
    let covariance: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let variance: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = covariance / variance;
    (y - slope * x, slope)
}

/// The transactions to time.
struct Stopwatch {
    micro: MicroBenchmark,
    updates: Vec<(usize, Arc<Plan>)>,
    begin: Call,
    commit: Call,
    rollback: Call,
    nothing: Call,
    /// Transactions that are timed together.
    batch: usize,
    /// Moves on, so that transactions use all keys.
    next: usize,
}

/// Times transactions in turn, `rounds` times a batch of each.
pub fn times(rounds: usize, batch: usize) -> Res<Times> {
    let micro = MicroBenchmark::open(SchemeKind::Locking, Stall::None, 2, 41 * 12)?;
    let update = |rows| Ok((rows, micro.update(rows, Reach::One)?));
    let updates = ROWS.into_iter().map(update).collect::<Res<_>>()?;
    let plain = |sql: &str| Ok::<_, String>(Call::new(&micro.plan(sql)?, []));
    let [begin, commit] = [plain("begin")?, plain("commit")?];
    let (rollback, nothing) = (plain("rollback")?, plain("select 1")?);
    let mut watch = Stopwatch { micro, updates, begin, commit, rollback, nothing, batch, next: 0 };
    watch.micro.sql(&format!("insert into kv values ('{BAD_KEY}', 0)"))?;
    let mut times = Times::default();
    // The first round warms up.
    for round in 0..=rounds {
        let mut record = |what, rows, time| {
            if round > 0 {
                times.record(what, rows, time);
            }
        };
        for what in [Timed::NoPartition, Timed::EmptyBlock] {
            record(what, 0, watch.time(what, 0)?);
        }
        for rows in ROWS {
            for what in Timed::OF_ROWS {
                record(what, rows, watch.time(what, rows)?);
            }
        }
    }
    watch.micro.close()?;
    Ok(times)
}

impl Stopwatch {
    /// Returns the transactions of a batch.
    fn calls(&mut self, what: Timed, rows: usize, home: usize) -> Vec<Vec<Call>> {
        let plan = self.updates.iter().find(|(of, _)| *of == rows).map(|(_, plan)| plan.clone());
        let bad = BAD_KEY.to_owned();
        let mut batch = Vec::with_capacity(self.batch);
        for _ in 0..self.batch {
            let keys = self.micro.keys(home);
            // The last keys are the holder's.
            let places = (keys.len() - 1) / 12;
            let first = self.next % places * 12;
            self.next += 1;
            let mut mine: Vec<&String> = keys[first..first + rows].iter().collect();
            if what == Timed::Failing
                && let Some(last) = mine.last_mut()
            {
                *last = &bad;
            }
            let update = plan.as_ref().map(|plan| Call::new(plan, mine));
            batch.push(match what {
                Timed::NoPartition => vec![self.nothing.clone()],
                Timed::EmptyBlock => vec![self.begin.clone(), self.commit.clone()],
                Timed::Alone | Timed::BesideHolder | Timed::Failing => update.into_iter().collect(),
                Timed::Block => [Some(self.begin.clone()), update, Some(self.commit.clone())]
                    .into_iter()
                    .flatten()
                    .collect(),
            });
        }
        batch
    }

    /// Returns the CPU time of a transaction in nanoseconds.
    fn time(&mut self, what: Timed, rows: usize) -> Res<f64> {
        let home = MicroBenchmark::home(BAD_KEY)?;
        let batch = self.calls(what, rows, home);
        if what == Timed::BesideHolder {
            let held = self.micro.keys(home).last().cloned();
            let update = self.micro.update(1, Reach::One)?;
            let begin = self.begin.clone();
            self.micro.succeed(HOLDS, &begin)?;
            self.micro.succeed(HOLDS, &Call::new(&update, &held))?;
        }
        let mut log = Lsn(0);
        let before = cpu::of_this_thread();
        for call in batch.iter().flatten() {
            match self.micro.run(RUNS, call)? {
                Ok(wait) => log = log.max(wait),
                Err(_) if what == Timed::Failing => {}
                Err(refusal) => return Err(refusal.error.to_string()),
            }
        }
        let spent = cpu::of_this_thread() - before;
        if what == Timed::BesideHolder {
            let rollback = self.rollback.clone();
            self.micro.succeed(HOLDS, &rollback)?;
        }
        self.micro.wait_durable(log);
        Ok(spent as f64 / self.batch as f64)
    }
}

/// Returns half of the median round trip of a message between two threads over TCP on this machine,
/// in nanoseconds: the time that a message takes.
pub fn network(round_trips: usize) -> Res<f64> {
    fn named(why: std::io::Error) -> String {
        format!("a connection to this process: {why}")
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(named)?;
    let mut stream = TcpStream::connect(listener.local_addr().map_err(named)?).map_err(named)?;
    let (mut peer, _) = listener.accept().map_err(named)?;
    for end in [&stream, &peer] {
        end.set_nodelay(true).map_err(named)?;
    }
    let echo = std::thread::spawn(move || {
        let mut message = [0; MESSAGE];
        while peer.read_exact(&mut message).is_ok() && peer.write_all(&message).is_ok() {}
    });
    let mut trips = Vec::with_capacity(round_trips);
    let mut message = [1; MESSAGE];
    for _ in 0..round_trips {
        let began = Instant::now();
        stream.write_all(&message).map_err(named)?;
        stream.read_exact(&mut message).map_err(named)?;
        trips.push(began.elapsed().as_nanos() as f64 / 2.0);
    }
    drop(stream);
    echo.join().map_err(|_| "the echo has panicked")?;
    median(&trips).ok_or_else(|| "no round trip".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times that these costs cause, with a session's part of 300 ns.
    fn caused(costs: &ClusterCosts) -> Times {
        let fit = Fit { costs: *costs, session: 300.0, undoing: 120.0 };
        let mut times = Times::default();
        times.record(Timed::NoPartition, 0, 300.0);
        times.record(Timed::EmptyBlock, 0, 250.0);
        for rows in ROWS {
            let undone = rows as f64 * fit.undoing;
            times.record(Timed::Alone, rows, fit.time(rows, false));
            times.record(Timed::BesideHolder, rows, fit.time(rows, true));
            times.record(Timed::Failing, rows, fit.time(rows, false) + undone + 500.0);
            let fragment = costs.fragment as f64 * (1.0 + costs.locking as f64 / 1e3);
            let block = fit.time(rows, true) + 250.0 + fragment;
            times.record(Timed::Block, rows, block);
        }
        times
    }

    #[test]
    fn costs_of_the_figures_are_not_published() {
        let table = Fit::new(&caused(&ClusterCosts::SOURCE), 50.0).table();
        assert!(table.columns.iter().all(|column| !column.published), "{table}");
        assert!(table.columns[2].heading().contains("recalled or fitted"));
    }

    #[test]
    fn measured_times_have_a_deviation() {
        let mut times = caused(&ClusterCosts::SOURCE);
        for rows in ROWS {
            times.record(Timed::Alone, rows, times.of(Timed::Alone, rows) + 7.0);
        }
        let fit = Fit { costs: ClusterCosts::SOURCE, session: 300.0, undoing: 120.0 };
        let rows = fit.residuals(&times).rows;
        assert!(rows.iter().all(|row| row[1].to_string().ends_with(" ±7")), "{rows:?}");
        assert!(rows.iter().all(|row| !row[2].to_string().contains('±')), "the fit: {rows:?}");
    }

    #[test]
    fn the_fit_finds_the_costs_behind_times() {
        let costs = ClusterCosts {
            run: 1500,
            fragment: 180,
            row: 400,
            undo: 0,
            locking: 250,
            control: 0,
            coordinator: 150,
            network: 9000,
            sync: 0,
        };
        let times = caused(&costs);
        let fit = Fit::new(&times, 9000.0);
        assert_eq!(fit.costs, costs);
        assert_eq!(fit.undoing.round(), 120.0);
        let residuals = fit.residuals(&times).to_string();
        assert!(residuals.contains("0.0") && !residuals.contains("0.1"), "{residuals}");
    }

    #[test]
    fn transactions_of_the_engine_are_timed() {
        let times = times(1, 2).unwrap();
        for (what, rows, times) in &times.0 {
            assert!(times.len() == 1 && times[0] > 0.0, "{what:?}, {rows} rows");
        }
        assert_eq!(times.0.len(), 2 + Timed::OF_ROWS.len() * ROWS.len());
        assert!(network(3).unwrap() > 0.0);
    }
}
