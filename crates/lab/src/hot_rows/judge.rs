//! The bars of hot rows.

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
    CROWDS[0].name,
    CROWDS[1].name,
    SCALE,
    AUTOCOMMIT,
    TRY_AGAIN[0].0,
    TRY_AGAIN[1].0,
];

/// The least that Clearway's rate over PostgreSQL's may be.
struct Against {
    name: &'static str,
    work: Work,
    clients: u32,
    at_least: f64,
}

const AGAINST: [Against; 9] = [
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
];

/// The least that is left of the rate of few clients with many.
struct Crowd {
    name: &'static str,
    work: Work,
    many: u32,
    few: u32,
    at_least: f64,
}

const CROWDS: [Crowd; 2] = [
    Crowd {
        name: "FOR UPDATE, then SET v in a block, 1,000 clients against 16",
        work: Work::ForUpdate,
        many: 1000,
        few: 16,
        at_least: 0.8,
    },
    Crowd {
        name: "v + 1, then INSERT in a block, 500 clients against 100",
        work: Work::Increment,
        many: 500,
        few: 100,
        at_least: 0.9,
    },
];

/// What is left of the rate where clients rarely meet, at one branch that all of them update.
const SCALE: &str = "tpcb-like, 100 clients, scale 1 against scale 100";
const SCALE_CLIENTS: u32 = 100;
const SCALE_AT_LEAST: f64 = 0.85;

/// What the mechanisms for hot rows may cost where one-shots need none of them.
const AUTOCOMMIT: &str = "autocommit v + 1, 100 clients, against hot_rows off";
const AUTOCOMMIT_CLIENTS: u32 = 100;
const AUTOCOMMIT_AT_LEAST: f64 = 0.9;

/// How many clients, under SERIALIZABLE.
const TRY_AGAIN: [(&str, u32); 2] = [
    ("read, then SET v under SERIALIZABLE, 16 clients: told to try again", 16),
    ("read, then SET v under SERIALIZABLE, 100 clients: told to try again", 100),
];
/// In percent of the transactions.
const TRY_AGAIN_AT_MOST: f64 = 1.0;

const fn against(name: &'static str, work: Work, clients: u32, at_least: f64) -> Against {
    Against { name, work, clients, at_least }
}

/// Whether a bar is judged by this case.
pub fn needs(work: Work, clients: u32) -> bool {
    AGAINST.iter().any(|bar| (bar.work, bar.clients) == (work, clients))
        || CROWDS.iter().any(|bar| bar.work == work && [bar.many, bar.few].contains(&clients))
        || (work, clients) == (Work::Autocommit, AUTOCOMMIT_CLIENTS)
        || wants_scale(work, clients)
}

/// Whether [`SCALE`] is judged by this case.
pub fn wants_scale(work: Work, clients: u32) -> bool {
    (work, clients) == (Work::TpcbLike, SCALE_CLIENTS)
}

/// The bars whose cases were run.
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
    let crowds = CROWDS.iter().map(|bar| {
        let of = |clients| reading(bar.work, clients, 0, &RATE, &format!("{clients} clients"));
        ratio(bar.name, bar.at_least, of(bar.many), of(bar.few))
    });
    let autocommit =
        |contender, name| reading(Work::Autocommit, AUTOCOMMIT_CLIENTS, contender, &RATE, name);
    let autocommit =
        ratio(AUTOCOMMIT, AUTOCOMMIT_AT_LEAST, autocommit(0, CLEARWAY), autocommit(2, OFF));
    let scale = |contender, name| reading(Work::TpcbLike, SCALE_CLIENTS, contender, &RATE, name);
    let scale = ratio(SCALE, SCALE_AT_LEAST, scale(0, CLEARWAY), scale(3, LARGE));
    let try_again = TRY_AGAIN.iter().map(|(name, clients)| {
        let of =
            |contender, name| reading(Work::ReadThenUpdate, *clients, contender, &RETRIED, name);
        let (ours, peer) = (of(0, CLEARWAY)?, of(1, POSTGRES)?);
        let bound = Bound::AtMost(TRY_AGAIN_AT_MOST);
        let outcome = Outcome::Measured {
            value: ours.value,
            unit: RETRIED.unit.into(),
            bound,
            readings: vec![ours, peer],
        };
        Some(Bar { name: (*name).into(), outcome })
    });
    against.chain(crowds).chain([scale, autocommit]).chain(try_again).flatten().collect()
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
    fn a_bar_is_judged_by_its_case() {
        let cases = [case(Work::ForUpdate, 16, 30.0, 10.0), case(Work::ForUpdate, 1000, 23.9, 1.0)];
        let bars = bars(&cases);
        assert_eq!(verdict(&bars, AGAINST[0].name), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, AGAINST[1].name), None, "its case was not run");
        assert_eq!(
            verdict(&bars, CROWDS[0].name),
            Some(Verdict::Short),
            "0.797 of the rate with 16"
        );
    }

    #[test]
    fn one_percent_may_be_told_to_try_again() {
        let mut cases = [
            case(Work::ReadThenUpdate, 16, 30.0, 10.0),
            case(Work::ReadThenUpdate, 100, 29.9, 10.0),
        ];
        cases[1].samples[0].iter_mut().for_each(|sample| sample.retried = 1.1);
        let bars = bars(&cases);
        assert_eq!(verdict(&bars, AGAINST[7].name), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, AGAINST[8].name), Some(Verdict::Short));
        assert_eq!(verdict(&bars, TRY_AGAIN[0].0), Some(Verdict::Ok));
        assert_eq!(verdict(&bars, TRY_AGAIN[1].0), Some(Verdict::Short));
    }
}
