//! What transactions do.

use crate::config::ClusterConfig;
use clearway_testkit::Rng;
use clearway_types::PartitionId;

/// A transaction's work at one partition in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub at: PartitionId,
    pub keys: Vec<u32>,
}

/// Whether a transaction aborts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    No,
    /// The fragment of this round at this partition fails.
    Fragment(usize, PartitionId),
    /// The client aborts it after its last round.
    AtEnd,
}

/// A transaction. With one round of one fragment it is a one-shot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Not empty; no round is.
    pub rounds: Vec<Vec<Fragment>>,
    pub abort: Abort,
}

impl Plan {
    /// Returns its partitions in ascending order.
    pub(crate) fn partitions(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> = self.rounds.iter().flatten().map(|fragment| fragment.at).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns its only fragment if it is a one-shot.
    pub(crate) fn one_shot(&self) -> Option<&Fragment> {
        match &self.rounds[..] {
            [round] if round.len() == 1 => round.first(),
            _ => None,
        }
    }

    /// Returns true if it is a one-shot.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.one_shot().is_some()
    }

    /// Returns its keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> {
        self.rounds.iter().flatten().flat_map(|fragment| fragment.keys.iter().copied())
    }
}

/// Returns the name of a key: they are numbered across partitions.
pub(crate) fn key(config: &ClusterConfig, at: PartitionId, local: u32) -> u32 {
    local * u32::from(config.partitions) + u32::from(at.0)
}

/// Returns the keys of a partition.
pub(crate) fn keys_of(config: &ClusterConfig, at: PartitionId) -> impl Iterator<Item = u32> {
    (0..config.load.keys_per_partition).map(move |local| key(config, at, local))
}

/// Draws the next transaction of a session.
pub(crate) fn draw(config: &ClusterConfig, session: u32, rng: &mut Rng) -> Plan {
    let load = &config.load;
    let partitions = u64::from(config.partitions);
    let first = PartitionId(rng.below(partitions) as u16);
    let is_multi = partitions > 1 && load.keys > 1 && rng.permille(load.multi);
    let mut taken = Vec::new();
    let mut rounds = if is_multi {
        let other = (u64::from(first.0) + 1 + rng.below(partitions - 1)) % partitions;
        let places = [first, PartitionId(other as u16)];
        let half = load.keys / 2;
        let sizes = [half, load.keys - half];
        if rng.permille(load.two_rounds) && half > 1 {
            two_rounds(config, session, rng, places, sizes, &mut taken)
        } else {
            let fragment = |(at, size)| fragment(config, session, rng, at, size, &mut taken);
            vec![places.into_iter().zip(sizes).map(fragment).collect()]
        }
    } else {
        vec![vec![fragment(config, session, rng, first, load.keys, &mut taken)]]
    };
    rounds.retain_mut(|round: &mut Vec<Fragment>| {
        round.retain(|fragment| !fragment.keys.is_empty());
        !round.is_empty()
    });
    let abort = match rng.permille(load.aborts) {
        false => Abort::No,
        true if is_multi && rng.permille(500) => Abort::AtEnd,
        true => {
            let round = rng.below(rounds.len() as u64) as usize;
            let at = rng.below(rounds[round].len() as u64) as usize;
            Abort::Fragment(round, rounds[round][at].at)
        }
    };
    Plan { rounds, abort }
}

fn two_rounds(
    config: &ClusterConfig,
    session: u32,
    rng: &mut Rng,
    places: [PartitionId; 2],
    sizes: [usize; 2],
    taken: &mut Vec<u32>,
) -> Vec<Vec<Fragment>> {
    let mut rounds = vec![Vec::new(), Vec::new()];
    for (at, size) in places.into_iter().zip(sizes) {
        rounds[0].push(fragment(config, session, rng, at, size / 2, taken));
        // In some transactions, one partition has no work in the second round.
        if !config.load.uniform || at == places[0] || rng.permille(700) {
            rounds[1].push(fragment(config, session, rng, at, size - size / 2, taken));
        }
    }
    rounds
}

fn fragment(
    config: &ClusterConfig,
    session: u32,
    rng: &mut Rng,
    at: PartitionId,
    size: usize,
    taken: &mut Vec<u32>,
) -> Fragment {
    let load = &config.load;
    let most = load.keys_per_partition;
    let conflicts = if load.conflicts_once && !taken.is_empty() { 0 } else { load.conflicts };
    let mut keys = Vec::with_capacity(size);
    for n in 0..size as u32 {
        let local = if n == 0 && rng.permille(conflicts) {
            0
        } else if load.uniform {
            rng.below(u64::from(most)) as u32
        } else {
            // A session's keys follow the shared ones.
            (load.keys as u32 * (session + 1) + n + taken.len() as u32) % most
        };
        let key = key(config, at, local);
        if !taken.contains(&key) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    taken.extend(&keys);
    Fragment { at, keys }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_partition::SchemeKind;

    /// Returns how many transactions use the shared key at none, one and both of their partitions.
    fn sharing(conflicts: u64, conflicts_once: bool, two_rounds: u64) -> [usize; 3] {
        let mut config = ClusterConfig::micro_benchmark(SchemeKind::Locking, 1000);
        (config.load.conflicts, config.load.conflicts_once) = (conflicts, conflicts_once);
        config.load.two_rounds = two_rounds;
        let mut rng = Rng::new(1);
        let mut counts = [0; 3];
        for _ in 0..100 {
            let plan = draw(&config, 0, &mut rng);
            let is_shared = |at| plan.keys().any(|used| used == key(&config, at, 0));
            counts[plan.partitions().into_iter().filter(|at| is_shared(*at)).count()] += 1;
        }
        counts
    }

    #[test]
    fn transactions_conflict_at_one_partition_or_both() {
        for two_rounds in [0, 1000] {
            assert_eq!(sharing(0, true, two_rounds), [100, 0, 0]);
            assert_eq!(sharing(1000, true, two_rounds), [0, 100, 0]);
            assert_eq!(sharing(1000, false, two_rounds), [0, 0, 100]);
        }
    }
}
