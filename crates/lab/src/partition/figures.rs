//! The source's figures 4 to 7: their loads, and what the source reports about them.

use super::driven::{Rates, Variant, least, most};
use super::figure::Figure;
use super::judge::PublishedPoint;
use crate::bars::Bound;
use clearway_cluster::SchemeKind;

const BLOCKING: SchemeKind = SchemeKind::Blocking;
const SPECULATIVE: SchemeKind = SchemeKind::Speculative;
const LOCKING: SchemeKind = SchemeKind::Locking;
const PLAIN: Variant = Variant::PLAIN;

pub const LOCKING_IS_LINEAR: &str = "locking from 16 to 100 % at both, furthest from a line, %";
pub const LOCKING_IS_STEEP: &str = "locking, slope below 16 % at both over slope above";
pub const SPECULATION_IS_AHEAD: &str = "speculative over locking, 16 to 50 % at both, least";
pub const CONFLICTS_FAVOUR_SPECULATION: &str = "speculative over locking, all conflict, most";
pub const LOCKING_PASSES_BLOCKING: &str = "locking over blocking, all conflict, 100 % at both";
pub const ABORTS_EQUAL_BLOCKING: &str =
    "speculative over blocking, 10 % abort, 2 to 100 % at both, furthest from 1";
pub const AHEAD_WITH_3: &str = "speculative over locking, 3 % abort, 16 to 50 % at both, least";
pub const LEVEL_WITH_5: &str = "speculative over locking, 5 % abort, 16 to 50 % at both, least";
pub const LOCKING_IS_BEST: &str =
    "locking over the better of the others, 4 to 100 % at both, least";

/// The limit of way (ii).
pub const RECALLED: &str = "\"Driver (ii)\" is the simulated cluster with the source's costs as we \
    recall them: our copy has no table of them. Its coordinator's cost is fitted.";
/// The limit of the optimistic scheme in the simulated cluster.
pub const UNCHARGED: &str = "The source expects optimistic concurrency control to be close to \
    locking, because it must record and validate what a transaction read and wrote. The simulation \
    charges an optimistic transaction only for the locks that it takes until the decision.";

pub const FIG4: Figure = Figure {
    name: "partition/fig4",
    title: "No conflicts, one round",
    variants: &[PLAIN, SESSIONS],
    is_modelled: true,
    points: &[
        PublishedPoint {
            what: LOCKING_IS_LINEAR,
            ours: |rates| {
                let (first, last) =
                    (rates.at(LOCKING, &PLAIN, 16)?, rates.at(LOCKING, &PLAIN, 100)?);
                let off = |percent: u64| {
                    let line = first + (last - first) * (percent - 16) as f64 / 84.0;
                    Some(100.0 * (rates.at(LOCKING, &PLAIN, percent)? / line - 1.0).abs())
                };
                most(rates.percents(16, 100).into_iter().filter_map(off).collect())
            },
            source: None,
            says: "linear",
            bar: Some(Bound::AtMost(5.0)),
            assumption: "",
        },
        PublishedPoint {
            what: LOCKING_IS_STEEP,
            ours: |rates| {
                let at = |percent| rates.at(LOCKING, &PLAIN, percent);
                let (none, few, all) = (at(0)?, at(16)?, at(100)?);
                Some(((none - few) / 16.0) / ((few - all) / 84.0))
            },
            source: None,
            says: "drops steeply below 16 %",
            bar: Some(Bound::AtLeast(2.0)),
            assumption: "",
        },
        PublishedPoint {
            what: SPECULATION_IS_AHEAD,
            ours: |rates| least(rates.ratios([SPECULATIVE, LOCKING], &PLAIN, (16, 50))),
            source: Some(1.10),
            says: "",
            bar: Some(Bound::AtLeast(1.05)),
            assumption: "follows from the recalled cost of locks",
        },
        PublishedPoint {
            what: "speculative over locking, most",
            ours: |rates| most(rates.ratios([SPECULATIVE, LOCKING], &PLAIN, (0, 100))),
            source: Some(1.13),
            says: "",
            bar: None,
            assumption: "follows from the recalled cost of locks",
        },
        PublishedPoint {
            what: "blocking over locking, most",
            ours: |rates| most(rates.ratios([BLOCKING, LOCKING], &PLAIN, (0, 100))),
            source: None,
            says: "never above 1",
            bar: None,
            assumption: "probably that clients cost no CPU",
        },
        PublishedPoint {
            what: "locking over speculative above 50 %, most",
            ours: |rates| most(rates.ratios([LOCKING, SPECULATIVE], &PLAIN, (51, 100))),
            source: Some(1.45),
            says: "",
            bar: None,
            assumption: "coordinator fitted at 50 %",
        },
    ],
    limits: &[
        RECALLED,
        "We have no CPU time of the source's coordinator. It is set such that the coordinator \
         saturates at the model's rate at 50 %, as the source reports. So that point is fitted.",
        "Where each client coordinates its own transactions and requests one partition after the \
         other, as the server does, a transaction holds its first partition for four more \
         messages, so blocking and speculation are slower.",
        UNCHARGED,
    ],
};

/// The load without conflicts and aborts, with the protocol of the server.
pub const SESSIONS: Variant =
    Variant { name: "sessions coordinate", sessions_coordinate: true, ..PLAIN };

const CONFLICTS: [Variant; 3] =
    [conflicts("20 % conflict", 20), conflicts("60 % conflict", 60), ALL];
const ALL: Variant = conflicts("all conflict", 100);
const AT_BOTH: Variant =
    Variant { conflicts_at_both: true, ..conflicts("all conflict at each partition", 100) };

const fn conflicts(name: &'static str, conflicts: u64) -> Variant {
    Variant { name, conflicts, ..PLAIN }
}

pub const FIG5: Figure = Figure {
    name: "partition/fig5",
    title: "Conflicts, one round",
    variants: &[PLAIN, CONFLICTS[0], CONFLICTS[1], CONFLICTS[2], AT_BOTH],
    is_modelled: false,
    points: &[
        PublishedPoint {
            what: CONFLICTS_FAVOUR_SPECULATION,
            ours: |rates| most(rates.ratios([SPECULATIVE, LOCKING], &ALL, (0, 100))),
            source: Some(2.5),
            says: "",
            bar: Some(Bound::AtLeast(2.5)),
            assumption: "one shared key a partition, used first",
        },
        PublishedPoint {
            what: LOCKING_PASSES_BLOCKING,
            ours: |rates| rates.over([LOCKING, BLOCKING], &ALL, 100),
            source: None,
            says: "ahead with many at both",
            bar: Some(Bound::AtLeast(1.0)),
            assumption: "",
        },
        PublishedPoint {
            what: "speculative, all conflict over none, 30 % at both",
            ours: |rates| conflicts_over_none(rates, SPECULATIVE),
            source: None,
            says: "unchanged",
            bar: None,
            assumption: "follows from the scheme",
        },
        PublishedPoint {
            what: "blocking, all conflict over none, 30 % at both",
            ours: |rates| conflicts_over_none(rates, BLOCKING),
            source: None,
            says: "unchanged",
            bar: None,
            assumption: "follows from the scheme",
        },
        PublishedPoint {
            what: "locking, all conflict over none, 30 % at both",
            ours: |rates| conflicts_over_none(rates, LOCKING),
            source: None,
            says: "falls",
            bar: None,
            assumption: "",
        },
    ],
    limits: &[
        RECALLED,
        "A transaction that conflicts begins with the only shared key of one of its partitions. The \
         source, too, has conflicts at one partition, and does not say that the key is used first. \
         There, two clients use these keys in all transactions at one partition, and the others \
         with a chance of p; here all clients use them with this chance. With conflicts at each \
         partition, the load is harsher than the source's. There are no deadlocks. Why speculation \
         is less far ahead of locking than in the source is not known.",
        "Blocking and speculation lock no keys, so conflicts change nothing for them here.",
        UNCHARGED,
    ],
};

fn conflicts_over_none(rates: &Rates<'_>, scheme: SchemeKind) -> Option<f64> {
    Some(rates.at(scheme, &ALL, 30)? / rates.at(scheme, &PLAIN, 30)?)
}

const fn aborts(name: &'static str, aborts: u64) -> Variant {
    Variant { name, aborts, ..PLAIN }
}

const THREE: Variant = aborts("3 % abort", 3);
const FIVE: Variant = aborts("5 % abort", 5);
const TEN: Variant = aborts("10 % abort", 10);

pub const FIG6: Figure = Figure {
    name: "partition/fig6",
    title: "Aborts, one round",
    variants: &[PLAIN, THREE, FIVE, TEN],
    is_modelled: false,
    points: &[
        PublishedPoint {
            what: ABORTS_EQUAL_BLOCKING,
            ours: |rates| {
                let ratios = rates.ratios([SPECULATIVE, BLOCKING], &TEN, (2, 100));
                most(ratios.into_iter().map(|ratio| (ratio - 1.0).abs()).collect())
            },
            source: None,
            says: "near 0",
            bar: Some(Bound::AtMost(0.15)),
            assumption: "undone ones start over, alone",
        },
        PublishedPoint {
            what: AHEAD_WITH_3,
            ours: |rates| least(rates.ratios([SPECULATIVE, LOCKING], &THREE, (16, 50))),
            source: None,
            says: "ahead",
            bar: Some(Bound::AtLeast(1.0)),
            assumption: "undone ones start over, alone",
        },
        PublishedPoint {
            what: LEVEL_WITH_5,
            ours: |rates| least(rates.ratios([SPECULATIVE, LOCKING], &FIVE, (16, 50))),
            source: None,
            says: "ahead until 5 % abort",
            bar: Some(Bound::AtLeast(0.95)),
            assumption: "undone ones start over, alone",
        },
        PublishedPoint {
            what: "blocking, 10 % abort over none, 30 % at both",
            ours: |rates| Some(rates.at(BLOCKING, &TEN, 30)? / rates.at(BLOCKING, &PLAIN, 30)?),
            source: None,
            says: "slightly above 1",
            bar: None,
            assumption: "",
        },
        PublishedPoint {
            what: "locking, 10 % abort over none, 30 % at both",
            ours: |rates| Some(rates.at(LOCKING, &TEN, 30)? / rates.at(LOCKING, &PLAIN, 30)?),
            source: None,
            says: "slightly above 1",
            bar: None,
            assumption: "",
        },
    ],
    limits: &[
        RECALLED,
        "In the source, a partition undoes the transactions behind an aborted one and runs them \
         again, speculatively, which also takes more messages of the coordinator. Here it does so \
         with transactions at one partition. Those at two start over at their coordinator, and wait \
         until nothing undecided is before them. That is probably why aborts cost speculation more \
         than in the source.",
        "A transaction that aborts costs its fixed part only: it fails at its first row.",
    ],
};

const TWO: Variant = Variant { name: "two rounds", two_rounds: true, ..PLAIN };

pub const FIG7: Figure = Figure {
    name: "partition/fig7",
    title: "No conflicts, two rounds",
    variants: &[TWO],
    is_modelled: false,
    points: &[
        PublishedPoint {
            what: LOCKING_IS_BEST,
            ours: |rates| least(locking_over_others(rates, 4, 100)),
            source: None,
            says: "locking is best",
            bar: Some(Bound::AtLeast(1.0)),
            assumption: "",
        },
        PublishedPoint {
            what: "locking over the better of the others, 2 % at both",
            ours: |rates| least(locking_over_others(rates, 2, 2)),
            source: None,
            says: "locking is not best below 4 %",
            bar: None,
            assumption: "no CPU for a second round",
        },
        PublishedPoint {
            what: "speculative over blocking, most",
            ours: |rates| most(rates.ratios([SPECULATIVE, BLOCKING], &TWO, (2, 100))),
            source: None,
            says: "hardly better",
            bar: None,
            assumption: "no run behind a last round",
        },
    ],
    limits: &[
        RECALLED,
        "The driver charges the rows of both rounds once, and nothing for the messages of the \
         second round. The source has twice as many messages as with one round, and does not give \
         their CPU time. So the costs of locking are those of one round.",
        "In the source, transactions run behind one of several rounds after its last round. Here \
         they never do, so speculation equals blocking: that follows from the scheme.",
        UNCHARGED,
    ],
};

fn locking_over_others(rates: &Rates<'_>, from: u64, to: u64) -> Vec<f64> {
    let over = |percent| {
        let other = |scheme| rates.over([LOCKING, scheme], &TWO, percent);
        Some(other(BLOCKING)?.min(other(SPECULATIVE)?))
    };
    rates.percents(from, to).into_iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 5 of our copy gives these numbers, and words for the other points.
    #[test]
    fn published_numbers_are_in_the_source() {
        let points = [FIG4, FIG5, FIG6, FIG7].map(|figure| figure.points).concat();
        let numbers: Vec<f64> = points.iter().filter_map(|point| point.source).collect();
        assert_eq!(numbers, [1.10, 1.13, 1.45, 2.5]);
        assert!(points.iter().all(|point| point.source.is_some() == point.says.is_empty()));
    }
}
