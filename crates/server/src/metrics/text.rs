//! The server's numbers in Prometheus' text format.
//!
//! Source: Prometheus documentation, "Exposition formats", version 0.0.4, and "Metric and label
//! naming".

use crate::activity::Activity;
use crate::counters::CLASSES;
use crate::latches::Latches;
use clearway_latch::lockstat::Contention;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Of the histogram's buckets, two a doubling, every so many-th is told: a factor of 4 from one
/// bound to the next.
const TOLD: usize = 4;

/// All metrics.
pub(super) fn page(activity: &Activity, latches: &Latches, contention: &[Contention]) -> String {
    let mut page = Page(String::new());
    server(&mut page, activity);
    engine(&mut page, activity);
    page.family("latch_info", "gauge", "By which instructions latches are taken.");
    page.sample("latch_info", &[("choice", latches.choice.name())], 1);
    let help = "Pauses at a held latch before a thread yields or sleeps; twice as many if it is mostly held briefly.";
    page.one("latch_spin_limit", "gauge", help, latches.spin_limit);
    waits(&mut page, contention);
    page.0
}

fn server(page: &mut Page, activity: &Activity) {
    let Activity { uptime, sessions, totals, .. } = activity;
    page.family("build_info", "gauge", "The version that runs.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.one("uptime_seconds", "gauge", "Time since the start.", uptime.as_secs_f64());
    page.one("sessions", "gauge", "Connections now.", sessions);
    page.one("statements_total", "counter", "Statements started.", totals.statements);
    page.family("errors_total", "counter", "Errors told to clients, by class of SQLSTATE.");
    for (class, errors) in CLASSES.iter().zip(totals.errors) {
        page.sample("errors_total", &[("class", class)], errors);
    }
    page.one("received_bytes_total", "counter", "Bytes received from clients.", totals.received);
    page.one("sent_bytes_total", "counter", "Bytes sent to clients.", totals.sent);
    page.one(
        "commits_waiting",
        "gauge",
        "Sessions whose replies wait for the log now.",
        totals.commits_waiting,
    );
}

fn engine(page: &mut Page, activity: &Activity) {
    let engine = &activity.engine;
    page.family("transactions_total", "counter", "Transactions that have ended, by how.");
    page.sample("transactions_total", &[("outcome", "committed")], engine.committed);
    page.sample("transactions_total", &[("outcome", "aborted")], engine.aborted);
    let used = engine.pool_frames.saturating_sub(engine.pool_free);
    for (name, help, frames) in [
        ("pool_frames", "Frames of the buffer pool.", engine.pool_frames),
        ("pool_used_frames", "Frames with a page.", used),
        ("pool_free_frames", "Frames without a page.", engine.pool_free),
        (
            "pool_dirty_frames",
            "Frames with a page that differs from the disk's.",
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
        ("page_reads_total", "Pages read from their places on disk.", engine.page_reads),
        ("page_writes_total", "Pages written to disk.", engine.page_writes),
        ("page_evictions_total", "Pages that left the buffer pool.", engine.page_evictions),
        ("frame_waits_total", "Reads of pages that waited for a free frame.", engine.frame_waits),
        (
            "second_level_hits_total",
            "Reads answered by the second-level cache.",
            engine.second_level_hits,
        ),
        ("second_level_misses_total", "Reads that it did not answer.", engine.second_level_misses),
        (
            "second_level_writes_total",
            "Pages written to the second-level cache.",
            engine.second_level_writes,
        ),
        (
            "second_level_dropped_total",
            "Copies in it that were bad or unreadable.",
            engine.second_level_dropped,
        ),
        (
            "second_level_skipped_total",
            "Pages that its disk had no time for.",
            engine.second_level_skipped,
        ),
        ("log_bytes_total", "Bytes of log since the database was made.", engine.log_bytes),
        ("log_syncs_total", "Syncs of the log for those who commit.", engine.log_syncs),
        ("checkpoints_total", "Checkpoints made.", engine.checkpoints),
        ("replays_total", "Runs of blocks that others' rollbacks had undone.", engine.replays),
    ] {
        page.one(name, "counter", help, count);
    }
}

/// What the lockstat has counted. `clearway.reset_contention()` sets these counters to 0, as a
/// restart would.
fn waits(page: &mut Page, contention: &[Contention]) {
    let requests: BTreeMap<&str, u64> =
        contention.iter().map(|row| (row.name, row.requests)).collect();
    page.family(
        "contention_requests_total",
        "counter",
        "Requests for latches and locks of a class.",
    );
    for (name, requests) in requests {
        page.sample("contention_requests_total", &[("name", name)], requests);
    }
    let waited = || contention.iter().filter(|row| row.contended > 0);
    page.family(
        "contention_contended_total",
        "counter",
        "Requests that had to wait, by class and caller.",
    );
    for row in waited() {
        page.sample("contention_contended_total", &labels(row, &caller(row)), row.contended);
    }
    page.family(
        "contention_wait_seconds",
        "histogram",
        "Time waited for latches and locks, by class and caller.",
    );
    for row in waited() {
        histogram(page, row);
    }
}

fn caller(row: &Contention) -> String {
    row.caller.map_or_else(String::new, |caller| caller.to_string())
}

fn labels<'a>(row: &Contention, caller: &'a str) -> [(&'static str, &'a str); 2] {
    [("name", row.name), ("caller", caller)]
}

fn histogram(page: &mut Page, row: &Contention) {
    let caller = caller(row);
    let [name, caller] = labels(row, &caller);
    let mut below = 0;
    let last = row.waits.buckets().count() - 1;
    for (at, (bound_ns, count)) in row.waits.buckets().enumerate() {
        below += count;
        // The last bucket has no bound.
        if at % TOLD == 0 && at < last {
            let bound = (bound_ns as f64 / 1e9).to_string();
            page.sample("contention_wait_seconds_bucket", &[name, caller, ("le", &bound)], below);
        }
    }
    page.sample("contention_wait_seconds_bucket", &[name, caller, ("le", "+Inf")], below);
    page.sample("contention_wait_seconds_sum", &[name, caller], row.waits.sum_ns() as f64 / 1e9);
    page.sample("contention_wait_seconds_count", &[name, caller], below);
}

/// A page in the making.
struct Page(String);

impl Page {
    /// Says what samples of this name, without `clearway_`, mean.
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

    /// A family with one sample, without labels.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// A label's value, in quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_latch::lockstat::Histogram;

    fn contended(waits_ns: &[u64]) -> Contention {
        let mut waits = Histogram::default();
        waits_ns.iter().for_each(|ns| waits.add(*ns));
        Contention { name: "a\"b\\c\n", caller: None, requests: 9, contended: waits.count(), waits }
    }

    #[test]
    fn a_histogram_is_cumulative_and_its_labels_are_escaped() {
        let mut page = Page(String::new());
        waits(&mut page, &[contended(&[10, 100, 1_000, 1_000_000_000_000])]);
        let labels = r#"name="a\"b\\c\n",caller="""#;
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
    fn a_class_that_nobody_waited_for_has_its_requests_only() {
        let mut page = Page(String::new());
        waits(&mut page, &[contended(&[])]);
        assert!(
            page.0.contains("clearway_contention_requests_total{name=")
                && !page.0.contains("caller="),
            "{}",
            page.0
        );
    }
}
