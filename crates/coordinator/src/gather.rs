//! Questions to all partitions, for monitoring.
//!
//! A question is a message to every partition, through its home worker. The thread that handles it
//! adds that partition's answers, so statements pay nothing for being observed.
//!
//! Invariant: a question ends when every partition has answered once, and its end is reported once.
//! It never ends if the workers stop meanwhile.
//!
//! Locking: the answers are behind a latch, held to append to them. A crash leaves nothing.

use crate::engine::Engine;
use crate::mailbox::Mail;
use crate::message::control;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::Body;
use clearway_types::TxnId;
use std::sync::Arc;

/// The transaction that the messages name. They do nothing for it.
const NO_TXN: TxnId = TxnId(u64::MAX);

type Take<A> = Box<dyn FnOnce(Vec<A>) + Send>;

/// The answers to a question.
pub(crate) struct Answers<A>(Latch<Gathered<A>>);

struct Gathered<A> {
    answers: Vec<A>,
    /// Partitions that have not answered yet.
    left: usize,
    take: Option<Take<A>>,
}

impl<A> Answers<A> {
    fn new(
        class: &'static Class,
        partitions: usize,
        take: impl FnOnce(Vec<A>) + Send + 'static,
    ) -> Self {
        let take: Option<Take<A>> = Some(Box::new(take));
        Self(Latch::new(class, Gathered { answers: Vec::new(), left: partitions, take }))
    }

    /// Adds the answers of a partition. Its message does so once.
    pub(crate) fn add(&self, mut answers: Vec<A>) {
        let (all, take) = {
            let mut gathered = self.0.lock();
            gathered.answers.append(&mut answers);
            gathered.left -= 1;
            if gathered.left > 0 {
                return;
            }
            (std::mem::take(&mut gathered.answers), gathered.take.take())
        };
        if let Some(take) = take {
            take(all);
        }
    }
}

impl Engine {
    /// Asks every partition, by the message that `ask` returns. Passes all answers to `take`, each
    /// partition's in their order, in the thread of the worker that answers last. The latch of the
    /// answers has this class.
    pub(crate) fn ask_all<A: Send + 'static>(
        &self,
        class: &'static Class,
        ask: impl Fn(Arc<Answers<A>>) -> Body,
        take: impl FnOnce(Vec<A>) + Send + 'static,
    ) {
        let answers = Arc::new(Answers::new(class, self.partitions().into(), take));
        for partition in self.all() {
            let message = control(NO_TXN, ask(answers.clone()));
            self.mailbox(self.home(partition)).post(Mail::Message { partition, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_partition_ends_a_question() {
        static ANSWERS: Class = Class::new("test.answers");
        let (send, receive) = std::sync::mpsc::channel();
        let answers = Answers::new(&ANSWERS, 2, move |all| send.send(all).unwrap());
        answers.add(vec![3, 2]);
        assert!(receive.try_recv().is_err());
        answers.add(vec![5]);
        assert_eq!(receive.recv().unwrap(), [3, 2, 5]);
    }
}
