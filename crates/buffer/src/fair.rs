//! A mutex that is given to those who wait in the order in which they came.
//!
//! For the write-back, whose holders do I/O: with the standard library's mutex a checkpoint, which takes it again at once
//! for its next batch, would keep out the cooler, and with it everyone who waits for a frame.
//!
//! # Invariants
//! 1. `serving` is the number of the holder, or of the next to come; it goes up by one when the holder lets go.
//! 2. The value's own mutex is taken by the holder of the turn only, but for the moment in which it is handed on.

use clearway_sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::ops::{Deref, DerefMut};

pub(crate) struct Fair<T> {
    turns: Mutex<Turns>,
    next_turn: Condvar,
    value: Mutex<T>,
}

#[derive(Default)]
struct Turns {
    next: u64,
    serving: u64,
}

pub(crate) struct FairGuard<'a, T> {
    fair: &'a Fair<T>,
    value: MutexGuard<'a, T>,
}

impl<T> Fair<T> {
    pub fn new(value: T) -> Self {
        Self { turns: Mutex::default(), next_turn: Condvar::new(), value: Mutex::new(value) }
    }

    pub fn lock(&self) -> FairGuard<'_, T> {
        // Poison is ignored throughout: nothing panics under `turns`, and a panic in a batch leaves copies to be made anew.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = turns.next;
        turns.next += 1;
        let not_yet = |turns: &mut Turns| turns.serving != mine;
        drop(self.next_turn.wait_while(turns, not_yet).unwrap_or_else(PoisonError::into_inner));
        FairGuard { fair: self, value: self.value.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl<T> Drop for FairGuard<'_, T> {
    fn drop(&mut self) {
        self.fair.turns.lock().unwrap_or_else(PoisonError::into_inner).serving += 1;
        self.fair.next_turn.notify_all();
    }
}

impl<T> Deref for FairGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for FairGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_came_first_is_served_first() {
        let fair = Fair::new(Vec::new());
        thread::scope(|scope| {
            let mut holder = fair.lock();
            holder.push(0);
            for number in 1..=4 {
                let fair = &fair;
                scope.spawn(move || fair.lock().push(number));
                while fair.turns.lock().unwrap().next != number + 1 {
                    thread::yield_now();
                }
            }
            drop(holder);
            fair.lock().push(5);
        });
        assert_eq!(*fair.lock(), [0, 1, 2, 3, 4, 5]);
    }
}
