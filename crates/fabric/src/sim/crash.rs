//! Death of workers and nodes.

use super::core::{Core, Event};
use crate::{FabricNode, Verb, WorkerAddr};

impl Core {
    pub fn crash_worker(&mut self, address: WorkerAddr) {
        let Some(worker) = self.workers.iter().position(|w| w.address == address && !w.dead) else {
            return;
        };
        self.workers[worker].dead = true;
        self.workers[worker].completions.clear();
        let owned: Vec<usize> =
            (0..self.ends.len()).filter(|&end| self.ends[end].worker == Some(worker)).collect();
        for end in owned {
            self.lose_requests(end);
            self.ends[end].recvs.clear();
            let at_ns = self.now_ns + self.config.timeout_ns;
            self.schedule(at_ns, Event::GiveUp(self.ends[end].other));
        }
    }

    pub fn crash_node(&mut self, node: FabricNode) {
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return };
        state.dead = true;
        let here: Vec<WorkerAddr> =
            self.workers.iter().map(|w| w.address).filter(|a| a.node == node).collect();
        for worker in here {
            self.crash_worker(worker);
        }
        let at_ns = self.now_ns + self.config.timeout_ns;
        for end in 0..self.ends.len() {
            if self.ends[end].there == node.0 as usize {
                self.schedule(at_ns, Event::GiveUp(end));
            }
        }
    }

    /// Drops requests that have not arrived. The adapter still sends a random number of the first
    /// ones, and a part of the next one if it is a WRITE.
    fn lose_requests(&mut self, end: usize) {
        let waiting = |id: &&u64| self.ops.get(**id).is_some_and(|op| !op.arrived);
        let mut lost: Vec<u64> = self.ends[end].requests.iter().filter(waiting).copied().collect();
        let departed = self.ends[end].departed;
        let held = self.ends[end].requests.len() - departed;
        let kept = self.draw((lost.len() - held) as u64) as usize;
        let mut lost = lost.split_off(kept).into_iter();
        if let Some(torn) = lost.next() {
            self.tear(end, torn);
        }
        for id in lost {
            self.ops.remove(id);
        }
        let ops = &self.ops;
        let requests = &mut self.ends[end].requests;
        requests.retain(|id| ops.contains(*id));
        let left = requests.len();
        self.ends[end].departed = departed.min(left);
    }

    fn tear(&mut self, end: usize, id: u64) {
        let prefix = self.draw(u64::MAX);
        let op = self.ops.get_mut(id).expect("it is in flight");
        let departs = self.ends[end].requests.iter().position(|other| *other == id)
            < Some(self.ends[end].departed);
        if let (Verb::Write { .. }, true, true) = (op.request.verb, op.taken, departs) {
            op.payload.truncate((prefix % (op.payload.len() as u64 + 1)) as usize);
            op.cut = true;
        } else {
            self.ops.remove(id);
        }
    }
}
