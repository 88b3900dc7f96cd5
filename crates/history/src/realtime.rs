//! Adds the order of sessions and of real time as edges.
//!
//! Real time orders each transaction before every transaction that started after its end: a product
//! of edges. A chain of hidden nodes, the moments, expresses the same order with at most three
//! edges per transaction: from each transaction to the next moment after its end, from each moment
//! to the next, and from the last moment before a start to the transaction that starts.

use crate::graph::{Builder, NO_KEY, SESSION, TIME, VIA};
use crate::history::Head;

/// Adds the order of real time between the transactions that committed.
pub fn add_real_time(builder: &mut Builder, heads: &[Head], committed: &[bool]) {
    // At equal times, starts sort before ends: an end must be strictly before a start to order the
    // two transactions.
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * heads.len());
    for (index, head) in heads.iter().enumerate().filter(|(index, _)| committed[*index]) {
        events.push((head.start, false, index as u32));
        if head.end < u64::MAX {
            events.push((head.end, true, index as u32));
        }
    }
    events.sort_unstable();
    let mut moment: Option<u32> = None;
    let mut has_starts = false;
    for (_, is_end, txn) in events {
        match moment {
            Some(now) if !is_end => {
                builder.add(now, txn, VIA, NO_KEY);
                has_starts = true;
            }
            None if !is_end => {}
            Some(now) if !has_starts => builder.add(txn, now, TIME, NO_KEY),
            before => {
                let now = builder.hidden();
                if let Some(before) = before {
                    builder.add(before, now, VIA, NO_KEY);
                }
                builder.add(txn, now, TIME, NO_KEY);
                (moment, has_starts) = (Some(now), false);
            }
        }
    }
}

/// Adds the order of each session.
pub fn add_sessions(builder: &mut Builder, heads: &[Head], committed: &[bool]) {
    let mut order: Vec<u32> = (0..heads.len() as u32).filter(|i| committed[*i as usize]).collect();
    order.sort_unstable_by_key(|i| (heads[*i as usize].session, heads[*i as usize].start, *i));
    for pair in order.windows(2) {
        if heads[pair[0] as usize].session == heads[pair[1] as usize].session {
            builder.add(pair[0], pair[1], SESSION, NO_KEY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::txn::TxnOutcome;

    fn reaches(graph: &Graph, from: u32, to: u32) -> bool {
        let (mut seen, mut left) = (vec![false; graph.nodes()], vec![from]);
        while let Some(node) = left.pop() {
            for edge in graph.from(node) {
                if edge.to == to {
                    return true;
                }
                if !std::mem::replace(&mut seen[edge.to as usize], true) {
                    left.push(edge.to);
                }
            }
        }
        false
    }

    #[test]
    fn chain_has_exactly_the_order_of_real_time() {
        let mut state = 7_u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..50 {
            let heads: Vec<Head> = (0..20)
                .map(|session| {
                    let start = below(30);
                    let end = if below(8) == 0 { u64::MAX } else { start + below(8) };
                    Head { session, first: 0, start, end, outcome: TxnOutcome::Committed }
                })
                .collect();
            let committed: Vec<bool> = (0..20).map(|_| below(5) > 0).collect();
            let mut builder = Builder::new(20);
            add_real_time(&mut builder, &heads, &committed);
            let graph = builder.build();
            assert!(graph.edge_count() <= 3 * 20);
            for (a, b) in (0..20).flat_map(|a| (0..20).map(move |b| (a, b))) {
                let both = committed[a] && committed[b];
                assert_eq!(
                    reaches(&graph, a as u32, b as u32),
                    both && heads[a].end < heads[b].start
                );
            }
        }
    }
}
