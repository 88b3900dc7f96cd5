//! The known figures of the literature's traces come out, and no policy is better than the optimum.

use crate::cache::{misses, misses_when_freed_ahead};
use clearway_replacement::PolicyKind;
use clearway_traces::{FIGURES, Figure, Known, Trace, directory, generate, load, opt_misses};

/// How far a hit ratio in percent may be from one that is about so: LRU leaves its simulator no
/// choice, and is off by rounding alone. S3-FIFO in a pool of 35 frames is off by 0.45: with as
/// many ghosts as frames, and not as places in the main queue as in its paper, it is by 0.09.
fn tolerance(kind: PolicyKind, frames: u32) -> f64 {
    match kind {
        PolicyKind::Lru => 0.006,
        PolicyKind::S3Fifo if frames < 50 => 0.5,
        _ => 0.3,
    }
}

/// How far it may be from one that a paper printed: by rounding, and where a program may choose (in
/// ARC, whether steps of the target are whole: with steps that are it has 39.06 % of OLTP, with
/// others 38.945 %, and printed is 38.93), by as little as tells the choices apart.
fn printed_tolerance(kind: PolicyKind) -> f64 {
    if kind == PolicyKind::Lru { 0.006 } else { 0.02 }
}

/// What is wrong with a policy's misses.
fn judge(
    kind: PolicyKind,
    frames: u32,
    trace: &Trace,
    known: Known,
    found: u64,
) -> Result<(), String> {
    let percent = trace.hit_percent(found);
    let (right, expected) = match known {
        Known::Misses(misses) | Known::MissesOfFirst(misses, _) => {
            (found == misses, format!("{misses} misses"))
        }
        Known::Printed(printed) => {
            ((percent - printed).abs() <= printed_tolerance(kind), format!("{printed} %"))
        }
        Known::About(about) => {
            ((percent - about).abs() <= tolerance(kind, frames), format!("about {about} %"))
        }
    };
    if right {
        Ok(())
    } else {
        Err(format!("{kind} has {found} misses, {percent:.3} %, not {expected}"))
    }
}

fn check(figure: &Figure, trace: &Trace) -> Vec<String> {
    let fault = |(name, known): &(&str, Known)| {
        let kind = name.parse::<PolicyKind>().ok()?;
        let counted = match known {
            Known::MissesOfFirst(_, accesses) => &trace.pages[..trace.pages.len().min(*accesses)],
            _ => &trace.pages,
        };
        let found = misses(&mut *kind.build(figure.frames), figure.frames, counted);
        judge(kind, figure.frames, trace, *known, found).err()
    };
    figure
        .known
        .iter()
        .filter_map(fault)
        .map(|fault| format!("{} at {}: {fault}", figure.trace, figure.frames))
        .collect()
}

#[test]
fn known_figures_come_out() {
    let mut faults = Vec::new();
    let (mut trace, mut seen): (Option<Trace>, u32) = (None, 0);
    for figure in FIGURES {
        if trace.as_ref().is_none_or(|trace| trace.name != figure.trace) {
            trace = load(figure.trace).map(|read| read.unwrap_or_else(|error| panic!("{error}")));
        }
        if let Some(trace) = &trace {
            faults.extend(check(figure, trace));
            seen += 1;
        }
    }
    if seen == 0 {
        eprintln!(
            "no traces in {}: no figure was checked, generated traces only",
            directory().display()
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// No policy is better than OPT, and each is better than nothing where there is something to gain.
#[test]
fn no_policy_is_better_than_the_optimum() {
    for frames in [1, 10, 500] {
        for trace in generate::all(frames, 30_000, 13) {
            let fewest = opt_misses(&trace.pages, frames);
            for kind in PolicyKind::ALL {
                let found = misses(&mut *kind.build(frames), frames, &trace.pages);
                assert!(
                    found >= fewest,
                    "{kind} on {}, {frames} frames: {found} misses, OPT {fewest}",
                    trace.name
                );
                let skewed = frames == 500 && trace.name == "zipf";
                let gain = trace.hit_percent(found) / trace.hit_percent(fewest);
                assert!(
                    !skewed || gain > 0.7,
                    "{kind} has {gain:.2} of the hits that OPT has on {}",
                    trace.name
                );
            }
        }
    }
}

/// A pool frees frames ahead of need, and cannot say for which pages: that costs a policy no more
/// hits than those frames are worth, to a point. (A policy whose new pages have few frames has none
/// of them left after one batch, and must not take that for room for others.)
#[test]
fn frames_freed_ahead_cost_no_more_than_they_are_worth() {
    let (frames, ahead) = (640, 20);
    for trace in generate::all(frames, 60_000, 14) {
        for kind in PolicyKind::ALL {
            let freed =
                misses_when_freed_ahead(&mut *kind.build(frames), frames, ahead, &trace.pages);
            let smaller = misses(&mut *kind.build(frames - ahead), frames - ahead, &trace.pages);
            let (found, expected) = (trace.hit_percent(freed), trace.hit_percent(smaller));
            assert!(
                found > expected - 1.0,
                "{kind} on {}: {found:.2} % of hits, not {expected:.2}",
                trace.name
            );
        }
    }
}
