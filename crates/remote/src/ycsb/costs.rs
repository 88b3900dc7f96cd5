//! Costs of the simulated cluster's processors and networks.

use super::Transport;
use clearway_fabric::sim::SimConfig;

/// The cost of a message, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCosts {
    /// CPU time to send a message.
    pub send_ns: u64,
    /// Time from the sender's adapter to the receiver's.
    pub wire_ns: u64,
    /// CPU time to receive a message.
    pub receive_ns: u64,
}

/// Costs of the cluster, in nanoseconds.
///
/// The defaults are our estimates for the source's hardware, which gives no such numbers. Only
/// `queue_ns` is calibrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Time of a verb from one adapter to another.
    pub verb_wire_ns: u64,
    /// The same within one node.
    pub loopback_ns: u64,
    /// CPU time to post a verb and poll its completion.
    pub verb_ns: u64,
    /// SEND and RECV.
    pub two_sided: MessageCosts,
    /// TCP over InfiniBand: the kernel's work on both sides, and the wake-up of the receiver.
    pub tcp: MessageCosts,
    /// CPU time to pass a received message between threads: parse, enqueue, dequeue. Calibrated:
    /// with this value two-sided is 3.2 times TCP at theta 0, as in RCBench (85.4 and 26.7 thousand
    /// transactions per second).
    pub queue_ns: u64,
    /// CPU time of an owner for one request: its index, its lock table, its row.
    pub handle_ns: u64,
    /// CPU time of a transaction for one row.
    pub row_ns: u64,
    /// CPU time to start or restart a transaction.
    pub begin_ns: u64,
    /// Time between an abort and the restart, as in RCBench (`config.h`, `ABORT_PENALTY`).
    pub back_off_ns: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            verb_wire_ns: 850,
            loopback_ns: 300,
            verb_ns: 150,
            two_sided: MessageCosts { send_ns: 300, wire_ns: 950, receive_ns: 500 },
            tcp: MessageCosts { send_ns: 4_000, wire_ns: 2_000, receive_ns: 6_000 },
            queue_ns: 2_800,
            handle_ns: 500,
            row_ns: 300,
            begin_ns: 1_000,
            back_off_ns: 10_000_000,
        }
    }
}

/// A cost, for sensitivity analyses.
#[derive(Clone, Copy, Debug)]
pub struct CostField {
    /// What the cost is.
    pub name: &'static str,
    /// The transports whose runs depend on it.
    pub affects: &'static [Transport],
    /// Selects the values of which it consists.
    pub of: fn(&mut Costs) -> Vec<&mut u64>,
}

impl Costs {
    /// Returns the configuration of the network for verbs.
    pub(super) fn network(&self) -> SimConfig {
        SimConfig {
            latency_ns: self.verb_wire_ns,
            loopback_ns: self.loopback_ns,
            ..SimConfig::default()
        }
    }

    /// Returns all costs by name.
    pub fn fields() -> [CostField; 9] {
        const ALL: &[Transport] = &[Transport::OneSided, Transport::TwoSided, Transport::Tcp];
        const VERBS: &[Transport] = &[Transport::OneSided];
        const MESSAGES: &[Transport] = &[Transport::TwoSided, Transport::Tcp];
        const TCP: &[Transport] = &[Transport::Tcp];
        let field = |name, affects, of| CostField { name, affects, of };
        [
            field("wire of verbs", VERBS, |c| vec![&mut c.verb_wire_ns, &mut c.loopback_ns]),
            field("a verb's processor time", VERBS, |c| vec![&mut c.verb_ns]),
            field("TCP: processor time", TCP, |c| vec![&mut c.tcp.send_ns, &mut c.tcp.receive_ns]),
            field("TCP: wire", TCP, |c| vec![&mut c.tcp.wire_ns]),
            field("queues between threads", MESSAGES, |c| vec![&mut c.queue_ns]),
            field("an owner's request", MESSAGES, |c| vec![&mut c.handle_ns]),
            field("a row's work", ALL, |c| vec![&mut c.row_ns]),
            field("begin", ALL, |c| vec![&mut c.begin_ns]),
            field("back-off", ALL, |c| vec![&mut c.back_off_ns]),
        ]
    }
}
