//! InfiniBand and RoCE: verbs of the device itself, by libibverbs, which is loaded when a node is
//! opened.
//!
//! Queue pairs are reliable connections. They are set up over TCP, where both nodes prove the
//! shared secret as in [`crate::tcp`] and tell each other their queue pair's number and address; a
//! thread at each node answers, since the device needs a queue pair at both ends. From then on the
//! device alone executes one-sided verbs.
//!
//! **This provider has been compiled, and found to say that there is no device; it has not run on
//! one.** What it promises is therefore the least: see [`VerbsFabric`]'s guarantees.
//!
//! # Invariants
//! 1. Registered memory outlives its registration, and scratch memory the queue pairs that use it:
//!    fields are dropped in the order in which they are declared.
//! 2. The device and the processor share words, which the processor reaches as atomics alone.
//!
//! # Locking
//! The map of ports and that of peers, each by itself, for moments.

mod memory;
mod node;
mod setup;
mod worker;

pub use node::{VerbsConfig, VerbsFabric, VerbsRegion};
pub use worker::VerbsWorker;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, FabricError, FabricNode, conformance};

    fn node(number: u32) -> Result<VerbsFabric, FabricError> {
        VerbsFabric::open(VerbsConfig {
            node: FabricNode(number),
            device: None,
            port: 1,
            gid_index: 0,
            listen: "127.0.0.1:0".parse().unwrap(),
            secret: b"sixteen bytes or more".into(),
        })
    }

    #[test]
    fn conforms_where_there_is_a_device() {
        match node(0) {
            Err(FabricError::NoDevice(why)) => {
                println!("conformance of verbs SKIPPED: no device: {why}")
            }
            Err(why) => panic!("{why}"),
            Ok(_) => conformance::run(|| {
                let (a, b) = (node(0).unwrap(), node(1).unwrap());
                a.add_peer(b.node(), b.address());
                b.add_peer(a.node(), a.address());
                (a, b)
            }),
        }
    }
}
