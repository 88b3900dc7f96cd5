//! The metrics page, in Prometheus' text format.
//!
//! Labels hold names that survive a release: no lines of source files, no addresses.
//!
//! Source: Prometheus documentation, "Exposition formats", version 0.0.4, and "Metric and label
//! naming".

use crate::activity::Activity;
use crate::counters::CLASSES;
use crate::latches::Latches;
use crate::latency::Latency;
use crate::site;
use clearway_latch::lockstat::{Contention, Histogram};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Every fourth bucket of the wait histograms is exported: a factor of 4 between bounds.
const WAIT_STEP: usize = 4;
/// Every second bucket of the latency histograms is exported: a factor of 2 between bounds.
const LATENCY_STEP: usize = 2;

/// Returns the whole page.
pub(super) fn page(activity: &Activity, latches: &Latches, contention: &[Contention]) -> String {
    let mut page = Page(String::new());
    server(&mut page, activity);
    engine(&mut page, activity);
    partitions(&mut page, activity);
    page.family("latch_info", "gauge", "How latches are acquired.");
    page.sample("latch_info", &[("choice", latches.choice.name())], 1);
    let help =
        "Spins at a held latch before a thread yields or sleeps, doubled for latches held briefly.";
    page.one("latch_spin_limit", "gauge", help, latches.spin_limit);
    waits(&mut page, contention);
    page.0
}

/// Adds the counters of the workers and sessions.
fn server(page: &mut Page, activity: &Activity) {
    let Activity { uptime, sessions, totals, .. } = activity;
    page.family("build_info", "gauge", "The running version.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.one("uptime_seconds", "gauge", "Time since the start.", uptime.as_secs_f64());
    page.one("sessions", "gauge", "Open connections.", sessions);
    page.one("statements_total", "counter", "Statements started.", totals.statements);
    page.family("errors_total", "counter", "Errors sent to clients, by class of SQLSTATE.");
    for (class, errors) in CLASSES.iter().zip(totals.errors) {
        page.sample("errors_total", &[("class", class)], errors);
    }
    page.one("received_bytes_total", "counter", "Bytes received from clients.", totals.received);
    page.one("sent_bytes_total", "counter", "Bytes sent to clients.", totals.sent);
    page.one(
        "commits_waiting",
        "gauge",
        "Sessions whose replies are waiting for the log.",
        totals.commits_waiting,
    );
    let help = "Time from a statement's start until its result was complete, errors included.";
    latency(page, "statement_duration_seconds", help, &totals.statement_latency);
    let help = "Time from a statement's start until the log was durable up to its reply, for replies that waited for the log.";
    latency(page, "commit_duration_seconds", help, &totals.commit_latency);
}

fn latency(page: &mut Page, family: &str, help: &str, latency: &Latency) {
    page.family(family, "histogram", help);
    page.histogram(family, &[], latency.buckets(), LATENCY_STEP, latency.sum_ns());
}

/// Adds the counters of the engine.
fn engine(page: &mut Page, activity: &Activity) {
    let engine = &activity.engine;
    page.family("transactions_total", "counter", "Ended transactions, by outcome.");
    page.sample("transactions_total", &[("outcome", "committed")], engine.committed);
    page.sample("transactions_total", &[("outcome", "aborted")], engine.aborted);
    let used = engine.pool_frames.saturating_sub(engine.pool_free);
    for (name, help, frames) in [
        ("pool_frames", "Frames of the buffer pool.", engine.pool_frames),
        ("pool_used_frames", "Frames with a page.", used),
        ("pool_free_frames", "Frames without a page.", engine.pool_free),
        (
            "pool_dirty_frames",
            "Frames with a page that is newer than its copy on disk.",
            engine.pool_dirty,
        ),
        (
            "second_level_pages",
            "Pages with a copy in the second-level cache.",
            engine.second_level_pages,
        ),
    ] {
        page.one(name, "gauge", help, frames);
    }
    for (name, help, count) in [
        ("page_reads_total", "Pages read from the data files.", engine.page_reads),
        ("page_writes_total", "Pages written to the data files.", engine.page_writes),
        ("page_evictions_total", "Pages evicted from the buffer pool.", engine.page_evictions),
        ("frame_waits_total", "Page reads that waited for a free frame.", engine.frame_waits),
        (
            "second_level_hits_total",
            "Page reads served by the second-level cache.",
            engine.second_level_hits,
        ),
        (
            "second_level_misses_total",
            "Page reads that the second-level cache did not serve.",
            engine.second_level_misses,
        ),
        (
            "second_level_writes_total",
            "Pages written to the second-level cache.",
            engine.second_level_writes,
        ),
        (
            "second_level_dropped_total",
            "Copies in the second-level cache that were corrupt or unreadable.",
            engine.second_level_dropped,
        ),
        (
            "second_level_skipped_total",
            "Pages not written to the second-level cache because its disk was busy.",
            engine.second_level_skipped,
        ),
        (
            "log_bytes_total",
            "Bytes written to the log since the database was created.",
            engine.log_bytes,
        ),
        ("log_syncs_total", "Syncs of the log for commits.", engine.log_syncs),
        ("checkpoints_total", "Completed checkpoints.", engine.checkpoints),
        (
            "replays_total",
            "Blocks run again after another transaction's rollback or a deadlock.",
            engine.replays,
        ),
    ] {
        page.one(name, "counter", help, count);
    }
    let locks = activity.locks;
    page.one("lock_waiters", "gauge", "Transactions waiting for a lock.", locks.waiters);
    page.one("deadlocks_total", "counter", "Deadlocks found.", locks.deadlocks);
    page.family("disk_bytes", "gauge", "Length of the files on disk, by kind of file.");
    page.sample("disk_bytes", &[("kind", "data")], activity.data_file_bytes);
    page.sample("disk_bytes", &[("kind", "log")], activity.log_file_bytes);
}

/// Adds the counts and times of the partitions.
fn partitions(page: &mut Page, activity: &Activity) {
    page.family("partition_scheme_info", "gauge", "The concurrency-control scheme, by partition.");
    for (at, (scheme, ..)) in activity.partitions.iter().enumerate() {
        let (at, scheme) = (at.to_string(), scheme.to_string());
        page.sample("partition_scheme_info", &[("partition", &at), ("scheme", &scheme)], 1);
    }
    let counts = || activity.partitions.iter().map(|(_, counts, ..)| counts);
    let help = "Transactions that ran behind an undecided one.";
    page.by_partition("speculated", help, counts().map(|of| of.speculated));
    let help = "Optimistic runs that were valid.";
    page.by_partition("validated", help, counts().map(|of| of.validated));
    let help = "Transactions undone because one ahead of them was, or their run was invalid.";
    page.by_partition("discarded", help, counts().map(|of| of.discarded));
    let help = "Undone transactions that their partition ran again.";
    page.by_partition("retried", help, counts().map(|of| of.retried));
    let help = "Messages that waited in line for their partition.";
    page.by_partition("blocked", help, counts().map(|of| of.blocked));
    let cascades = || activity.partitions.iter().map(|(_, _, cascades, _)| cascades);
    let help = "Times that transactions were undone because they were behind another one.";
    page.by_partition("cascades", help, cascades().map(|of| of.cascades));
    let help = "Transactions undone because they were behind another one.";
    page.by_partition("cascaded", help, cascades().map(|of| of.undone));
    let times = || activity.partitions.iter().map(|(.., times)| times);
    let help = "Time in which a statement had the partition and nothing ran there.";
    page.by_partition("stall_seconds", help, times().map(|of| of.stall.as_secs_f64()));
    let help = "Estimated time that workers spent in the partition.";
    page.by_partition("cpu_seconds", help, times().map(|of| of.cpu.as_secs_f64()));
}

/// Adds the counts of lockstat. `clearway.reset_contention()` sets these counters to 0, as a
/// restart would.
fn waits(page: &mut Page, contention: &[Contention]) {
    let requests: BTreeMap<&str, u64> =
        contention.iter().map(|row| (row.name, row.requests)).collect();
    page.family(
        "contention_requests_total",
        "counter",
        "Requests for latches and locks, by class.",
    );
    for (name, requests) in requests {
        page.sample("contention_requests_total", &[("name", name)], requests);
    }
    let waits = by_module(contention);
    page.family(
        "contention_contended_total",
        "counter",
        "Requests that had to wait, by class and calling module.",
    );
    for ((name, module), (contended, _)) in &waits {
        let labels = [("name", *name), ("module", module.as_str())];
        page.sample("contention_contended_total", &labels, contended);
    }
    page.family(
        "contention_wait_seconds",
        "histogram",
        "Time waited for latches and locks, by class and calling module.",
    );
    for ((name, module), (_, waits)) in &waits {
        let labels = [("name", *name), ("module", module.as_str())];
        let last = waits.buckets().count() - 1;
        let buckets = waits.buckets().enumerate();
        let buckets = buckets.map(|(at, (upper, count))| ((at < last).then_some(upper), count));
        page.histogram("contention_wait_seconds", &labels, buckets, WAIT_STEP, waits.sum_ns());
    }
}

/// Adds up the callers of each module: lines of source files change with every release.
fn by_module(contention: &[Contention]) -> BTreeMap<(&str, String), (u64, Histogram)> {
    let mut sums = BTreeMap::<_, (u64, Histogram)>::new();
    for row in contention.iter().filter(|row| row.contended > 0) {
        let module = row.caller.map_or_else(String::new, |caller| site::module(caller.file));
        let (contended, waits) = sums.entry((row.name, module)).or_default();
        *contended += row.contended;
        waits.merge(&row.waits);
    }
    sums
}

/// A page under construction.
struct Page(String);

impl Page {
    /// Starts a family of samples; `name` excludes the prefix `clearway_`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP clearway_{name} {help}\n# TYPE clearway_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        match labels.as_slice() {
            [] => self.line(format_args!("clearway_{name} {value}")),
            labels => self.line(format_args!("clearway_{name}{{{}}} {value}", labels.join(","))),
        }
    }

    /// Adds a counter with a sample for each partition, in their order.
    fn by_partition(&mut self, name: &str, help: &str, values: impl Iterator<Item = impl Display>) {
        let name = format!("partition_{name}_total");
        self.family(&name, "counter", help);
        for (at, value) in values.enumerate() {
            self.sample(&name, &[("partition", &at.to_string())], value);
        }
    }

    /// Adds the samples of a histogram, whose buckets come in ascending order with their upper
    /// bounds in ns. Exports every `step`-th bound.
    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (Option<u64>, u64)>,
        step: usize,
        sum_ns: u64,
    ) {
        let with_bound = |bound: &str| {
            let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned()));
            labels.chain([("le", bound.to_owned())]).collect::<Vec<_>>()
        };
        let sample = |page: &mut Self, bound: &str, count: u64| {
            let labels = with_bound(bound);
            let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
            page.sample(&format!("{name}_bucket"), &labels, count);
        };
        let mut below = 0;
        for (at, (upper_ns, count)) in buckets.enumerate() {
            below += count;
            if let Some(upper_ns) = upper_ns.filter(|_| at % step == 0) {
                sample(self, &(upper_ns as f64 / 1e9).to_string(), below);
            }
        }
        sample(self, "+Inf", below);
        self.sample(&format!("{name}_sum"), labels, sum_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, below);
    }

    /// Adds a family with one sample, without labels.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Escapes a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_latch::lockstat::Caller;

    fn contended(waits_ns: &[u64]) -> Contention {
        let mut waits = Histogram::default();
        waits_ns.iter().for_each(|ns| waits.add(*ns));
        Contention { name: "a\"b\\c\n", caller: None, requests: 9, contended: waits.count(), waits }
    }

    #[test]
    fn histogram_is_cumulative_and_labels_are_escaped() {
        let mut page = Page(String::new());
        waits(&mut page, &[contended(&[10, 100, 1_000, 1_000_000_000_000])]);
        let labels = r#"name="a\"b\\c\n",module="""#;
        assert!(
            page.0.contains(&format!("\nclearway_contention_wait_seconds_count{{{labels}}} 4\n")),
            "{}",
            page.0
        );
        let buckets: Vec<(f64, u64)> = page
            .0
            .lines()
            .filter_map(|line| {
                line.strip_prefix(&format!(
                    "clearway_contention_wait_seconds_bucket{{{labels},le=\""
                ))
            })
            .map(|rest| rest.split_once("\"} ").unwrap())
            .map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap()))
            .collect();
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 4)));
        let below = |seconds: f64| buckets.iter().rfind(|(bound, _)| *bound <= seconds).unwrap().1;
        assert_eq!((below(1e-7), below(1e-5), below(1.0)), (1, 3, 3));
    }

    #[test]
    fn class_without_waits_has_only_requests() {
        let mut page = Page(String::new());
        waits(&mut page, &[contended(&[])]);
        assert!(
            page.0.contains("clearway_contention_requests_total{name=")
                && !page.0.contains("module="),
            "{}",
            page.0
        );
    }

    #[test]
    fn callers_of_a_module_are_one_series() {
        let row = |file: &'static str, line| Contention {
            caller: Some(Caller { file, line }),
            ..contended(&[100])
        };
        let file = "crates/partition/src/exec/modify.rs";
        let rows = [row(file, 7), row(file, 8), row("crates/buffer/src/lib.rs", 9)];
        let mut page = Page(String::new());
        waits(&mut page, &rows);
        for (module, count) in [("partition::exec::modify", 2), ("buffer", 1)] {
            for sample in ["contended_total", "wait_seconds_count"] {
                let ends = format!("module=\"{module}\"}} {count}");
                let is_sample = |line: &str| line.contains(sample) && line.ends_with(&ends);
                assert!(page.0.lines().any(is_sample), "{}", page.0);
            }
        }
        assert!(!page.0.contains(".rs"), "{}", page.0);
    }

    #[test]
    fn latency_histogram_has_increasing_bounds() {
        let histogram = crate::latency::Histogram::default();
        histogram.record(std::time::Duration::from_millis(3));
        let mut sum = Latency::default();
        sum.add(&histogram);
        let mut page = Page(String::new());
        latency(&mut page, "test_seconds", "A test.", &sum);
        let bounds: Vec<f64> = page
            .0
            .lines()
            .filter_map(|line| line.strip_prefix("clearway_test_seconds_bucket{le=\""))
            .map(|rest| rest.split_once('"').unwrap().0.parse().unwrap())
            .collect();
        assert!(bounds.is_sorted_by(|a, b| a < b) && bounds.len() > 20, "{bounds:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY));
        assert!(page.0.ends_with("_sum 0.003\nclearway_test_seconds_count 1\n"), "{}", page.0);
    }
}
