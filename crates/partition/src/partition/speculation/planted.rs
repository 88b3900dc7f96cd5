//! What planted bugs do to the chain.

use super::{Kind, Member};
use crate::message::Outbox;
use crate::partition::Partition;
use clearway_storage::Trees;
use clearway_types::TxnId;
use std::cmp::Reverse;
use std::collections::VecDeque;

impl<T: Trees> Partition<T> {
    /// Implements [`Bug::EarlySpeculated`](clearway_sync::canary::Bug::EarlySpeculated).
    pub(super) fn release_early(&mut self, id: TxnId, out: &mut Outbox) {
        if self.blocking.chain.open
            && let Some(Member { kind: Kind::Single(single), .. }) =
                self.blocking.chain.behind.pop_back()
            && let Some((exec, result)) = single.done
        {
            self.end_single(id, single.origin, exec, result, out);
        }
        self.blocking.chain.reopen();
    }
}

/// Implements [`Bug::DependentsById`](clearway_sync::canary::Bug::DependentsById): the last member
/// is undone first.
pub(super) fn sort_by_id(members: &mut VecDeque<Member>, from: usize) {
    members.make_contiguous()[from..].sort_by_key(|member| Reverse(member.txn));
}
