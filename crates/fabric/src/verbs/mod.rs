//! InfiniBand and RoCE: verbs of the device itself through libibverbs, which is loaded when a node
//! is opened.
//!
//! Queue pairs are reliable connections. They are set up over TCP: both nodes prove the shared
//! secret as in [`crate::tcp`] and exchange their queue pair's number and address. A thread at each
//! node answers, because the device needs a queue pair at both ends. From then on the device alone
//! executes one-sided verbs.
//!
//! **This provider compiles, and reports correctly that there is no device. It has not run on
//! one.** It therefore declares the weakest guarantees: see [`VerbsFabric`].
//!
//! # Invariants
//! 1. Registered memory outlives its registration, and scratch memory outlives the queue pairs that
//!    use it: fields are dropped in declaration order.
//! 2. The device and the CPU share words. The CPU accesses them only as atomics.
//!
//! # Locking
//! The map of ports and the map of peers have separate locks. Both are held briefly and never
//! together.

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
