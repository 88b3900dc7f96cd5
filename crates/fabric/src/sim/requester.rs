//! The sending side of a queue pair: posting, fences, departures, replies, completions in order.

use super::core::{Core, Event, Op};
use crate::{PostError, QueueId, Request, Verb, VerbError};

impl Core {
    pub fn post(
        &mut self,
        worker: usize,
        queue: QueueId,
        batch: &[Request],
    ) -> Result<(), PostError> {
        let end =
            *self.workers[worker].ends.get(queue.0 as usize).ok_or(PostError::UnknownQueue)?;
        let scratch_words = self.workers[worker].scratch.len();
        let max_words = self.config.guarantees().max_words;
        let recvs = batch.iter().filter(|r| matches!(r.verb, Verb::Recv { .. })).count();
        for request in batch {
            let local = request.verb.scratch();
            if !local.fits(scratch_words) || local.words > max_words {
                return Err(PostError::BadRange);
            }
            if self.ends[end].accepted && request.verb.remote().is_some() {
                return Err(PostError::OneSided);
            }
        }
        let (sent, offered) = (self.ends[end].requests.len(), self.ends[end].recvs.len());
        if sent + batch.len() - recvs > self.config.queue_depth
            || offered + recvs > self.config.queue_depth
        {
            return Err(PostError::QueueFull);
        }
        if self.workers[worker].dead {
            return Ok(());
        }
        for &request in batch {
            self.post_one(worker, end, request);
        }
        self.match_messages(end);
        self.depart_ready(end);
        Ok(())
    }

    fn post_one(&mut self, worker: usize, end: usize, request: Request) {
        if self.ends[end].broken {
            self.complete(end, request.id, Err(VerbError::Flushed));
            return;
        }
        if let Verb::Recv { local } = request.verb {
            self.ends[end].recvs.push_back((request.id, local));
            if !self.is_alive(self.ends[end].other) {
                let at_ns = self.now_ns + self.config.timeout_ns;
                self.schedule(at_ns, Event::GiveUp(end));
            }
            return;
        }
        let mut op = Op {
            end,
            request,
            payload: Vec::new(),
            taken: false,
            arrived: false,
            cut: false,
            result: None,
        };
        if request.verb.scratch().words <= self.config.inline_words {
            Self::take_payload(&self.workers[worker].scratch, &mut op);
        }
        let op = self.ops.add(op);
        self.ends[end].requests.push_back(op);
    }

    /// Copies the payload of a WRITE or SEND from the scratch area, once.
    fn take_payload(scratch: &[u64], op: &mut Op) {
        if let (Verb::Write { local, .. } | Verb::Send { local }, false) =
            (op.request.verb, op.taken)
        {
            op.payload = scratch[local.start..local.start + local.words].to_vec();
            op.taken = true;
        }
    }

    /// Sends the requests that no fence holds back.
    pub fn depart_ready(&mut self, end: usize) {
        while let Some(&id) = self.ends[end].requests.get(self.ends[end].departed) {
            let earlier = self.ends[end].requests.range(..self.ends[end].departed);
            let answers = |op: &Op| {
                op.request.verb.is_atomic() || matches!(op.request.verb, Verb::Read { .. })
            };
            let mut waits_for = earlier.map(|id| &self.ops[*id]);
            if self.ops[id].request.fence && waits_for.any(|op| answers(op) && op.result.is_none())
            {
                return;
            }
            let words = match self.ops[id].request.verb {
                Verb::Write { local, .. } | Verb::Send { local } => local.words,
                _ => 0,
            };
            let here = self.ends[end].here;
            let at_ns =
                Self::occupy(&mut self.nodes[here].out_free_ns, self.now_ns, &self.config, words);
            self.ends[end].departed += 1;
            self.schedule(at_ns, Event::Depart(id));
        }
    }

    pub fn depart(&mut self, id: u64) {
        let Some(op) = self.ops.get_mut(id) else { return };
        let end = op.end;
        if let Some(worker) = self.ends[end].worker {
            Self::take_payload(&self.workers[worker].scratch, op);
        }
        if self.is_unanswerable(end, &self.ops[id]) {
            let at_ns = self.now_ns + self.config.timeout_ns;
            self.schedule(at_ns, Event::GiveUp(end));
        }
        let at_ns = (self.now_ns + self.flight_ns(end)).max(self.ends[end].last_arrival_ns + 1);
        self.ends[end].last_arrival_ns = at_ns;
        self.schedule(at_ns, Event::Arrive(id));
    }

    /// Sends the responder's answer back, in order.
    pub fn answer(&mut self, id: u64, result: Result<usize, VerbError>) {
        let Some(end) = self.ops.get(id).map(|op| op.end) else { return };
        if self.nodes[self.ends[end].there].dead {
            return;
        }
        let words = if matches!(self.ops[id].request.verb, Verb::Read { .. }) {
            result.unwrap_or(0)
        } else {
            0
        };
        let there = self.ends[end].there;
        let sent_ns =
            Self::occupy(&mut self.nodes[there].out_free_ns, self.now_ns, &self.config, words);
        let at_ns = (sent_ns + self.flight_ns(end)).max(self.ends[end].last_reply_ns + 1);
        self.ends[end].last_reply_ns = at_ns;
        self.schedule(at_ns, Event::Reply(id, result));
    }

    pub fn reply(&mut self, id: u64, result: Result<usize, VerbError>) {
        let Some(op) = self.ops.get_mut(id) else { return };
        if op.result.is_some() {
            return;
        }
        op.result = Some(result);
        let (end, verb) = (op.end, op.request.verb);
        if result.is_ok()
            && let (Some(worker), false) =
                (self.ends[end].worker, matches!(verb, Verb::Write { .. } | Verb::Send { .. }))
        {
            // The scratch words change now; the completion may still wait for earlier ones.
            let local = verb.scratch();
            self.workers[worker].scratch[local.start..local.start + local.words]
                .copy_from_slice(&op.payload);
        }
        if result.is_err() {
            self.break_after(end, id);
        }
        self.complete_in_order(end);
        self.depart_ready(end);
    }

    /// Flushes everything that was posted after a failed request, and the RECVs.
    fn break_after(&mut self, end: usize, failed: u64) {
        self.ends[end].broken = true;
        for id in self.ends[end].requests.clone() {
            let op = self.ops.get_mut(id).expect("requests that are not completed have their op");
            if id > failed && op.result.is_none() {
                op.result = Some(Err(VerbError::Flushed));
            }
        }
        for (id, _) in std::mem::take(&mut self.ends[end].recvs) {
            self.complete(end, id, Err(VerbError::Flushed));
        }
    }

    /// Breaks an end because the other end broke or the peer is dead. If one of its own requests
    /// has failed, only earlier messages may still be open.
    pub fn break_end(&mut self, end: usize, why: VerbError) {
        match self.ends[end].requests.iter().copied().find(|id| self.ops[*id].result.is_none()) {
            Some(first) => self.reply(first, Err(why)),
            None if self.ends[end].broken => {}
            None => {
                self.break_after(end, u64::MAX);
                self.complete_in_order(end);
            }
        }
    }

    pub fn give_up(&mut self, end: usize) {
        let mut open = self.ends[end]
            .requests
            .iter()
            .map(|id| &self.ops[*id])
            .filter(|op| op.result.is_none());
        let offers = !self.ends[end].recvs.is_empty() && !self.is_alive(self.ends[end].other);
        if offers || open.any(|op| self.is_unanswerable(end, op)) {
            self.break_end(end, VerbError::PeerDead);
        }
    }

    fn complete_in_order(&mut self, end: usize) {
        while let Some(&id) = self.ends[end].requests.front() {
            let Some(result) = self.ops[id].result else { return };
            let op = self.ops.remove(id).expect("looked at above");
            self.ends[end].requests.pop_front();
            self.ends[end].departed = self.ends[end].departed.saturating_sub(1);
            self.complete(end, op.request.id, result);
        }
    }
}
