//! Exclusive access: requests for partitions, refusals, and giving partitions up.

use super::{Control, Coordination, Outgoing, Phase, ROUNDS};
use clearway_partition::Reply;
use clearway_types::PartitionId;

/// A request for partitions in progress.
#[derive(Debug)]
pub(super) struct Acquiring {
    /// Ascending.
    wanted: Vec<PartitionId>,
    /// The number of granted ones.
    granted: usize,
    one_round: bool,
    /// How many more times it may wait for quiet after a refusal.
    waits_left: usize,
    /// It waits for quiet.
    waits: bool,
}

/// A request for exclusive access to partitions.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The partitions, in strictly ascending order.
    pub partitions: &'a [PartitionId],
    /// Whether the transaction waits after a refusal, until no lock is held there for a short time,
    /// and requests all again.
    pub awaits_quiet: bool,
    /// Whether it will send exactly one statement to each of them.
    pub one_round: bool,
}

impl Coordination {
    /// Requests exclusive access to partitions. If one refuses, gives up the others.
    ///
    /// # Panics
    /// If the partitions are not in strictly ascending order.
    pub fn acquire(&mut self, request: AccessRequest<'_>, out: &mut Vec<Outgoing>) {
        let AccessRequest { partitions, awaits_quiet, one_round } = request;
        assert!(partitions.is_sorted_by(|a, b| a < b), "invariant 1: {partitions:?}");
        let waits_left = if awaits_quiet { ROUNDS } else { 0 };
        let wanted = partitions.to_vec();
        let acquiring = Acquiring { wanted, granted: 0, one_round, waits_left, waits: false };
        self.phase = Phase::Acquiring(Box::new(acquiring));
        self.request_next(out);
    }

    fn request_next(&mut self, out: &mut Vec<Outgoing>) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        match acquiring.wanted.get(acquiring.granted).copied() {
            Some(next) => {
                let one_round = acquiring.one_round;
                self.join(next);
                out.push(Outgoing::Send(next, Control::Block { one_round }));
            }
            None => {
                self.short = true;
                self.done(Ok(true), out);
            }
        }
    }

    pub(super) fn acquisition_answered(
        &mut self,
        from: PartitionId,
        reply: &Reply,
        out: &mut Vec<Outgoing>,
    ) {
        let yes = reply.count > 0;
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        if std::mem::take(&mut acquiring.waits) {
            if !yes || acquiring.waits_left == 0 {
                return self.done(Ok(false), out);
            }
            acquiring.granted = 0;
            return self.request_next(out);
        }
        if yes {
            acquiring.granted += 1;
            self.exclusive.push(from);
            return self.request_next(out);
        }
        let waits = acquiring.waits_left > 0;
        acquiring.waits = waits;
        acquiring.waits_left = acquiring.waits_left.saturating_sub(1);
        self.short = true;
        self.await_client(out);
        if waits {
            out.push(Outgoing::Send(from, Control::AwaitQuiet));
        } else {
            self.done(Ok(false), out);
        }
    }

    /// Lets the one round of fragments to these partitions run optimistically: without requesting
    /// them. If one of the runs is invalid, the transaction counts as undone.
    pub fn run_optimistically(&mut self, partitions: &[PartitionId]) {
        partitions.iter().for_each(|partition| self.join(*partition));
        (self.optimistic, self.short) = (true, true);
    }

    /// Gives up exclusive access: the transaction waits for its client or for a lock. It keeps
    /// locks on what it has used, so that only conflicting work waits for its end.
    pub fn await_client(&mut self, out: &mut Vec<Outgoing>) {
        if !std::mem::take(&mut self.short) {
            return;
        }
        self.exclusive.clear();
        out.extend(self.participants.iter().map(|p| Outgoing::Send(*p, Control::AwaitsClient)));
    }

    /// Gives up exclusive access to partitions.
    pub fn unblock(&mut self, out: &mut Vec<Outgoing>) {
        out.extend(self.exclusive.drain(..).map(|p| Outgoing::Send(p, Control::Unblock)));
    }

    /// Gives up exclusive access because a call cannot continue at once at one partition.
    pub fn stalled(&mut self, out: &mut Vec<Outgoing>) {
        if self.is_exclusive() { self.unblock(out) } else { self.await_client(out) }
    }
}
