//! The registry: the blocks of all threads, the counts of finished ones, the classes, and their
//! sum.

use super::block::Block;
use super::histogram::Histogram;
use super::{
    CLASSES, Caller, Class, Contention, NEW, OFF, OTHER_CALLERS, OTHER_CLASSES, SUMMED_ROWS,
};
use std::collections::BTreeMap;
use std::panic::Location;
// Plain std, also under a model checker: no thread waits here for another thread's action (see the
// module above).
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The counts of one or many threads.
#[derive(Clone)]
pub(super) struct Totals {
    pub requests: [u64; CLASSES],
    waits: BTreeMap<(u32, Option<Caller>), Histogram>,
    /// Waits without a row.
    pub others: Histogram,
}

impl Totals {
    fn new() -> Self {
        Self { requests: [0; CLASSES], waits: BTreeMap::new(), others: Histogram::default() }
    }

    pub fn request(&mut self, slot: u32) {
        self.requests[slot as usize] += 1;
    }

    pub fn waited(&mut self, slot: u32, caller: &'static Location<'static>, ns: u64) {
        let mut one = Histogram::default();
        one.add(ns);
        self.merge(slot, Some(Caller::from(caller)), &one);
    }

    pub fn merge(&mut self, slot: u32, caller: Option<Caller>, waits: &Histogram) {
        let full = self.waits.len() >= SUMMED_ROWS;
        match self.waits.entry((slot, caller)) {
            std::collections::btree_map::Entry::Occupied(mut row) => row.get_mut().merge(waits),
            std::collections::btree_map::Entry::Vacant(row) if !full => {
                row.insert(waits.clone());
            }
            std::collections::btree_map::Entry::Vacant(_) => self.others.merge(waits),
        }
    }

    fn subtract(&mut self, earlier: &Self) {
        self.requests
            .iter_mut()
            .zip(&earlier.requests)
            .for_each(|(now, then)| *now = now.saturating_sub(*then));
        for (row, then) in &earlier.waits {
            if let Some(now) = self.waits.get_mut(row) {
                now.subtract(then);
            }
        }
        self.waits.retain(|_, waits| waits.count() > 0);
        self.others.subtract(&earlier.others);
    }
}

struct Registry {
    counting: bool,
    /// By slot; classes without a slot share the last.
    classes: Vec<&'static Class>,
    living: Vec<Arc<Block>>,
    gone: Totals,
    /// The counts at the last reset.
    baseline: Totals,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    Mutex::new(Registry {
        counting: true,
        classes: Vec::new(),
        living: Vec::new(),
        gone: Totals::new(),
        baseline: Totals::new(),
    })
});

fn registry() -> MutexGuard<'static, Registry> {
    // Only an allocation failure could leave counts partly moved, and that aborts.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn slot(&self, index: usize) -> u32 {
        if self.counting { index.min(CLASSES - 1) as u32 } else { OFF }
    }

    fn sum(&self) -> Totals {
        let mut sum = self.gone.clone();
        self.living.iter().for_each(|block| block.add_to(&mut sum));
        sum
    }
}

/// Gives a class its slot.
pub(super) fn enter(class: &'static Class) -> u32 {
    let mut registry = registry();
    // Relaxed, as everywhere: see `Class::request`. Written only under the mutex.
    let now = class.slot.load(Ordering::Relaxed);
    if now != NEW {
        return now;
    }
    let index = registry.classes.iter().position(|known| known.name == class.name);
    registry.classes.push(class);
    let slot = registry.slot(index.unwrap_or(registry.classes.len() - 1));
    class.slot.store(slot, Ordering::Relaxed);
    slot
}

pub(super) fn begin(block: Arc<Block>) {
    registry().living.push(block);
}

pub(super) fn end(block: &Arc<Block>) {
    let mut registry = registry();
    block.add_to(&mut registry.gone);
    registry.living.retain(|living| !Arc::ptr_eq(living, block));
}

/// Counts for a thread that no longer has a block.
pub(super) fn late(count: impl FnOnce(&mut Totals)) {
    count(&mut registry().gone);
}

/// Returns the counts of all threads since the last [`reset`]. For each class, in the order of
/// their first requests, there is a row for each caller that has waited, longest waits first, or
/// one without a caller. Counts without a place come last, if there are any.
pub fn contention() -> Vec<Contention> {
    let (mut totals, classes) = {
        let registry = registry();
        let mut totals = registry.sum();
        totals.subtract(&registry.baseline);
        (totals, registry.classes.clone())
    };
    let mut rows = Vec::new();
    for (slot, name) in names(&classes) {
        let requests = totals.requests[slot];
        let from = rows.len();
        let waits =
            totals.waits.extract_if((slot as u32, None)..(slot as u32 + 1, None), |_, _| true);
        rows.extend(waits.map(|((_, caller), waits)| Contention {
            name,
            caller,
            requests,
            contended: waits.count(),
            waits,
        }));
        if rows.len() == from {
            rows.push(Contention {
                name,
                caller: None,
                requests,
                contended: 0,
                waits: Histogram::default(),
            });
        }
        rows[from..].sort_by_key(|row| std::cmp::Reverse(row.waits.sum_ns()));
    }
    let contended = totals.others.count();
    if contended > 0 {
        rows.push(Contention {
            name: OTHER_CALLERS,
            caller: None,
            requests: 0,
            contended,
            waits: totals.others,
        });
    }
    rows
}

/// Returns the slots in use, and the names of their rows.
fn names(classes: &[&'static Class]) -> Vec<(usize, &'static str)> {
    let first_of_its_name =
        |index: &usize| classes.iter().position(|c| c.name == classes[*index].name) == Some(*index);
    let mut names: Vec<_> = (0..classes.len())
        .filter(first_of_its_name)
        .map(|index| (index, classes[index].name))
        .collect();
    if names.last().is_some_and(|(slot, _)| *slot >= CLASSES - 1) {
        names.retain(|(slot, _)| *slot < CLASSES - 1);
        names.push((CLASSES - 1, OTHER_CLASSES));
    }
    names
}

/// Makes [`contention`] count from here.
pub fn reset() {
    let mut registry = registry();
    registry.baseline = registry.sum();
}

/// Turns counting on (the default) or off, for the whole process. A request that is not counted
/// still checks the setting.
pub fn set_counting(on: bool) {
    let mut registry = registry();
    registry.counting = on;
    for (index, class) in registry.classes.iter().enumerate() {
        let of_its_name = registry.classes.iter().position(|known| known.name == class.name);
        class.slot.store(registry.slot(of_its_name.unwrap_or(index)), Ordering::Relaxed);
    }
}

/// Returns true if requests are counted.
pub fn counting() -> bool {
    registry().counting
}
