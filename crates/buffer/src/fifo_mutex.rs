//! A mutex that serves its waiters first in, first out.
//!
//! It protects the write-back, whose holders do I/O. A checkpoint acquires it again immediately for
//! its next batch. An unfair latch could therefore starve the cooler, and with it every thread that
//! waits for a frame.
//!
//! # Invariants
//! 1. `serving` is the number of the holder, or of the next one. It grows by one at each release.
//! 2. While the mutex is held, the holder has the value, and a default takes its place.

use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

static TURNS: Class = Class::new("buffer.turns");

pub(crate) struct FifoMutex<T: Default> {
    /// The lock class of waits for a turn, which may take long.
    class: &'static Class,
    turns: Monitor<Turns<T>>,
}

struct Turns<T> {
    next: u64,
    serving: u64,
    value: T,
}

pub(crate) struct FifoMutexGuard<'a, T: Default> {
    mutex: &'a FifoMutex<T>,
    value: T,
}

impl<T: Default> FifoMutex<T> {
    pub fn new(class: &'static Class, value: T) -> Self {
        Self { class, turns: Monitor::new(&TURNS, Turns { next: 0, serving: 0, value }) }
    }

    #[track_caller]
    pub fn lock(&self) -> FifoMutexGuard<'_, T> {
        self.class.request();
        let mut turns = self.turns.lock();
        let mine = turns.next;
        turns.next += 1;
        if turns.serving != mine {
            let wait = || self.turns.wait_while(turns, |turns| turns.serving != mine);
            turns = self.class.timed(Location::caller(), wait);
        }
        FifoMutexGuard { mutex: self, value: std::mem::take(&mut turns.value) }
    }
}

impl<T: Default> Drop for FifoMutexGuard<'_, T> {
    fn drop(&mut self) {
        let mut turns = self.mutex.turns.lock();
        turns.value = std::mem::take(&mut self.value);
        turns.serving += 1;
        drop(turns);
        self.mutex.turns.notify_all();
    }
}

impl<T: Default> Deref for FifoMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default> DerefMut for FifoMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_latch::lockstat::contention;
    use std::thread;

    static CLASS: Class = Class::new("test.fair");

    #[test]
    fn waiters_are_served_in_order_and_counted() {
        let fair = FifoMutex::new(&CLASS, Vec::new());
        thread::scope(|scope| {
            let mut holder = fair.lock();
            holder.push(0);
            for number in 1..=4 {
                let fair = &fair;
                scope.spawn(move || fair.lock().push(number));
                while fair.turns.lock().next != number + 1 {
                    thread::yield_now();
                }
            }
            drop(holder);
            fair.lock().push(5);
        });
        assert_eq!(*fair.lock(), [0, 1, 2, 3, 4, 5]);
        let rows: Vec<_> = contention().into_iter().filter(|row| row.name == "test.fair").collect();
        assert_eq!(rows[0].requests, 7);
        let waited: u64 = rows.iter().map(|row| row.contended).sum();
        assert!(waited == 4 || waited == 5, "{rows:?}");
    }
}
