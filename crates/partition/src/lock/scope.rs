//! The locks of one table, or of one tree's keys: what can conflict with each other.

use super::spans::{Span, Spans};
use super::{Mode, Target};
use clearway_types::TxnId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A request's target within its scope, owned.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Whole,
    Key(Arc<[u8]>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Place {
    pub(super) fn of(target: Target<'_>) -> Self {
        match target {
            Target::Table(_) => Self::Whole,
            Target::Key(_, key) => Self::Key(key.into()),
            Target::Range(_, lo, hi) => Self::Range(lo.map(<[u8]>::to_vec), hi.map(<[u8]>::to_vec)),
        }
    }
    fn spot(&self) -> Spot<'_> {
        match self {
            Self::Whole => Spot::Whole,
            Self::Key(key) => Spot::Key(key),
            Self::Range(lo, hi) => Spot::Range(lo.as_ref().map(Vec::as_slice), hi.as_ref().map(Vec::as_slice)),
        }
    }
}

/// The same, borrowed.
#[derive(Clone, Copy)]
pub(super) enum Spot<'a> {
    Whole,
    Key(&'a [u8]),
    Range(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl<'a> Spot<'a> {
    pub(super) fn of(target: Target<'a>) -> Self {
        match target {
            Target::Table(_) => Self::Whole,
            Target::Key(_, key) => Self::Key(key),
            Target::Range(_, lo, hi) => Self::Range(lo, hi),
        }
    }
    fn overlaps(self, other: Spot<'a>) -> bool {
        match (self, other) {
            (Self::Key(a), Self::Key(b)) => a == b,
            (Self::Key(k), Self::Range(lo, hi)) | (Self::Range(lo, hi), Self::Key(k)) => contains(lo, hi, k),
            (Self::Range(a, b), Self::Range(c, d)) => meets(a, d) && meets(c, b) && meets(a, b) && meets(c, d),
            _ => true,
        }
    }
}

/// Whether a range lies between the bounds' sides: some key may be at or above `lo` and at or below `hi`.
fn meets(lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> bool {
    match (lo, hi) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(a), Bound::Included(b)) => a <= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
    }
}

fn contains(lo: Bound<&[u8]>, hi: Bound<&[u8]>, key: &[u8]) -> bool {
    let above = match lo {
        Bound::Unbounded => true,
        Bound::Included(a) => key >= a,
        Bound::Excluded(a) => key > a,
    };
    above
        && match hi {
            Bound::Unbounded => true,
            Bound::Included(b) => key <= b,
            Bound::Excluded(b) => key < b,
        }
}

/// Who holds a key: shared by all of them, or exclusive by the only one.
#[derive(Debug)]
struct Holders {
    exclusive: bool,
    first: TxnId,
    /// Empty, and without memory, in most cases.
    more: Vec<TxnId>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = TxnId> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// The ranges that a transaction holds.
#[derive(Debug)]
struct Ranges {
    txn: TxnId,
    shared: Spans,
    exclusive: Spans,
}

impl Ranges {
    fn new(txn: TxnId) -> Self {
        Self { txn, shared: Spans::default(), exclusive: Spans::default() }
    }

    fn of(&mut self, mode: Mode) -> &mut Spans {
        if mode == Mode::Exclusive { &mut self.exclusive } else { &mut self.shared }
    }

    /// Whether a lock of this mode on these keys conflicts with them.
    fn clash(&self, keys: &Keys<'_>, mode: Mode) -> bool {
        keys.meet(&self.exclusive) || (mode == Mode::Exclusive && keys.meet(&self.shared))
    }

    /// Whether they make a lock of this mode on these keys superfluous.
    fn cover(&self, keys: &Keys<'_>, mode: Mode) -> bool {
        keys.lie_in(&self.exclusive) || (mode == Mode::Shared && keys.lie_in(&self.shared))
    }
}

/// The keys of a request, as sets of ranges are asked for them.
enum Keys<'a> {
    One(&'a [u8]),
    Span(Span),
    None,
}

impl<'a> Keys<'a> {
    fn of(spot: Spot<'a>) -> Self {
        match spot {
            Spot::Whole => Self::None,
            Spot::Key(key) => Self::One(key),
            Spot::Range(lo, hi) => Span::of(lo, hi).map_or(Self::None, Self::Span),
        }
    }
    fn meet(&self, set: &Spans) -> bool {
        match self {
            Self::One(key) => set.contains(key),
            Self::Span(span) => set.overlaps(span),
            Self::None => false,
        }
    }
    fn lie_in(&self, set: &Spans) -> bool {
        match self {
            Self::One(key) => set.contains(key),
            Self::Span(span) => set.covers(span),
            Self::None => false,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    txn: TxnId,
    mode: Mode,
    place: Place,
    /// Whom it waits for, directly or through other waiters, as of its arrival.
    on: Vec<TxnId>,
}

#[derive(Debug, Default)]
pub(super) struct Scope {
    whole: Vec<(TxnId, u8)>,
    keys: BTreeMap<Arc<[u8]>, Holders>,
    /// One for each transaction that has locked a range.
    ranges: Vec<Ranges>,
    /// In order of arrival.
    waiters: Vec<Waiter>,
}

fn clash(a: Mode, b: Mode) -> bool {
    a.conflicts() & b.bit() != 0
}

fn note(on: &mut Vec<TxnId>, txn: TxnId) {
    if !on.contains(&txn) {
        on.push(txn);
    }
}

impl Scope {
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.keys.is_empty() && self.ranges.is_empty() && self.waiters.is_empty()
    }

    /// Calls `each` with every other transaction that holds a lock in conflict, until it says true.
    fn any_holder(&self, txn: TxnId, spot: Spot<'_>, mode: Mode, mut each: impl FnMut(TxnId) -> bool) -> bool {
        let mut other = |t: TxnId| t != txn && each(t);
        let key_clash = |h: &Holders| h.exclusive || mode == Mode::Exclusive;
        match spot {
            Spot::Whole => return self.whole.iter().any(|(t, held)| held & mode.conflicts() != 0 && other(*t)),
            Spot::Key(key) => {
                if let Some(h) = self.keys.get(key)
                    && key_clash(h)
                    && h.iter().any(&mut other)
                {
                    return true;
                }
            }
            Spot::Range(lo, hi) => {
                if !self.keys.is_empty()
                    && meets(lo, hi)
                    && self.keys.range::<[u8], _>((lo, hi)).any(|(_, h)| key_clash(h) && h.iter().any(&mut other))
                {
                    return true;
                }
            }
        }
        if self.ranges.is_empty() {
            return false;
        }
        let keys = Keys::of(spot);
        self.ranges.iter().any(|r| r.txn != txn && r.clash(&keys, mode) && other(r.txn))
    }

    /// Waiters in conflict with a request.
    fn rivals(&self, txn: TxnId, spot: Spot<'_>, mode: Mode) -> impl DoubleEndedIterator<Item = &Waiter> {
        self.waiters.iter().filter(move |w| w.txn != txn && clash(mode, w.mode) && w.place.spot().overlaps(spot))
    }

    /// Whether a request could be granted at once.
    pub(super) fn free(&self, txn: TxnId, spot: Spot<'_>, mode: Mode) -> bool {
        !self.any_holder(txn, spot, mode, |_| true) && self.rivals(txn, spot, mode).all(|w| w.on.contains(&txn))
    }

    /// Whether the transaction holds as much already.
    pub(super) fn covered(&self, txn: TxnId, spot: Spot<'_>, mode: Mode) -> bool {
        let in_key = match spot {
            Spot::Whole => {
                return self.whole.iter().any(|(t, held)| *t == txn && held & mode.covered_by() != 0);
            }
            Spot::Key(key) => {
                self.keys.get(key).is_some_and(|h| (h.exclusive || mode == Mode::Shared) && h.iter().any(|t| t == txn))
            }
            Spot::Range(..) => false,
        };
        in_key || self.ranges.iter().find(|r| r.txn == txn).is_some_and(|r| r.cover(&Keys::of(spot), mode))
    }

    /// How many ranges that do not touch the transaction holds.
    pub(super) fn ranges_of(&self, txn: TxnId) -> usize {
        let own = self.ranges.iter().find(|r| r.txn == txn);
        own.map_or(0, |r| r.shared.len() + r.exclusive.len())
    }

    /// Notes a lock; true if the transaction had none at this very place before.
    pub(super) fn grant(&mut self, txn: TxnId, place: Place, mode: Mode) -> bool {
        match place {
            Place::Whole => match self.whole.iter_mut().find(|(t, _)| *t == txn) {
                Some((_, held)) => {
                    *held |= mode.bit();
                    false
                }
                None => {
                    self.whole.push((txn, mode.bit()));
                    true
                }
            },
            Place::Key(key) => {
                let exclusive = mode == Mode::Exclusive;
                let mut new = false;
                let holders = self.keys.entry(key).or_insert_with(|| {
                    new = true;
                    Holders { exclusive, first: txn, more: Vec::new() }
                });
                holders.exclusive |= exclusive;
                if !holders.iter().any(|t| t == txn) {
                    holders.more.push(txn);
                    new = true;
                }
                new
            }
            Place::Range(..) => {
                let own = self.ranges.iter().position(|r| r.txn == txn);
                let at = own.unwrap_or_else(|| {
                    self.ranges.push(Ranges::new(txn));
                    self.ranges.len() - 1
                });
                if let Keys::Span(span) = Keys::of(place.spot()) {
                    self.ranges[at].of(mode).insert(span);
                }
                own.is_none()
            }
        }
    }

    /// Puts a request in line; returns everyone that it has to wait for.
    pub(super) fn wait(&mut self, txn: TxnId, place: Place, mode: Mode) -> Vec<TxnId> {
        let mut on: Vec<TxnId> = Vec::new();
        // From the last in line, who in most cases waits for all the others.
        for w in self.rivals(txn, place.spot(), mode).rev().filter(|w| !w.on.contains(&txn)) {
            if !on.contains(&w.txn) {
                on.push(w.txn);
                w.on.iter().for_each(|t| note(&mut on, *t));
            }
        }
        self.any_holder(txn, place.spot(), mode, |t| {
            note(&mut on, t);
            false
        });
        self.waiters.push(Waiter { txn, mode, place, on: on.clone() });
        on
    }

    /// Who waits for it, directly or through others.
    pub(super) fn waiters_of(&self, txn: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        self.waiters.iter().filter(move |w| w.on.contains(&txn)).map(|w| w.txn)
    }

    pub(super) fn stop_waiting(&mut self, txn: TxnId) {
        self.waiters.retain(|w| w.txn != txn);
    }

    pub(super) fn release_key(&mut self, txn: TxnId, key: &[u8]) {
        let Some(h) = self.keys.get_mut(key) else { return };
        h.more.retain(|t| *t != txn);
        if h.first == txn {
            match h.more.pop() {
                Some(t) => h.first = t,
                None => {
                    self.keys.remove(key);
                    return;
                }
            }
        }
        // Whoever is left shared it.
        h.exclusive = false;
    }

    pub(super) fn release_ranges(&mut self, txn: TxnId) {
        self.ranges.retain(|r| r.txn != txn);
    }

    pub(super) fn release_whole(&mut self, txn: TxnId) {
        self.whole.retain(|(t, _)| *t != txn);
    }

    /// Grants what need not wait any longer, in order; calls `granted` for each.
    pub(super) fn grant_waiters(&mut self, mut granted: impl FnMut(TxnId, &Place, bool)) {
        let mut at = 0;
        while at < self.waiters.len() {
            let w = &self.waiters[at];
            let blocked = self.any_holder(w.txn, w.place.spot(), w.mode, |_| true)
                || self.rivals(w.txn, w.place.spot(), w.mode).any(|rival| w.on.contains(&rival.txn));
            if blocked {
                at += 1;
                continue;
            }
            let w = self.waiters.remove(at);
            let new = self.grant(w.txn, w.place.clone(), w.mode);
            granted(w.txn, &w.place, new);
        }
    }
}
