//! The order of one register's versions, as far as it can be inferred.
//!
//! Version 0 is the state before the first write. Sources of order:
//! 1. Version 0 comes before every other one.
//! 2. If a transaction reads a version and then writes, its version comes after that one.
//! 3. With real time: a version that a transaction left comes before a version that a transaction
//!    found if the former ended before the latter started. Only direct predecessors are returned;
//!    the other pairs follow from these.

/// The times at which a version was in use.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The earliest end of a transaction that left the register at this version.
    pub left: u64,
    /// The latest start of a transaction that found this version, or wrote it without reading.
    pub found: u64,
}

/// Version `before` comes before version `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub before: u32,
    pub after: u32,
    /// Whether only real time implies the order.
    pub by_time: bool,
}

/// Returns the known order, or versions that cannot be ordered. `uses` has one entry per version;
/// `None`: ignore real time.
pub fn order(
    count: usize,
    follows: &[(u32, u32)],
    uses: Option<&[Use]>,
) -> Result<Vec<Pair>, Vec<u32>> {
    let pair = |(before, after): (u32, u32), by_time| Pair { before, after, by_time };
    let mut pairs: Vec<Pair> = follows.iter().map(|p| pair(*p, false)).collect();
    if let Some(uses) = uses {
        in_time(uses, &mut pairs);
    }
    pairs.sort_unstable();
    pairs.dedup_by_key(|p| (p.before, p.after));
    let mut has_earlier = vec![false; count];
    pairs.iter().for_each(|p| has_earlier[p.after as usize] = true);
    pairs.extend(
        (1..count as u32).filter(|v| !has_earlier[*v as usize]).map(|v| pair((0, v), false)),
    );
    let contradictory = in_cycles(count, &pairs);
    if contradictory.is_empty() { Ok(pairs) } else { Err(contradictory) }
}

/// Adds the pairs `u`, `v` with `left(u) < found(v)`, except those that follow from two others.
///
/// If the versions are sorted by `left`, the predecessors of `v` are a prefix. In this prefix, `u`
/// is a direct predecessor if no other member was found after `u` was left. The loop runs backwards
/// and ends once two members exclude everything before.
fn in_time(uses: &[Use], pairs: &mut Vec<Pair>) {
    let mut sorted: Vec<u32> =
        (1..uses.len() as u32).filter(|v| uses[*v as usize].left < u64::MAX).collect();
    sorted.sort_unstable_by_key(|v| uses[*v as usize].left);
    let found = |v: u32| uses[v as usize].found;
    // The three members of each prefix that were found last.
    let mut tops: Vec<[u32; 3]> = vec![[0; 3]];
    for v in &sorted {
        let mut top = tops[tops.len() - 1];
        if let Some(at) = top.iter().position(|t| *t == 0 || found(*t) < found(*v)) {
            top[at..].rotate_right(1);
            top[at] = *v;
        }
        tops.push(top);
    }
    for after in 1..uses.len() as u32 {
        let length = sorted.partition_point(|u| uses[*u as usize].left < found(after));
        let top = tops[length];
        for before in sorted[..length].iter().rev().filter(|u| **u != after) {
            let left = uses[*before as usize].left;
            let excluded_by = |t: &&u32| **t != 0 && **t != after && left < found(**t);
            match top.iter().filter(excluded_by).filter(|t| *t != before).count() {
                0 => pairs.push(Pair { before: *before, after, by_time: true }),
                1 => {}
                _ => break,
            }
        }
    }
}

/// Returns the versions that cannot be ordered: the remainder after repeatedly removing versions
/// without predecessors, then versions without successors.
fn in_cycles(count: usize, pairs: &[Pair]) -> Vec<u32> {
    let mut alive = vec![true; count];
    for forward in [true, false] {
        let ends = |p: &Pair| if forward { (p.before, p.after) } else { (p.after, p.before) };
        let (mut entering, mut leaving) = (vec![0_u32; count], vec![Vec::new(); count]);
        for (from, to) in
            pairs.iter().map(ends).filter(|(f, t)| alive[*f as usize] && alive[*t as usize])
        {
            entering[to as usize] += 1;
            leaving[from as usize].push(to);
        }
        let mut free: Vec<u32> = (0..count as u32)
            .filter(|v| alive[*v as usize] && entering[*v as usize] == 0)
            .collect();
        while let Some(v) = free.pop() {
            alive[v as usize] = false;
            for to in &leaving[v as usize] {
                entering[*to as usize] -= 1;
                if entering[*to as usize] == 0 {
                    free.push(*to);
                }
            }
        }
    }
    (0..count as u32).filter(|v| alive[*v as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the transitive closure of the pairs.
    fn closure(count: usize, pairs: &[Pair]) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; count]; count];
        pairs.iter().for_each(|p| reach[p.before as usize][p.after as usize] = true);
        for via in 0..count {
            for from in 0..count {
                for to in 0..count {
                    reach[from][to] |= reach[from][via] && reach[via][to];
                }
            }
        }
        reach
    }

    #[test]
    fn reduction_keeps_the_transitive_closure() {
        let mut state = 3_u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for round in 0..300 {
            let count = 9;
            let mut uses = vec![Use { left: u64::MAX, found: 0 }];
            for v in 1..count as u64 {
                // Half of the rounds use versions that have an order.
                let at = if round % 2 == 0 { 10 * v } else { below(60) };
                let left = if below(6) == 0 { u64::MAX } else { at + below(9) };
                uses.push(Use { left, found: (at + below(9)).saturating_sub(4 + below(20)) });
            }
            let mut reduced = Vec::new();
            in_time(&uses, &mut reduced);
            let versions = (1..count).flat_map(|u| (1..count).map(move |v| (u, v)));
            let is_before = |(u, v): &(usize, usize)| u != v && uses[*u].left < uses[*v].found;
            let pair = |(u, v)| Pair { before: u as u32, after: v as u32, by_time: true };
            let all: Vec<Pair> = versions.filter(is_before).map(pair).collect();
            if in_cycles(count, &all).is_empty() {
                assert_eq!(closure(count, &reduced), closure(count, &all));
            }
        }
    }

    #[test]
    fn cyclic_versions_are_returned() {
        assert_eq!(order(4, &[(1, 2), (2, 1), (2, 3)], None), Err(vec![1, 2]));
        let first = Pair { before: 0, after: 2, by_time: false };
        assert_eq!(
            order(3, &[(2, 1)], None),
            Ok(vec![Pair { before: 2, after: 1, by_time: false }, first])
        );
    }
}
