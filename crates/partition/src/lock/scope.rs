//! The locks of one table, or of one tree's keys: their holders and lines. Only locks in the same
//! scope can conflict.

use super::few::Few;
use super::held::{Held, Ranges};
use super::holders::Holders;
use super::intervals::{Asked, Intervals};
use super::key::LockKey;
use super::packed::PackedKeys;
use super::spans::{Keys, Span};
use super::work::look;
use super::{MODES, Mode, Target};
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A request's target within its scope, owned.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Whole,
    Key(LockKey),
    /// `None` if there can be no key between the bounds.
    Range(Option<Span>),
}

impl Place {
    pub(super) fn of(target: Target<'_>) -> Self {
        match target {
            Target::Table(_) => Self::Whole,
            Target::Key(_, key) => Self::Key(key.into()),
            Target::Range(_, lo, hi) => Self::Range(Span::of(lo, hi)),
        }
    }

    pub(super) fn keys(&self) -> Keys<'_> {
        match self {
            Self::Key(key) => Keys::One(key),
            Self::Range(Some(span)) => Keys::Span(span.clone()),
            Self::Whole | Self::Range(None) => Keys::None,
        }
    }
}

/// Returns the keys of a target.
pub(super) fn keys_of(target: Target<'_>) -> Keys<'_> {
    match target {
        Target::Table(_) => Keys::None,
        Target::Key(_, key) => Keys::One(key),
        Target::Range(_, lo, hi) => Span::of(lo, hi).map_or(Keys::None, Keys::Span),
    }
}

/// A line at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRef {
    pub id: u64,
    pub mode: Mode,
    /// Whether it belongs to a single transaction, which has passed others.
    pub private: bool,
}

/// A key that has holders or waiters.
#[derive(Debug, Default)]
struct Key {
    holders: Holders,
    lines: Vec<LineRef>,
}

impl Key {
    fn is_unused(&self) -> bool {
        self.lines.is_empty() && self.holders.is_empty()
    }
}

/// A table as a whole.
#[derive(Debug, Default)]
struct Whole {
    /// The holders by mode, and the set of modes that have holders.
    holders: [Few<TxnId>; MODES.len()],
    held: u16,
    lines: Vec<LineRef>,
}

impl Whole {
    /// Returns true if `is` holds for the holders of one of these modes.
    #[inline]
    fn any(&self, modes: u16, mut is: impl FnMut(&Few<TxnId>) -> bool) -> bool {
        let modes = modes & self.held;
        modes != 0
            && MODES
                .iter()
                .zip(&self.holders)
                .any(|(mode, holders)| mode.bit() & modes != 0 && is(holders))
    }

    fn change(&mut self, modes: u16, change: impl Fn(&mut Few<TxnId>)) {
        for (mode, holders) in MODES.iter().zip(&mut self.holders) {
            if mode.bit() & modes != 0 {
                change(holders);
                self.held = if holders.is_empty() {
                    self.held & !mode.bit()
                } else {
                    self.held | mode.bit()
                };
            }
        }
    }
}

/// Used in [`Scope::held`]. Small in tests, so that they cover both paths.
const FEW: usize = if cfg!(test) { 2 } else { 8 };

#[derive(Debug, Default)]
pub(super) struct Scope {
    whole: Whole,
    keys: BTreeMap<LockKey, Key>,
    /// Keys of transactions with too many locks for `keys`.
    packed: BTreeMap<TxnId, Held<PackedKeys>>,
    ranges: BTreeMap<TxnId, Ranges>,
    /// The same ranges, of all transactions. It exists once more than [`FEW`] transactions have
    /// ranges; before that, `ranges` is searched one by one.
    held: Option<Intervals>,
    range_lines: BTreeMap<Span, Vec<LineRef>>,
    /// All lines for keys and ranges, with the number of the first transaction that waited in each.
    /// It exists once there has been a line for a range; before that, the keys' own lines are
    /// searched.
    waiting: Option<Intervals>,
}

impl Scope {
    pub(super) fn is_empty(&self) -> bool {
        self.whole.held == 0
            && self.keys.is_empty()
            && self.ranges.is_empty()
            && self.packed.is_empty()
            && self.whole.lines.is_empty()
            && self.range_lines.is_empty()
    }

    /// Makes an empty scope equivalent to a new one.
    pub(super) fn reset(&mut self) {
        (self.held, self.waiting) = (None, None);
    }

    /// Calls `each` with the other transactions that hold a conflicting lock, possibly more than
    /// once, until it returns true.
    pub(super) fn any_holder(
        &self,
        txn: TxnId,
        place: &Keys<'_>,
        mode: Mode,
        mut each: impl FnMut(TxnId) -> bool,
    ) -> bool {
        let mut other = |t: TxnId| {
            look();
            t != txn && each(t)
        };
        match place {
            Keys::None => {
                let modes = mode.conflicts();
                return self.whole.any(modes, |holders| holders.iter().copied().any(&mut other));
            }
            Keys::One(key) => {
                if self.keys.get(*key).is_some_and(|k| k.holders.any_against(mode, &mut other)) {
                    return true;
                }
            }
            Keys::Span(span) => {
                let mut inside = self.keys_in(span);
                if inside.any(|(_, k)| k.holders.any_against(mode, &mut other)) {
                    return true;
                }
            }
        }
        if !self.packed.is_empty()
            && !canary::on(Bug::PackedForgotten)
            && self.packed.iter().any(|(t, keys)| *t != txn && keys.clash(place, mode) && other(*t))
        {
            return true;
        }
        match &self.held {
            None => self
                .ranges
                .iter()
                .any(|(t, ranges)| *t != txn && ranges.held.clash(place, mode) && other(*t)),
            Some(held) => {
                let asked = Asked { keys: place, modes: mode.conflicts(), before: u64::MAX };
                held.find(&asked, |t| other(TxnId(t))).is_some()
            }
        }
    }

    fn keys_in<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = (&'a LockKey, &'a Key)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let to = span.to.as_deref().map_or(Unbounded, Excluded);
        self.keys.range::<[u8], _>((Included(span.from.as_slice()), to))
    }

    /// Returns true if the transaction's own key or range locks conflict with such a request. `own`
    /// are its keys in this scope.
    pub(super) fn holds_against(
        &self,
        txn: TxnId,
        place: &Keys<'_>,
        mode: Mode,
        mut own: impl Iterator<Item = LockKey>,
    ) -> bool {
        let in_conflict = |held: Mode| held.bit() & mode.conflicts() != 0;
        let key = |key: &[u8]| {
            self.keys.get(key).and_then(|k| k.holders.mode_of(txn)).is_some_and(in_conflict)
        };
        let keys = match place {
            Keys::None => {
                return self.whole.any(mode.conflicts(), |holders| holders.contains(&txn));
            }
            Keys::One(at) => key(at),
            Keys::Span(_) => own.any(|at| key(&at)),
        };
        keys || self.packed.get(&txn).is_some_and(|keys| keys.clash(place, mode))
            || self.ranges.get(&txn).is_some_and(|ranges| ranges.held.clash(place, mode))
    }

    /// Returns true if the place is a single key on which no transaction holds or awaits anything.
    #[inline]
    pub(super) fn is_unused(&self, place: &Keys<'_>) -> bool {
        matches!(place, Keys::One(key) if !self.keys.contains_key(*key))
            && self.ranges.is_empty()
            && self.packed.is_empty()
    }

    /// Returns true if the transaction holds a lock of one of these modes that covers the place.
    pub(super) fn covered(&self, txn: TxnId, place: &Keys<'_>, modes: u16) -> bool {
        let in_key = match place {
            Keys::None => {
                return self.whole.any(modes, |holders| holders.contains(&txn));
            }
            Keys::One(key) => {
                let held = self.keys.get(*key).and_then(|k| k.holders.mode_of(txn));
                held.is_some_and(|held| held.bit() & modes != 0)
            }
            Keys::Span(_) => false,
        };
        in_key
            || (!self.ranges.is_empty()
                && self.ranges.get(&txn).is_some_and(|r| r.held.cover(place, modes)))
            || (!self.packed.is_empty()
                && self.packed.get(&txn).is_some_and(|p| p.cover(place, modes)))
    }

    /// Returns the number of separate ranges that the transaction holds in this mode.
    pub(super) fn ranges_of(&self, txn: TxnId, mode: Mode) -> usize {
        self.ranges.get(&txn).map_or(0, |ranges| ranges.held.of(mode).len())
    }

    /// Same as [`Ranges::next_gap`].
    pub(super) fn next_gap(&mut self, txn: TxnId, mode: Mode) -> Option<Span> {
        self.ranges.get_mut(&txn)?.next_gap(mode)
    }

    /// Records a packed key lock. Returns true if it is the transaction's first one in this scope.
    pub(super) fn grant_packed(&mut self, txn: TxnId, key: &[u8], mode: Mode) -> bool {
        let new = !self.packed.contains_key(&txn);
        self.packed.entry(txn).or_default().of_mut(mode).insert(key);
        new
    }

    /// Records a lock; returns true if the transaction held none at this exact place before.
    pub(super) fn grant(&mut self, txn: TxnId, place: &Place, mode: Mode) -> bool {
        match place {
            Place::Whole => {
                let new = !self.whole.any(u16::MAX, |holders| holders.contains(&txn));
                self.whole.change(mode.bit(), |holders| _ = holders.insert(txn));
                new
            }
            Place::Key(key) => self.keys.entry(key.clone()).or_default().holders.insert(txn, mode),
            Place::Range(span) => {
                let new = !self.ranges.contains_key(&txn);
                let own = self.ranges.entry(txn).or_default();
                if let Some(span) = span {
                    let set = own.held.of_mut(mode);
                    let (held, id) = (&mut self.held, (txn.0, mode));
                    let whole = set.insert(span.clone(), |gone| {
                        held.iter_mut().for_each(|h| h.remove(gone, id))
                    });
                    held.iter_mut().for_each(|h| h.insert(whole.clone(), id, 0));
                }
                if self.held.is_none() && self.ranges.len() > FEW {
                    self.held = Some(self.all_ranges());
                }
                new
            }
        }
    }

    /// Returns each key that has individual holders or waiters, with its holders and lines.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&LockKey, &Holders, &[LineRef])> {
        self.keys.iter().map(|(key, at)| (key, &at.holders, &*at.lines))
    }

    /// Returns the key's holders and their modes.
    #[inline]
    pub(super) fn holders_of(&self, key: &[u8]) -> Option<&Holders> {
        self.keys.get(key).map(|key| &key.holders)
    }

    pub(super) fn holders_of_mut(&mut self, key: &[u8]) -> Option<&mut Holders> {
        self.keys.get_mut(key).map(|key| &mut key.holders)
    }

    pub(super) fn release_key(&mut self, txn: TxnId, key: &LockKey) {
        let Entry::Occupied(mut at) = self.keys.entry(key.clone()) else { return };
        at.get_mut().holders.remove(txn);
        if at.get().is_unused() {
            at.remove();
        }
    }

    /// Releases everything except single keys.
    pub(super) fn release_sets(&mut self, txn: TxnId) {
        self.packed.remove(&txn);
        let Some(ranges) = self.ranges.remove(&txn) else { return };
        for (mode, set) in ranges.held.by_mode() {
            let held = self.held.iter_mut();
            held.for_each(|held| {
                set.spans().for_each(|span| held.remove(&span.from, (txn.0, mode)))
            });
        }
    }

    fn all_ranges(&self) -> Intervals {
        let mut all = Intervals::default();
        for (txn, ranges) in &self.ranges {
            for (mode, set) in ranges.held.by_mode() {
                set.spans().for_each(|span| all.insert(span, (txn.0, mode), 0));
            }
        }
        all
    }

    pub(super) fn release_whole(&mut self, txn: TxnId) {
        self.whole.change(self.whole.held, |holders| holders.remove(&txn));
    }

    /// Returns the lines at exactly this place.
    pub(super) fn lines_at(&self, place: &Keys<'_>) -> &[LineRef] {
        match place {
            Keys::None => &self.whole.lines,
            Keys::One(key) => self.keys.get(*key).map_or(&[], |k| &k.lines),
            Keys::Span(span) => self.range_lines.get(span).map_or(&[], |lines| lines),
        }
    }

    /// Returns a conflicting line for keys or ranges that meets the place and was opened before
    /// `before`: the last one that `accept` accepted. For a new request (`before` is `u64::MAX`) it
    /// prefers the newest line, so that newcomers do not all watch the same line and rescan when it
    /// closes.
    pub(super) fn find_line(
        &self,
        place: &Keys<'_>,
        mode: Mode,
        before: u64,
        mut accept: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let Some(waiting) = &self.waiting else {
            let Keys::Span(span) = place else { return None };
            let clash = |l: &&LineRef| l.mode.bit() & mode.conflicts() != 0;
            let lines = self.keys_in(span).flat_map(|(_, k)| &k.lines).filter(clash);
            return lines.map(|l| l.id).find(|line| accept(*line));
        };
        if waiting.is_empty() || (self.range_lines.is_empty() && !matches!(place, Keys::Span(_))) {
            return None;
        }
        let asked = Asked { keys: place, modes: mode.conflicts(), before };
        // A new request is newer than all lines.
        if before == u64::MAX {
            waiting.newest(&asked, accept)
        } else {
            waiting.find(&asked, accept)
        }
    }

    /// Records a line whose first member has this number; `number_of` returns the number of another
    /// line.
    pub(super) fn add_line(
        &mut self,
        place: &Place,
        line: LineRef,
        number: u64,
        number_of: impl Fn(u64) -> u64,
    ) {
        match place {
            Place::Whole | Place::Range(None) => self.whole.lines.push(line),
            Place::Key(key) => {
                self.keys.entry(key.clone()).or_default().lines.push(line);
                if let Some(waiting) = &mut self.waiting {
                    waiting.insert(Span::of_key(key), (line.id, line.mode), number);
                }
            }
            Place::Range(Some(span)) => {
                if self.waiting.is_none() {
                    let mut waiting = Intervals::default();
                    let of_keys =
                        self.keys.iter().flat_map(|(key, k)| k.lines.iter().map(move |l| (key, l)));
                    of_keys.for_each(|(key, l)| {
                        waiting.insert(Span::of_key(key), (l.id, l.mode), number_of(l.id))
                    });
                    self.waiting = Some(waiting);
                }
                self.range_lines.entry(span.clone()).or_default().push(line);
                if let Some(waiting) = &mut self.waiting {
                    waiting.insert(span.clone(), (line.id, line.mode), number);
                }
            }
        }
    }

    pub(super) fn remove_line(&mut self, place: &Place, line: LineRef) {
        let others = |l: &LineRef| l.id != line.id;
        match place {
            Place::Whole | Place::Range(None) => self.whole.lines.retain(others),
            Place::Key(key) => {
                if let Entry::Occupied(mut at) = self.keys.entry(key.clone()) {
                    at.get_mut().lines.retain(others);
                    if at.get().is_unused() {
                        at.remove();
                    }
                }
                if let Some(waiting) = &mut self.waiting {
                    waiting.remove(key, (line.id, line.mode));
                }
            }
            Place::Range(Some(span)) => {
                if let Some(lines) = self.range_lines.get_mut(span) {
                    lines.retain(others);
                    if lines.is_empty() {
                        self.range_lines.remove(span);
                    }
                }
                if let Some(waiting) = &mut self.waiting {
                    waiting.remove(&span.from, (line.id, line.mode));
                }
            }
        }
    }
}
