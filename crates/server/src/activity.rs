//! The server's statistics, and the rows of the system views that show them.

use crate::counters::Totals;
use crate::latches::Latches;
use crate::locks::Waits;
use crate::sessions::{self, Roll, SessionInfo, not_empty};
use crate::shared::Shared;
use crate::site;
use clearway_coordinator::{
    Activity as EngineActivity, CascadeCounts, Engine, HotRowView, LockCounts, LockWaitView,
    PartitionReport, PartitionTimes, SchemeCounts, SchemeKind, System, TakeRows,
};
use clearway_env::{Disk, Open};
use clearway_ir::LearnedRow;
use clearway_ir::system::SystemView;
use clearway_latch::Choice;
use clearway_latch::lockstat::{self, Contention};
use clearway_types::{DatumRef, PartitionId, RowBatch};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What the server has done since its start, and its current state.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    /// Time since the start.
    pub(crate) uptime: Duration,
    /// Open connections.
    pub(crate) sessions: u64,
    /// Totals over all workers.
    pub(crate) totals: Totals,
    /// The engine's counters.
    pub(crate) engine: EngineActivity,
    /// Waiting transactions and deadlocks.
    pub(crate) locks: LockCounts,
    /// The partitions, in their order.
    pub(crate) partitions: Vec<(SchemeKind, SchemeCounts, CascadeCounts, PartitionTimes)>,
    /// Total length of the files with pages, in bytes.
    pub(crate) data_file_bytes: u64,
    /// Total length of the log's segments, in bytes.
    pub(crate) log_file_bytes: u64,
}

/// The server as seen by the system views and the metrics endpoint.
#[derive(Clone)]
pub(crate) struct Observed {
    shared: Arc<Shared>,
    /// Weak, because the engine owns this value to answer statements.
    engine: Weak<Engine>,
    disk: Arc<dyn Disk>,
}

impl Observed {
    pub(crate) fn new(shared: &Arc<Shared>, engine: &Arc<Engine>, disk: Arc<dyn Disk>) -> Self {
        Self { shared: shared.clone(), engine: Arc::downgrade(engine), disk }
    }

    /// Calls `take` with all sessions and the waits in progress.
    fn with_sessions(&self, take: impl FnOnce(&[SessionInfo], &[LockWaitView]) + Send + 'static) {
        let engine = self.engine.clone();
        Roll::call(&self.shared, move |sessions| {
            let waits = engine.upgrade().map(|engine| engine.lock_waits()).unwrap_or_default();
            take(&sessions, &waits);
        });
    }

    /// Reads the sizes of files from the disk, so it may block.
    pub(crate) fn activity(&self) -> Activity {
        let engine = self.engine.upgrade();
        let data = &self.shared.config.data;
        Activity {
            uptime: self.shared.started.elapsed(),
            sessions: self.shared.connections.total() as u64,
            totals: self.shared.totals(),
            // An engine that is closing has nothing to report.
            engine: engine.as_ref().map(|engine| engine.activity()).unwrap_or_default(),
            locks: engine.as_ref().map(|engine| engine.lock_counts()).unwrap_or_default(),
            partitions: engine.as_ref().map(|engine| engine.partition_counts()).unwrap_or_default(),
            data_file_bytes: file_bytes(&*self.disk, &data.join("data")),
            log_file_bytes: file_bytes(&*self.disk, &data.join("wal")),
        }
    }
}

/// Returns the total length of a directory's files. A file that vanishes meanwhile, like a recycled
/// segment of the log, does not count.
fn file_bytes(disk: &dyn Disk, dir: &Path) -> u64 {
    let names = disk.list(dir).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| disk.open(&dir.join(name), Open::Existing).ok()?.len().ok())
        .sum()
}

impl System for Observed {
    fn rows(&self, view: SystemView, take: TakeRows) {
        match view {
            // The sizes of files come from the disk.
            SystemView::Activity => match self.engine.upgrade() {
                Some(engine) => {
                    let observed = self.clone();
                    engine.run_blocking(Box::new(move || take(activity_row(&observed.activity()))));
                }
                None => take(RowBatch::new()),
            },
            SystemView::Cascades => match self.engine.upgrade() {
                Some(engine) => engine.partition_reports(move |all| take(cascade_rows(&all))),
                None => take(RowBatch::new()),
            },
            SystemView::Contention => take(contention_rows(&lockstat::contention())),
            SystemView::HotRows => match self.engine.upgrade() {
                Some(engine) => engine.hot_rows(move |rows| take(hot_rows(&rows))),
                None => take(RowBatch::new()),
            },
            SystemView::Partitions => match self.engine.upgrade() {
                Some(engine) => engine.partition_reports(move |all| take(partition_rows(&all))),
                None => take(RowBatch::new()),
            },
            SystemView::Latency => take(latency_rows(&self.shared.totals())),
            SystemView::LatchCalibration => take(calibration_rows(&self.shared.latches)),
            SystemView::Plans => {
                let plans = self.engine.upgrade().map(|engine| engine.plans());
                take(plan_rows(&plans.unwrap_or_default()));
            }
            SystemView::Locks => {
                let clock = self.shared.clock.clone();
                self.with_sessions(move |sessions, waits| {
                    take(Waits::new(waits, sessions).rows(clock.wall_micros()))
                });
            }
            SystemView::Sessions => {
                self.with_sessions(move |all, waits| take(sessions::rows(all, waits)))
            }
            SystemView::Snapshots => {
                let engine = self.engine.clone();
                self.with_sessions(move |all, _| {
                    take(
                        engine
                            .upgrade()
                            .map(|e| sessions::snapshot_rows(all, &e))
                            .unwrap_or_default(),
                    );
                });
            }
        }
    }

    fn reset_contention(&self) {
        lockstat::reset();
    }
}

fn int(n: u64) -> DatumRef<'static> {
    DatumRef::Int8(i64::try_from(n).unwrap_or(i64::MAX))
}

fn activity_row(activity: &Activity) -> RowBatch {
    let Activity { uptime, sessions, totals, engine, locks, .. } = activity;
    let mut rows = RowBatch::new();
    rows.push_with(|row| {
        row.push(DatumRef::Float8(uptime.as_secs_f64()));
        for n in [
            *sessions,
            totals.statements,
            engine.committed,
            engine.aborted,
            totals.errors.iter().sum(),
            totals.received,
            totals.sent,
            totals.commits_waiting,
            engine.pool_frames,
            engine.pool_free,
            engine.pool_dirty,
            engine.page_reads,
            engine.page_writes,
            engine.page_evictions,
            engine.frame_waits,
            engine.second_level_pages,
            engine.second_level_hits,
            engine.second_level_misses,
            engine.second_level_writes,
            engine.second_level_dropped,
            engine.second_level_skipped,
            engine.log_bytes,
            engine.log_syncs,
            engine.checkpoints,
            engine.replays,
            locks.waiters,
            locks.deadlocks,
            activity.data_file_bytes,
            activity.log_file_bytes,
        ] {
            row.push(int(n));
        }
        row.push(DatumRef::Text(env!("CARGO_PKG_VERSION")));
    });
    rows
}

fn contention_rows(contention: &[Contention]) -> RowBatch {
    let mut rows = RowBatch::new();
    for Contention { name, caller, requests, contended, waits } in contention {
        let caller = caller.map(site::site);
        let per_million =
            if *requests == 0 { 0.0 } else { *contended as f64 * 1e6 / *requests as f64 };
        rows.push_with(|row| {
            row.push(DatumRef::Text(name));
            row.push(caller.as_deref().map_or(DatumRef::Null, DatumRef::Text));
            row.push(int(*requests));
            row.push(int(*contended));
            for figure in [
                per_million,
                waits.mean_ns() / 1e3,
                waits.quantile_ns(0.99) / 1e3,
                waits.sum_ns() as f64 / 1e3,
            ] {
                row.push(DatumRef::Float8(figure));
            }
        });
    }
    rows
}

fn latency_rows(totals: &Totals) -> RowBatch {
    let us = |ns: u64| DatumRef::Float8(ns as f64 / 1e3);
    let mut rows = RowBatch::new();
    for (name, latency) in
        [("statement", &totals.statement_latency), ("commit", &totals.commit_latency)]
    {
        let mut lower_ns = 0;
        for (upper_ns, count) in latency.buckets() {
            if count > 0 {
                rows.push_with(|row| {
                    row.push(DatumRef::Text(name));
                    row.push(us(lower_ns));
                    row.push(upper_ns.map_or(DatumRef::Null, us));
                    row.push(int(count));
                });
            }
            lower_ns = upper_ns.unwrap_or(lower_ns);
        }
    }
    rows
}

fn calibration_rows(latches: &Latches) -> RowBatch {
    let Latches { measured, choice, spin_limit } = latches;
    let mut rows = RowBatch::new();
    for sample in &measured.samples {
        rows.push_with(|row| {
            row.push(DatumRef::Text(Choice::name(sample.choice)));
            row.push(DatumRef::Float8(sample.alone_ns));
            row.push(DatumRef::Float8(sample.pair_per_us));
            row.push(DatumRef::Bool(sample.choice == *choice));
            row.push(int((*spin_limit).into()));
            row.push(DatumRef::Float8(measured.pause_ns));
            row.push(DatumRef::Float8(measured.yield_ns));
        });
    }
    rows
}

fn hot_rows(hot: &[HotRowView]) -> RowBatch {
    let mut rows = RowBatch::new();
    for HotRowView { partition, lock, holders, waiters, behind, learned } in hot {
        rows.push_with(|row| {
            for name in [&lock.table, &lock.index, &lock.key] {
                row.push(not_empty(name));
            }
            row.push(DatumRef::Int4(partition.0.into()));
            row.push(not_empty(&lock.mode));
            for n in [holders, waiters, behind] {
                row.push(int(*n as u64));
            }
            row.push(DatumRef::Bool(*learned));
        });
    }
    rows
}

fn partition_rows(reports: &[(PartitionId, PartitionReport)]) -> RowBatch {
    let mut rows = RowBatch::new();
    for (partition, PartitionReport { scheme, active, queue, counts, times, .. }) in reports {
        rows.push_with(|row| {
            row.push(DatumRef::Int4(partition.0.into()));
            row.push(DatumRef::Text(&scheme.to_string()));
            for n in [*active, *queue] {
                row.push(int(n as u64));
            }
            let SchemeCounts { speculated, validated, discarded, retried, blocked } = *counts;
            for n in [speculated, validated, discarded, retried, blocked] {
                row.push(int(n));
            }
            for time in [times.stall, times.cpu] {
                row.push(DatumRef::Float8(time.as_secs_f64() * 1e6));
            }
        });
    }
    rows
}

fn cascade_rows(reports: &[(PartitionId, PartitionReport)]) -> RowBatch {
    let mut rows = RowBatch::new();
    for (partition, report) in reports {
        for (undone, count) in report.cascades.sizes() {
            rows.push_with(|row| {
                row.push(DatumRef::Int4(partition.0.into()));
                row.push(int(undone));
                row.push(int(count));
            });
        }
    }
    rows
}

fn plan_rows(plans: &[LearnedRow]) -> RowBatch {
    let mut rows = RowBatch::new();
    for plan in plans {
        rows.push_with(|row| {
            row.push(DatumRef::Text(&plan.text));
            row.push(DatumRef::Text(match (plan.is_exclusive, plan.adds) {
                (true, _) => "exclusive",
                (false, true) => "increment",
                (false, false) => "shared",
            }));
            row.push(DatumRef::Float8(plan.recent_share));
            for n in [plan.reads, plan.changed, plan.exclusive, plan.switches] {
                row.push(int(n));
            }
        });
    }
    rows
}
