//! What the runs of the whole server show, in sentences.

use super::{Case, Figures, LATCHED, MEASURES, UNLATCHED, middle};
use crate::number;
use crate::serve::Specimen;

/// Returns the cases with the engine's latch and this many workers.
fn latched(measured: &[(Case, Vec<Figures>)], workers: usize) -> Vec<(&Case, &[Figures])> {
    let of = |(case, _): &&(Case, Vec<Figures>)| {
        case.workers == workers && case.variant.name.starts_with(LATCHED)
    };
    measured.iter().filter(of).map(|(case, runs)| (case, runs.as_slice())).collect()
}

fn worker_counts(measured: &[(Case, Vec<Figures>)]) -> Vec<usize> {
    let mut counts: Vec<usize> = measured.iter().map(|(case, _)| case.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Summarises the cases, by the number of workers.
pub fn found(measured: &[(Case, Vec<Figures>)]) -> Vec<String> {
    let of = |workers| [found_with(measured, workers), found_before(measured, workers)];
    let mut found: Vec<String> =
        worker_counts(measured).into_iter().flat_map(of).flatten().collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    found.push(format!(
        "This machine has {cores} cores, which pgbench shares. At any moment no more threads than that can request the latch, and they hold \
         it only briefly. It cannot show the effects of a hundred cores."
    ));
    found
}

/// Summarises the cases with this many workers; `None` without numbers.
fn found_with(measured: &[(Case, Vec<Figures>)], workers: usize) -> Option<String> {
    let latched = latched(measured, workers);
    let spread = |of: fn(&Figures) -> f64, digits| {
        let medians: Vec<f64> = latched.iter().filter_map(|(_, runs)| middle(runs, of)).collect();
        number::spread(&medians).map(|(least, most)| {
            (number::shown(least, digits), number::shown(most, digits), least, most)
        })
    };
    let (least, most, low, high) = spread(MEASURES[0].of, 0)?;
    let (share_least, share_most, ..) = spread(MEASURES[1].of, 2)?;
    let (waited_least, waited_most, ..) = spread(MEASURES[3].of, 3)?;
    let without = measured
        .iter()
        .find(|(case, _)| case.workers == workers && case.variant.name.starts_with(UNLATCHED));
    let without = without.and_then(|(_, runs)| middle(runs, MEASURES[0].of));
    let without = without
        .map_or(String::new(), |tps| format!("; without the latch {}", number::shown(tps, 0)));
    let ratio = number::shown(high / low, 2);
    Some(format!(
        "{workers} workers: {least} to {most} transactions per second, depending on acquisition and spinning (a factor of {ratio}){without}. \
         {waited_least} to {waited_most} % of the requests for the policy's latch waited, for {share_least} to {share_most} % of the workers' time."
    ))
}

/// Summarises the source's "before": `s_lock` with test-and-set and with compare-and-swap.
fn found_before(measured: &[(Case, Vec<Figures>)], workers: usize) -> Option<String> {
    let of = |specimen: Specimen, of: fn(&Figures) -> f64| {
        let is = |(case, _): &&(Case, Vec<Figures>)| {
            case.workers == workers && case.variant.specimen == Some(specimen)
        };
        middle(&measured.iter().find(is)?.1, of)
    };
    let ours = middle(latched(measured, workers).first()?.1, MEASURES[0].of)?;
    let [tas, cas] = Specimen::S_LOCKS.map(|specimen| of(specimen, MEASURES[0].of));
    let [tas_waits, cas_waits] = Specimen::S_LOCKS.map(|specimen| of(specimen, MEASURES[1].of));
    let [tas_cpu, cas_cpu] = Specimen::S_LOCKS.map(|specimen| of(specimen, MEASURES[6].of));
    let (tas, cas, tas_waits, cas_waits) = (tas?, cas?, tas_waits?, cas_waits?);
    let cpu = match (tas_cpu, cas_cpu) {
        (Some(tas), Some(cas)) => format!(
            " Of the server's CPU time, {} and {} % were in s_lock.",
            number::shown(tas, 2),
            number::shown(cas, 2)
        ),
        _ => String::new(),
    };
    Some(format!(
        "{workers} workers, with s_lock instead of the latch: with test-and-set {} transactions per second and {} % of the workers' time spent \
         waiting for it, with compare-and-swap {} and {} %; with the engine's latch {}.{cpu}",
        number::shown(tas, 0),
        number::shown(tas_waits, 2),
        number::shown(cas, 0),
        number::shown(cas_waits, 2),
        number::shown(ours, 0)
    ))
}

/// Compares with the source.
pub fn agreement(measured: &[(Case, Vec<Figures>)]) -> Vec<String> {
    let ratio = |workers: usize| {
        let rates: Vec<f64> = latched(measured, workers)
            .iter()
            .filter_map(|(_, r)| middle(r, MEASURES[0].of))
            .collect();
        let (least, most) = number::spread(&rates)?;
        Some(format!("{} with {workers} workers", number::shown(most / least, 2)))
    };
    let ratios: Vec<String> = worker_counts(measured).into_iter().filter_map(ratio).collect();
    vec![
        format!(
            "In the source the new acquisition improved throughput by a factor of 4.5 to 4.8. Here acquisition and spinning together make a difference \
             by a factor of {}. The source's problem was a store and a full barrier at each poll, by a hundred processes that only spin, or sleep \
             for a millisecond. The engine's latch does this in none of its settings.",
            ratios.join(", ")
        ),
        "Comparable: the load (pgbench -S, simple protocol, 100 clients, 100 threads, all in memory), and the share of CPU time in \
         the lock, by perf: it includes spinning and excludes sleeping. The source does not say which lock s_lock spins on, nor how often it is \
         taken; here it is one behind every page access. The source's scale is 1,000. The share of the \
         workers' time has no counterpart there: it is the time waited, spinning or asleep, and includes the time that a waiter was runnable \
         without a core. Greenplum has a process for each of 100 clients, and each requests the lock; Clearway has only its workers."
            .into(),
    ]
}
