//! The server's counters at one moment, and their changes between two moments.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The query for [`State`] and [`Counts`].
pub(super) const ACTIVITY: &str = "SELECT version, uptime_s, sessions, commits_waiting, lock_waiters, pool_frames, pool_free, \
     pool_dirty, statements, committed, aborted, errors, received_bytes, sent_bytes, page_reads, page_writes, log_bytes, \
     log_syncs, deadlocks FROM clearway.activity";
/// The query for the waits.
pub(super) const CONTENTION: &str =
    "SELECT name, caller, requests, contended, total_wait_us, p99_wait_us FROM clearway.contention";
/// The query for the latency histograms.
pub(super) const LATENCY: &str = "SELECT name, lower_us, upper_us, count FROM clearway.latency";

/// The current state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) version: String,
    pub(super) uptime_s: f64,
    pub(super) sessions: f64,
    pub(super) commits_waiting: f64,
    pub(super) lock_waiters: f64,
    pub(super) pool_frames: f64,
    pub(super) pool_free: f64,
    pub(super) pool_dirty: f64,
}

/// Counters, or their changes in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) statements: f64,
    pub(super) committed: f64,
    pub(super) aborted: f64,
    pub(super) errors: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
    pub(super) page_reads: f64,
    pub(super) page_writes: f64,
    pub(super) log_bytes: f64,
    pub(super) log_syncs: f64,
    pub(super) deadlocks: f64,
}

/// The waits of one caller for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waits {
    pub(super) contended: f64,
    pub(super) total_us: f64,
    /// Since the counters were last reset, not for the interval.
    pub(super) p99_us: f64,
}

/// A class and the caller that waited; the caller is empty if nobody waited.
type Place = (String, String);

/// A bucket of a histogram: its name and its index in the query's order of bounds.
type Bucket = (String, u64);

/// The contents of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    lower_us: f64,
    upper_us: f64,
    count: f64,
}

/// The server's answers at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    state: State,
    counts: Counts,
    /// By class.
    requests: BTreeMap<String, f64>,
    waits: BTreeMap<Place, Waits>,
    latency: BTreeMap<Bucket, Times>,
}

/// A line of the table of waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Empty if nobody waited.
    pub(super) caller: String,
    /// Requests of the whole class.
    pub(super) requests: f64,
    pub(super) waits: Waits,
}

/// Percentiles of latency in an interval, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
}

/// The changes between two samples.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) state: State,
    /// Its length.
    pub(super) seconds: f64,
    pub(super) counts: Counts,
    /// `None` if there were no statements.
    pub(super) statements: Option<Percentiles>,
    /// `None` if there were no commits.
    pub(super) commits: Option<Percentiles>,
    /// First callers that waited, by lost time; then classes without waits, by requests.
    pub(super) lines: Vec<Line>,
}

/// Parses the next value of a row.
fn number(values: &mut impl Iterator<Item = String>) -> Option<f64> {
    values.next()?.parse().ok()
}

impl Sample {
    /// Parses the answers to [`ACTIVITY`], [`CONTENTION`] and [`LATENCY`]; `None` if they are
    /// malformed.
    pub(super) fn read(
        activity: &[Vec<String>],
        contention: &[Vec<String>],
        latency: &[Vec<String>],
    ) -> Option<Self> {
        let [row] = activity else { return None };
        let mut row = row.iter().cloned();
        let version = row.next()?;
        let mut next = || number(&mut row);
        let state = State {
            version,
            uptime_s: next()?,
            sessions: next()?,
            commits_waiting: next()?,
            lock_waiters: next()?,
            pool_frames: next()?,
            pool_free: next()?,
            pool_dirty: next()?,
        };
        let counts = Counts {
            statements: next()?,
            committed: next()?,
            aborted: next()?,
            errors: next()?,
            received: next()?,
            sent: next()?,
            page_reads: next()?,
            page_writes: next()?,
            log_bytes: next()?,
            log_syncs: next()?,
            deadlocks: next()?,
        };
        let (mut requests, mut waits) = (BTreeMap::new(), BTreeMap::new());
        for row in contention {
            let mut row = row.iter().cloned();
            let place = (row.next()?, row.next()?);
            let mut next = || number(&mut row);
            requests.insert(place.0.clone(), next()?);
            waits.insert(place, Waits { contended: next()?, total_us: next()?, p99_us: next()? });
        }
        let latency = latency.iter().map(|row| times(row)).collect::<Option<_>>()?;
        Some(Self { state, counts, requests, waits, latency })
    }

    /// Returns the changes since an earlier sample. A counter that has decreased was reset to 0 in
    /// between.
    pub(super) fn since(&self, before: &Self) -> Interval {
        let mut waited = BTreeMap::new();
        for (place, now) in &self.waits {
            let then = before.waits.get(place).copied().unwrap_or_default();
            let contended = grown(now.contended, then.contended);
            if contended > 0.0 {
                let total_us = grown(now.total_us, then.total_us);
                waited.insert(place, Waits { contended, total_us, p99_us: now.p99_us });
            }
        }
        let mut lines = Vec::new();
        for (name, now) in &self.requests {
            let requests = grown(*now, before.requests.get(name).copied().unwrap_or_default());
            let line = |caller: &str, waits| Line {
                name: name.clone(),
                caller: caller.to_owned(),
                requests,
                waits,
            };
            let of_class: Vec<Line> = waited
                .iter()
                .filter(|((n, _), _)| n == name)
                .map(|((_, caller), w)| line(caller, *w))
                .collect();
            if of_class.is_empty() && requests > 0.0 {
                lines.push(line("", Waits::default()));
            }
            lines.extend(of_class);
        }
        let lost = |line: &Line| (line.waits.total_us, line.requests);
        lines.sort_by(|a, b| lost(b).partial_cmp(&lost(a)).unwrap_or(Ordering::Equal));
        let seconds = grown(self.state.uptime_s, before.state.uptime_s).max(1e-3);
        Interval {
            state: self.state.clone(),
            seconds,
            counts: self.counts.since(&before.counts),
            statements: self.percentiles(before, "statement"),
            commits: self.percentiles(before, "commit"),
            lines,
        }
    }

    fn percentiles(&self, before: &Self, name: &str) -> Option<Percentiles> {
        let since: Vec<Times> = self
            .latency
            .iter()
            .filter(|((n, _), _)| n == name)
            .map(|(bucket, now)| {
                let then = before.latency.get(bucket).map_or(0.0, |times| times.count);
                Times { count: grown(now.count, then), ..*now }
            })
            .collect();
        let total: f64 = since.iter().map(|times| times.count).sum();
        let at = |q: f64| quantile(&since, total * q);
        (total > 0.0).then(|| Percentiles { p50_us: at(0.5), p95_us: at(0.95), p99_us: at(0.99) })
    }
}

/// Parses a row of [`LATENCY`]. The last bucket has no upper bound, which is an empty text.
fn times(row: &[String]) -> Option<(Bucket, Times)> {
    let [name, lower_us, upper_us, count] = row else { return None };
    let lower_us: f64 = lower_us.parse().ok()?;
    let upper_us = if upper_us.is_empty() { lower_us } else { upper_us.parse().ok()? };
    let bucket = (name.clone(), (lower_us * 1e3) as u64);
    Some((bucket, Times { lower_us, upper_us, count: count.parse().ok()? }))
}

/// Returns the time that `wanted` of the counted times did not exceed, interpolated within its
/// bucket.
fn quantile(buckets: &[Times], wanted: f64) -> f64 {
    let mut below = 0.0;
    for Times { lower_us, upper_us, count } in buckets {
        if *count > 0.0 && below + count >= wanted {
            return lower_us + (upper_us - lower_us) * ((wanted - below) / count);
        }
        below += count;
    }
    0.0
}

fn grown(now: f64, then: f64) -> f64 {
    if now >= then { now - then } else { now }
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        Self {
            statements: grown(self.statements, before.statements),
            committed: grown(self.committed, before.committed),
            aborted: grown(self.aborted, before.aborted),
            errors: grown(self.errors, before.errors),
            received: grown(self.received, before.received),
            sent: grown(self.sent, before.sent),
            page_reads: grown(self.page_reads, before.page_reads),
            page_writes: grown(self.page_writes, before.page_writes),
            log_bytes: grown(self.log_bytes, before.log_bytes),
            log_syncs: grown(self.log_syncs, before.log_syncs),
            deadlocks: grown(self.deadlocks, before.deadlocks),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn texts(row: &str) -> Vec<String> {
        row.split(',').map(str::to_owned).collect()
    }

    /// Returns a sample with this uptime, number of commits and rows of contention.
    pub(in crate::top) fn sample(uptime_s: f64, committed: u64, contention: &[&str]) -> Sample {
        let activity = texts(&format!(
            "0.1.0,{uptime_s},3,1,2,1024,1000,7,{committed},{committed},0,0,0,0,0,0,0,0,0"
        ));
        let contention: Vec<Vec<String>> = contention.iter().map(|row| texts(row)).collect();
        Sample::read(&[activity], &contention, &[]).unwrap()
    }

    /// Returns the sample with these rows of latency.
    pub(in crate::top) fn with_latency(sample: &Sample, latency: &[&str]) -> Sample {
        let latency: Option<_> = latency.iter().map(|row| times(&texts(row))).collect();
        Sample { latency: latency.unwrap(), ..sample.clone() }
    }

    #[test]
    fn percentiles_are_those_of_the_interval() {
        let empty = sample(10.0, 0, &[]);
        let before = with_latency(&empty, &["commit,0,1,7", "statement,10,15,5"]);
        let rows =
            ["commit,0,1,7", "statement,10,15,95", "statement,1000,1500,9", "statement,9e7,,1"];
        let interval = with_latency(&empty, &rows).since(&before);
        let Percentiles { p50_us, p95_us, p99_us } = interval.statements.unwrap();
        assert_eq!(interval.commits, None);
        assert!((10.0..15.0).contains(&p50_us), "{p50_us}");
        assert!((1000.0..1500.0).contains(&p95_us) && p99_us > p95_us, "{p95_us} {p99_us}");
        assert!(times(&texts("statement,1,2")).is_none() && times(&texts("a,1,2,x")).is_none());
    }

    #[test]
    fn interval_has_the_changes_by_lost_time() {
        let before = sample(10.0, 100, &["a,,50,0,0,0", "b,x:1,70,3,30,9", "c,,5,0,0,0"]);
        let after = sample(
            12.0,
            300,
            &[
                "a,y:2,60,2,90,50",
                "b,x:1,90,4,40,9",
                "b,z:3,90,1,500,500",
                "c,,5,0,0,0",
                "d,,8,0,0,0",
            ],
        );
        let interval = after.since(&before);
        assert_eq!((interval.seconds, interval.counts.committed), (2.0, 200.0));
        let lines: Vec<(&str, &str, f64, f64, f64)> = interval
            .lines
            .iter()
            .map(|l| {
                (
                    l.name.as_str(),
                    l.caller.as_str(),
                    l.requests,
                    l.waits.contended,
                    l.waits.total_us,
                )
            })
            .collect();
        let expected = [
            ("b", "z:3", 20.0, 1.0, 500.0),
            ("a", "y:2", 10.0, 2.0, 90.0),
            ("b", "x:1", 20.0, 1.0, 10.0),
            ("d", "", 8.0, 0.0, 0.0),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn decreased_counters_were_reset() {
        let before = sample(100.0, 900, &["a,x:1,50,40,900,9"]);
        let after = sample(3.0, 30, &["a,x:1,6,2,8,9"]);
        let interval = after.since(&before);
        assert_eq!((interval.seconds, interval.counts.committed), (3.0, 30.0));
        assert_eq!((interval.lines[0].requests, interval.lines[0].waits.total_us), (6.0, 8.0));
    }

    #[test]
    fn malformed_answers_are_rejected() {
        assert!(Sample::read(&[], &[], &[]).is_none());
        assert!(Sample::read(&[texts("0.1.0,1,2")], &[], &[]).is_none());
        let activity = [texts("0.1.0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1")];
        assert!(Sample::read(&activity, &[], &[]).is_some());
        assert!(Sample::read(&activity, &[texts("a,,x,1,1,1")], &[]).is_none());
        assert!(Sample::read(&activity, &[], &[texts("statement,1")]).is_none());
    }
}
