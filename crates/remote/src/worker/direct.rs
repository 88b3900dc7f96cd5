//! Verbs on local rows, where CPU and fabric atomics exclude each other.

use clearway_fabric::{FabricWorker, Region, Verb};

/// Executes a verb on this node's own region with the CPU.
pub(crate) fn execute<W: FabricWorker>(fabric: &mut W, region: &dyn Region, verb: Verb) {
    let Some(remote) = verb.remote() else { unreachable!("locks use one-sided verbs only") };
    let word = remote.word as usize;
    match verb {
        Verb::Read { local, .. } => {
            for index in 0..local.words {
                fabric.store(local.start + index, region.load(word + index));
            }
        }
        Verb::Write { local, .. } => {
            for index in 0..local.words {
                region.store(word + index, fabric.load(local.start + index));
            }
        }
        Verb::Cas { expected, new, old, .. } => {
            fabric.store(old, region.compare_exchange(word, expected, new))
        }
        Verb::Faa { add, old, .. } => fabric.store(old, region.fetch_add(word, add)),
        Verb::Send { .. } | Verb::Recv { .. } => unreachable!("locks use one-sided verbs only"),
    }
}
