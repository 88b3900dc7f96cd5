//! The bars of the hot rows.

use super::work::Work;
use super::{CLEARWAY, Case, LARGE, Measure, OFF, POSTGRES, RATE, RETRIED};
use crate::bars::{Bar, Bound, Outcome, Reading};

/// Names of the bars, in the order in which they are judged.
pub const NAMES: &[&str] = &[
    AGAINST[0].name,
    AGAINST[1].name,
    AGAINST[2].name,
    AGAINST[3].name,
    AGAINST[4].name,
    AGAINST[5].name,
    AGAINST[6].name,
    AGAINST[7].name,
    AGAINST[8].name,
    AGAINST[9].name,
    AGAINST[10].name,
    SCALING[0].name,
    SCALING[1].name,
    SCALE,
    AUTOCOMMIT,
    RETRIED_BARS[0].0,
    RETRIED_BARS[1].0,
];

/// Minimum of Clearway's rate over PostgreSQL's.
struct Against {
    name: &'static str,
    work: Work,
    clients: u32,
    at_least: f64,
}

const AGAINST: [Against; 11] = [
    against(
        "FOR UPDATE, then SET v in a block, 16 clients, against PostgreSQL",
        Work::ForUpdate,
        16,
        3.0,
    ),
    against(
        "FOR UPDATE, then SET v in a block, 100 clients, against PostgreSQL",
        Work::ForUpdate,
        100,
        3.0,
    ),
    against(
        "v + 1, then INSERT in a block, 100 clients, against PostgreSQL",
        Work::Increment,
        100,
        8.0,
    ),
    against("tpcb-like, scale 1, 16 clients, against PostgreSQL", Work::TpcbLike, 16, 4.0),
    against("tpcb-like, scale 1, 100 clients, against PostgreSQL", Work::TpcbLike, 100, 8.0),
    against(
        "tpcb-like, scale 1, 5 % ROLLBACK, 100 clients, against PostgreSQL",
        Work::TpcbLikeRollback,
        100,
        6.0,
    ),
    against(
        "tpcb-like, scale 1, one pipeline, 16 clients, against PostgreSQL",
        Work::TpcbLikePipeline,
        16,
        10.0,
    ),
    against(
        "read, then SET v under SERIALIZABLE, 16 clients, against PostgreSQL",
        Work::ReadThenUpdate,
        16,
        3.0,
    ),
    against(
        "read, then SET v under SERIALIZABLE, 100 clients, against PostgreSQL",
        Work::ReadThenUpdate,
        100,
        3.0,
    ),
    // Nobody waits for a row: what a lone client pays for the threads that serve many.
    against("autocommit v + 1, 1 client, against PostgreSQL", Work::Autocommit, 1, 1.0),
    against("tpcb-like, scale 1, 1 client, against PostgreSQL", Work::TpcbLike, 1, 1.0),
];

/// Minimum rate with many clients, relative to the rate with few.
struct Scaling {
    name: &'static str,
    work: Work,
    many: u32,
    few: u32,
    at_least: f64,
}

const SCALING: [Scaling; 2] = [
    Scaling {
        name: "FOR UPDATE, then SET v in a block, 1,000 clients against 16",
        work: Work::ForUpdate,
        many: 1000,
        few: 16,
        at_least: 0.8,
    },
    Scaling {
        name: "v + 1, then INSERT in a block, 500 clients against 100",
        work: Work::Increment,
        many: 500,
        few: 100,
        at_least: 0.9,
    },
];

/// Rate at one branch that all clients update, against the rate where they rarely conflict.
const SCALE: &str = "tpcb-like, 100 clients, scale 1 against scale 100";
const SCALE_CLIENTS: u32 = 100;
const MIN_SCALE: f64 = 0.85;

/// Cost of the hot-row mechanisms for single-statement transactions, which do not need them.
const AUTOCOMMIT: &str = "autocommit v + 1, 100 clients, against hot_rows off";
const AUTOCOMMIT_CLIENTS: u32 = 100;
const MIN_AUTOCOMMIT: f64 = 0.9;

/// Client counts under SERIALIZABLE.
const RETRIED_BARS: [(&str, u32); 2] = [
    ("read, then SET v under SERIALIZABLE, 16 clients: retryable errors", 16),
    ("read, then SET v under SERIALIZABLE, 100 clients: retryable errors", 100),
];
/// Maximum, in percent of the transactions.
const MAX_RETRIED: f64 = 1.0;

const fn against(name: &'static str, work: Work, clients: u32, at_least: f64) -> Against {
    Against { name, work, clients, at_least }
}

/// Returns true if a bar needs this case.
pub fn needs(work: Work, clients: u32) -> bool {
    AGAINST.iter().any(|bar| (bar.work, bar.clients) == (work, clients))
        || SCALING.iter().any(|bar| bar.work == work && [bar.many, bar.few].contains(&clients))
        || (work, clients) == (Work::Autocommit, AUTOCOMMIT_CLIENTS)
        || wants_scale(work, clients)
}

/// Returns true if [`SCALE`] is judged by this case.
pub fn wants_scale(work: Work, clients: u32) -> bool {
    (work, clients) == (Work::TpcbLike, SCALE_CLIENTS)
}

/// Returns the bars whose cases were run.
pub fn bars(cases: &[Case]) -> Vec<Bar> {
    let reading = |work, clients, contender, measure: &Measure, name: &str| {
        let case = cases.iter().find(|case| (case.work, case.clients) == (work, clients))?;
        Some(Reading::new(name, case.median(contender, measure)?, measure.unit, measure.digits))
    };
    let ratio = |name, at_least, ours: Option<Reading>, peer: Option<Reading>| {
        Some(Bar::ratio(name, Bound::AtLeast(at_least), ours?, peer?))
    };
    let against = AGAINST.iter().map(|bar| {
        let rate = |contender, name| reading(bar.work, bar.clients, contender, &RATE, name);
        ratio(bar.name, bar.at_least, rate(0, CLEARWAY), rate(1, POSTGRES))
    });
    let scaling = SCALING.iter().map(|bar| {
        let of = |clients| reading(bar.work, clients, 0, &RATE, &format!("{clients} clients"));
        ratio(bar.name, bar.at_least, of(bar.many), of(bar.few))
    });
    let autocommit =
        |contender, name| reading(Work::Autocommit, AUTOCOMMIT_CLIENTS, contender, &RATE, name);
    let autocommit = ratio(AUTOCOMMIT, MIN_AUTOCOMMIT, autocommit(0, CLEARWAY), autocommit(2, OFF));
    let scale = |contender, name| reading(Work::TpcbLike, SCALE_CLIENTS, contender, &RATE, name);
    let scale = ratio(SCALE, MIN_SCALE, scale(0, CLEARWAY), scale(4, LARGE));
    let retried = RETRIED_BARS.iter().map(|(name, clients)| {
        let of =
            |contender, name| reading(Work::ReadThenUpdate, *clients, contender, &RETRIED, name);
        let (ours, peer) = (of(0, CLEARWAY)?, of(1, POSTGRES)?);
        let bound = Bound::AtMost(MAX_RETRIED);
        let outcome = Outcome::Measured {
            value: ours.value,
            unit: RETRIED.unit.into(),
            bound,
            readings: vec![ours, peer],
        };
        Some(Bar { name: (*name).into(), outcome })
    });
    against.chain(scaling).chain([scale, autocommit]).chain(retried).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::case;
    use super::*;
    use crate::bars::Verdict;

    fn verdict(bars: &[Bar], name: &str) -> Option<Verdict> {
        bars.iter().find(|bar| bar.name == name).map(|bar| bar.verdict(false))
    }

    #[test]
    fn bars_are_judged_by_their_cases() {
        let cases = [case(Work::ForUpdate, 16, 30.0, 10.0), case(Work::ForUpdate, 1000, 23.9, 1.0)];
        let bars = bars(&cases);
        assert_eq!(verdict(&bars, AGAINST[0].name), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, AGAINST[1].name), None, "its case was not run");
        assert_eq!(
            verdict(&bars, SCALING[0].name),
            Some(Verdict::Short),
            "0.797 of the rate with 16"
        );
    }

    #[test]
    fn one_percent_of_retryable_errors_is_allowed() {
        let mut cases = [
            case(Work::ReadThenUpdate, 16, 30.0, 10.0),
            case(Work::ReadThenUpdate, 100, 29.9, 10.0),
        ];
        cases[1].samples[0].iter_mut().for_each(|sample| sample.retried = 1.1);
        let bars = bars(&cases);
        assert_eq!(verdict(&bars, AGAINST[7].name), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, AGAINST[8].name), Some(Verdict::Short));
        assert_eq!(verdict(&bars, RETRIED_BARS[0].0), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, RETRIED_BARS[1].0), Some(Verdict::Short));
    }
}
