//! What the server has counted at one moment, and what has changed since another.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The statement whose answer is a [`Counts`].
pub(super) const ACTIVITY: &str = "SELECT version, uptime_s, sessions, commits_waiting, pool_frames, pool_free, pool_dirty, \
     statements, committed, aborted, errors, received_bytes, sent_bytes, page_reads, page_writes, log_bytes, log_syncs \
     FROM clearway.activity";
/// The statement whose answer is the waits.
pub(super) const CONTENTION: &str =
    "SELECT name, caller, requests, contended, total_wait_us, p99_wait_us FROM clearway.contention";

/// How the server stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) version: String,
    pub(super) uptime_s: f64,
    pub(super) sessions: f64,
    pub(super) commits_waiting: f64,
    pub(super) pool_frames: f64,
    pub(super) pool_free: f64,
    pub(super) pool_dirty: f64,
}

/// What grows.
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
}

/// The waits of one caller for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waits {
    pub(super) contended: f64,
    pub(super) total_us: f64,
    /// Since the counts were last reset, and not of the interval.
    pub(super) p99_us: f64,
}

/// A class, and who has waited for it, if somebody has.
type Place = (String, String);

/// One answer of the server.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    state: State,
    counts: Counts,
    /// By class.
    requests: BTreeMap<String, f64>,
    waits: BTreeMap<Place, Waits>,
}

/// A line of what was waited or asked for in an interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Empty: nobody has waited.
    pub(super) caller: String,
    /// Requests of the whole class.
    pub(super) requests: f64,
    pub(super) waits: Waits,
}

/// What happened between two samples.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) state: State,
    /// Its length.
    pub(super) seconds: f64,
    pub(super) counts: Counts,
    /// Those that waited, by the time lost, then the classes that were only asked for, by requests.
    pub(super) lines: Vec<Line>,
}

/// Takes the next number of a row.
fn number(values: &mut impl Iterator<Item = String>) -> Option<f64> {
    values.next()?.parse().ok()
}

impl Sample {
    /// Reads the answers to [`ACTIVITY`] and [`CONTENTION`]; `None` if they are not such.
    pub(super) fn read(activity: &[Vec<String>], contention: &[Vec<String>]) -> Option<Self> {
        let [row] = activity else { return None };
        let mut row = row.iter().cloned();
        let version = row.next()?;
        let mut next = || number(&mut row);
        let state = State {
            version,
            uptime_s: next()?,
            sessions: next()?,
            commits_waiting: next()?,
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
        };
        let (mut requests, mut waits) = (BTreeMap::new(), BTreeMap::new());
        for row in contention {
            let mut row = row.iter().cloned();
            let place = (row.next()?, row.next()?);
            let mut next = || number(&mut row);
            requests.insert(place.0.clone(), next()?);
            waits.insert(place, Waits { contended: next()?, total_us: next()?, p99_us: next()? });
        }
        Some(Self { state, counts, requests, waits })
    }

    /// What has changed since an earlier sample. A count that has gone down was set to 0 in
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
            lines,
        }
    }
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
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn texts(row: &str) -> Vec<String> {
        row.split(',').map(str::to_owned).collect()
    }

    /// A sample of a server that has run so long, committed so much, and of these rows of
    /// contention.
    pub(in crate::top) fn sample(uptime_s: f64, committed: u64, contention: &[&str]) -> Sample {
        let activity = texts(&format!(
            "0.1.0,{uptime_s},3,1,1024,1000,7,{committed},{committed},0,0,0,0,0,0,0,0"
        ));
        let contention: Vec<Vec<String>> = contention.iter().map(|row| texts(row)).collect();
        Sample::read(&[activity], &contention).unwrap()
    }

    #[test]
    fn an_interval_has_what_was_added_by_the_time_lost() {
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
    fn what_has_gone_down_began_anew() {
        let before = sample(100.0, 900, &["a,x:1,50,40,900,9"]);
        let after = sample(3.0, 30, &["a,x:1,6,2,8,9"]);
        let interval = after.since(&before);
        assert_eq!((interval.seconds, interval.counts.committed), (3.0, 30.0));
        assert_eq!((interval.lines[0].requests, interval.lines[0].waits.total_us), (6.0, 8.0));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        assert!(Sample::read(&[], &[]).is_none());
        assert!(Sample::read(&[texts("0.1.0,1,2")], &[]).is_none());
        let activity = texts("0.1.0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1");
        assert!(Sample::read(std::slice::from_ref(&activity), &[]).is_some());
        assert!(Sample::read(&[activity], &[texts("a,,x,1,1,1")]).is_none());
    }
}
