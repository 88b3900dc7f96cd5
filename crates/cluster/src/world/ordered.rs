//! Messages of a coordinator that orders all transactions at several partitions.

use super::{Event, Notice, World};
use crate::order::Question;
use crate::participant::{Answer, Command, Entry};
use clearway_coordinator::protocol::Control;
use clearway_partition::Reply;
use clearway_types::PartitionId;

impl World {
    /// Sends a message, or answers it.
    pub(super) fn send_in_order(&mut self, to: PartitionId, entry: Entry) {
        let Some(order) = &mut self.order else { return };
        let mut decided = Vec::new();
        match entry.command {
            Command::Fragment { access: Some(_), .. } => order.sent(entry.txn, to),
            Command::Control(Control::Settle) => {
                decided.extend(order.ask(to, entry));
                return self.decide(decided);
            }
            Command::Control(Control::Finish { commit }) => {
                decided = order.ended(entry.txn, to, commit.is_some());
            }
            _ => {}
        }
        self.send(self.now, Event::Entry(to, entry));
        self.decide(decided);
    }

    fn decide(&mut self, questions: Vec<Question>) {
        for question in questions {
            match question {
                Question::Forwarded(to, entry) => self.send(self.now, Event::Entry(to, entry)),
                Question::Answered(session, entry) => {
                    let starts = self.coordinator(session).starts;
                    let answer = Answer { result: Ok(Reply::default()), votes: false };
                    let notice = Notice::Answer(entry.seq, answer);
                    self.after(0, Event::Noticed(session, starts, notice));
                }
            }
        }
    }
}
