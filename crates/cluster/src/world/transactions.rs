//! Transactions of the sessions: their starts, their ends, and when they are repeated.

use super::{Event, Notice, World};
use crate::load::{self, Plan};
use crate::participant::SessionId;
use clearway_types::TxnId;
use std::rc::Rc;

/// How many times a session repeats a transaction that failed because of locks before it waits
/// longer each time. Time-outs end deadlocks across partitions: if all transactions conflict, they
/// would deadlock again and again.
const PROMPT_REPEATS: u32 = 16;
/// The longest of these waits is 2 to this power times the normal one.
const MOST_DOUBLINGS: u32 = 6;

impl World {
    pub(super) fn over(&mut self, id: SessionId, txn: TxnId, repeat: bool) {
        self.coordinator(id).decisions.remove(&txn);
        let running = self.sessions[id as usize].running.take();
        let mut delay = 0;
        let locked = &mut self.locked[id as usize];
        if !repeat {
            *locked = 0;
        }
        if let Some(running) = running.filter(|_| repeat) {
            // Others may deadlock again if all are repeated at once.
            if !running.is_undone() {
                *locked += 1;
                let factor = 1 << locked.saturating_sub(PROMPT_REPEATS).min(MOST_DOUBLINGS);
                delay = self.rng.below(self.rules.cancel_after / 4) * factor;
            }
            self.report.repeated += 1;
            self.repeats[id as usize] = Some(running.plan);
        }
        self.after(delay, Event::Begin(id));
    }

    pub(super) fn begin(&mut self, id: SessionId) {
        if self.coordinator(id).is_down || self.sessions[id as usize].running.is_some() {
            return;
        }
        let plan = match self.repeats[id as usize].take() {
            Some(plan) => plan,
            None if self.started >= self.config.transactions => return,
            None => {
                self.started += 1;
                let plan = Rc::new(load::draw(&self.config, id, &mut self.rng));
                if self.order.is_some() && !plan.is_one_shot() {
                    return self.send(self.now, Event::Notice(id, Notice::Start(plan)));
                }
                plan
            }
        };
        self.start(id, plan);
    }

    pub(super) fn start(&mut self, id: SessionId, plan: Rc<Plan>) {
        self.numbers += 1;
        let number = self.numbers;
        // 1 and 2 are the partition's own.
        let txn = TxnId(number + 2);
        self.with_session(id, |session, now, cx, out| {
            session.begin(txn, number, plan, now, cx, out);
        });
        // In a central order nothing is lost, and nobody waits in a cycle.
        if self.order.is_none() {
            self.after(self.rules.repeat_after, Event::Remind(id, txn));
        }
    }

    pub(super) fn remind(&mut self, id: SessionId, txn: TxnId) {
        if self.sessions[id as usize].runs(txn) {
            self.with_session(id, |session, now, cx, out| session.remind(now, cx.0, out));
            self.after(self.rules.repeat_after, Event::Remind(id, txn));
        }
    }
}
