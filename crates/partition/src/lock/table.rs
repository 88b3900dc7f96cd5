//! The lock table: holders, waiters and lines over all scopes.

use super::key::LockKey;
use super::line::{InLine, Line, NAMED, Waiting};
use super::owner::Owner;
use super::retired::Heat;
use super::scope::{LineRef, Place, Scope, keys_of};
use super::spans::Keys;
use super::work::look;
use super::{Mode, Target, class};
use clearway_sync::canary::{self, Bug};
use clearway_types::{TableId, TreeId, TxnId};
use hashbrown::HashMap;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

/// Maximum number of consecutive lines that are followed to find out whether they wait for a
/// request's transaction. A request that could have passed more lines waits behind them instead;
/// that is a deadlock, which is detected.
const FAR: usize = 64;

/// Number of scopes up to which empty ones are kept: creating and freeing a scope costs more than
/// locking a key in it.
pub(super) const KEPT: usize = 64;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The lock is held.
    Granted,
    /// The request waits.
    Waits(InLine),
}

/// A change of waits and lines; events are in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The transaction's wait is over: it has its lock.
    Granted(TxnId),
    /// From now on these transactions block the line; none means that the line is closed.
    Line(InLine),
}

/// Locks conflict only within a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScopeId {
    Table(TableId),
    Tree(TreeId),
}

impl ScopeId {
    pub(super) fn of(target: Target<'_>) -> Self {
        match target {
            Target::Table(t) => Self::Table(t),
            Target::Key(t, _) | Target::Range(t, ..) => Self::Tree(t),
        }
    }
}

/// A request, as compared with others.
pub(super) struct Request<'a> {
    pub txn: TxnId,
    pub scope: ScopeId,
    pub keys: Keys<'a>,
    mode: Mode,
    /// Its own line, if it is in one, and the number of its wait.
    line: Option<u64>,
    number: u64,
}

impl<'a> Request<'a> {
    /// Returns a request that arrives now.
    pub fn new(txn: TxnId, scope: ScopeId, keys: Keys<'a>, mode: Mode) -> Self {
        Self { txn, scope, keys, mode, line: None, number: u64::MAX }
    }
}

/// The obstacles of a request.
#[derive(Default)]
struct Obstacles {
    /// Up to [`NAMED`] transactions; the first is to be watched. None means that the request can be
    /// granted.
    on: Vec<TxnId>,
    /// Whether the request passes one that came earlier.
    passes: bool,
}

/// The lock table.
#[derive(Debug)]
pub(crate) struct LockTable {
    /// Same as [`crate::Limits::many_locks`].
    pub(super) many: usize,
    pub(super) scopes: HashMap<ScopeId, Scope>,
    pub(super) owners: HashMap<TxnId, Owner>,
    pub(super) lines: HashMap<u64, Line>,
    /// The number of retired locks, and where it is worth retiring one.
    pub(super) retired: usize,
    pub(super) heat: Heat,
    /// The number of transactions with an entry in [`Owner::behind`].
    pub(super) followers: usize,
    /// Transactions that will be undone, or for which all transactions behind them will be undone.
    /// No others may go behind them.
    pub(super) barred: BTreeSet<TxnId>,
    /// Transactions whose end was waited for because of their size ([`super::large`]).
    pub(super) large: BTreeSet<TxnId>,
    /// The number of lines and waits so far.
    numbers: u64,
    /// The number of keys and ranges locked or waited for so far.
    row_requests: u64,
    events: VecDeque<Event>,
}

impl LockTable {
    /// Creates an empty lock table.
    pub(crate) fn new(many: usize) -> Self {
        Self {
            many,
            scopes: HashMap::new(),
            owners: HashMap::new(),
            lines: HashMap::new(),
            retired: 0,
            heat: Heat::default(),
            followers: 0,
            barred: BTreeSet::new(),
            large: BTreeSet::new(),
            numbers: 0,
            row_requests: 0,
            events: VecDeque::new(),
        }
    }

    /// Returns true if nothing is held or waited for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the transactions that hold a lock or wait for one, in any order.
    pub(crate) fn owners(&self) -> impl Iterator<Item = TxnId> {
        self.owners.keys().copied()
    }

    /// Returns how many keys and ranges were locked or waited for so far.
    pub(crate) fn row_requests(&self) -> u64 {
        self.row_requests
    }

    /// Returns true if [`LockTable::next_event`] will return an event.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the next event.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns true if a request would be granted immediately; records nothing.
    pub(crate) fn free(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> bool {
        let (scope, keys) = (ScopeId::of(target), keys_of(target));
        let mode = self.joined(txn, target, mode);
        self.is_free(&Request::new(txn, scope, keys, mode))
    }

    fn is_free(&self, r: &Request<'_>) -> bool {
        let Some(scope) = self.scopes.get(&r.scope) else { return true };
        if scope.any_holder(r.txn, &r.keys, r.mode, |_| true) {
            return false;
        }
        // `acquire` joins the line of its own place and mode unless that line waits for it. The
        // line may be too long to find that out, although the request's obstacles are not.
        let joins = || self.line_of(r).is_some_and(|line| !self.waits_for(line, r.txn));
        self.lines.is_empty() || (self.rival(scope, r, &Cell::new(false)).is_none() && !joins())
    }

    /// Returns the other transactions that hold a lock that conflicts with such a request, possibly
    /// more than once.
    pub(crate) fn holders_against(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> Vec<TxnId> {
        let mut holders = Vec::new();
        if let Some(scope) = self.scopes.get(&ScopeId::of(target)) {
            scope.any_holder(txn, &keys_of(target), mode, |holder| {
                holders.push(holder);
                false
            });
        }
        holders
    }

    /// Returns true if the transaction already holds a lock that covers this one.
    pub(crate) fn covered(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> bool {
        self.covered_in(txn, target, mode.covered_by())
    }

    /// Returns true if the transaction holds the target in one of these modes, a set.
    pub(crate) fn covered_in(&self, txn: TxnId, target: Target<'_>, modes: u16) -> bool {
        self.scopes
            .get(&ScopeId::of(target))
            .is_some_and(|scope| scope.covered(txn, &keys_of(target), modes))
    }

    /// Acquires a lock or joins a line for it. A lock that the transaction already holds is not
    /// counted as a request.
    pub(crate) fn acquire(&mut self, txn: TxnId, target: Target<'_>, mode: Mode) -> Acquired {
        let (id, keys) = (ScopeId::of(target), keys_of(target));
        let mode = self.joined(txn, target, mode);
        let scope = self.scopes.entry(id).or_default();
        let is_unused = scope.is_unused(&keys);
        if !is_unused && scope.covered(txn, &keys, mode.covered_by()) {
            return Acquired::Granted;
        }
        class(target, mode).request();
        self.row_requests += u64::from(!matches!(target, Target::Table(_)));
        let owner = self.owners.entry(txn).or_default();
        assert!(owner.waits.is_none(), "invariant 4: {txn} waits already");
        let place = Place::of(target);
        if self.lines.is_empty()
            && mode != Mode::Behind
            && (is_unused || !scope.any_holder(txn, &keys, mode, |_| true))
        {
            owner.take(scope, txn, id, &place, mode, self.many);
            return Acquired::Granted;
        }
        let request = Request::new(txn, id, keys, mode);
        let line = self.line_of(&request);
        if let Some(line) = line
            && !self.waits_for(line, txn)
        {
            self.note_wait(target, mode);
            return Acquired::Waits(self.join(line, txn));
        }
        let obstacles = self.obstacles(&request);
        if obstacles.on.is_empty() {
            if mode == Mode::Behind {
                self.note_join(target);
            }
            self.grant(txn, id, &place, mode);
            return Acquired::Granted;
        }
        self.note_wait(target, mode);
        let private = obstacles.passes || line.is_some();
        Acquired::Waits(self.open(txn, id, place, mode, private, obstacles.on))
    }

    /// Acquires a lock on a key or a range unless the table's lock covers it; the transaction must
    /// hold the table's intent lock.
    pub(crate) fn acquire_in(
        &mut self,
        txn: TxnId,
        table: TableId,
        target: Target<'_>,
        mode: Mode,
    ) -> Acquired {
        if self.covered(txn, Target::Table(table), mode.of_table()) {
            return Acquired::Granted;
        }
        if matches!(target, Target::Range(..)) {
            self.join_ranges(txn, ScopeId::of(target), mode);
        }
        self.acquire(txn, target, mode)
    }

    /// If the transaction has many ranges of a tree, locks two of the gaps between them if no other
    /// transaction blocks that. It locks two so that the number of ranges decreases although the
    /// caller adds one.
    pub(super) fn join_ranges(&mut self, txn: TxnId, id: ScopeId, mode: Mode) {
        for _ in 0..2 {
            let Some(scope) =
                self.scopes.get_mut(&id).filter(|s| s.ranges_of(txn, mode) >= self.many)
            else {
                return;
            };
            let Some(gap) = scope.next_gap(txn, mode) else { return };
            let keys = Keys::Span(gap.clone());
            if self.is_free(&Request::new(txn, id, keys, mode)) {
                self.grant(txn, id, &Place::Range(Some(gap)), mode);
            }
        }
    }

    /// Ends a wait.
    pub(crate) fn stop_waiting(&mut self, txn: TxnId) {
        let Some(owner) = self.owners.get_mut(&txn) else { return };
        let Some(waiting) = owner.waits.take() else { return };
        let watched = owner.watched.clone();
        if self.leave(waiting) {
            self.serve(waiting.line);
        }
        self.serve_all(txn, &watched);
        self.forget_idle(txn);
    }

    /// Releases everything, including a wait.
    pub(crate) fn release(&mut self, txn: TxnId) {
        self.stop_waiting(txn);
        self.barred.remove(&txn);
        self.large.remove(&txn);
        let Some(owner) = self.owners.remove(&txn) else { return };
        self.retired -= owner.retired.len();
        self.followers -= usize::from(!owner.behind.is_empty());
        for (tree, key) in owner.keys.iter() {
            self.in_scope(ScopeId::Tree(*tree), |scope| scope.release_key(txn, key));
        }
        for tree in owner.sets {
            self.in_scope(ScopeId::Tree(tree), |scope| scope.release_sets(txn));
        }
        for table in owner.tables {
            self.in_scope(ScopeId::Table(table), |scope| scope.release_whole(txn));
        }
        self.serve_all(txn, &owner.watched);
    }

    /// Changes a scope. A scope that becomes empty is kept for the next transaction unless there
    /// are more than [`KEPT`].
    pub(super) fn in_scope(&mut self, id: ScopeId, change: impl FnOnce(&mut Scope)) {
        let Some(scope) = self.scopes.get_mut(&id) else { return };
        change(scope);
        if scope.is_empty() {
            scope.reset();
            if self.scopes.len() > KEPT {
                self.scopes.remove(&id);
            }
        }
    }

    fn grant(&mut self, txn: TxnId, id: ScopeId, place: &Place, mode: Mode) {
        let scope = self.scopes.entry(id).or_default();
        let owner = self.owners.entry(txn).or_default();
        let before = owner.behind.is_empty();
        owner.take(scope, txn, id, place, mode, self.many);
        self.followers += usize::from(before && !owner.behind.is_empty());
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Obstacles.
impl LockTable {
    /// Returns the line that such a request would join.
    pub(super) fn line_of(&self, r: &Request<'_>) -> Option<u64> {
        let lines = self.scopes.get(&r.scope)?.lines_at(&r.keys);
        lines.iter().find(|l| l.mode == r.mode && !l.private).map(|l| l.id)
    }

    /// Returns true if the line waits for the transaction: for a lock that it holds in the same
    /// scope, or for a transaction that does, as far as the watched transactions show.
    fn waits_for(&self, line: u64, txn: TxnId) -> bool {
        if canary::on(Bug::StuckUpgrade) {
            return false;
        }
        let Some(scope) = self.lines.get(&line).map(|l| l.scope) else { return false };
        let Some(owner) = self.owners.get(&txn).filter(|owner| owner.holds_in(scope)) else {
            return false;
        };
        let mut at = line;
        for _ in 0..FAR {
            look();
            if self.holds_against(at, txn, owner) {
                return true;
            }
            let watched = self.lines.get(&at).and_then(|l| l.on.first());
            let Some(next) = watched.and_then(|txn| self.owners.get(txn)?.waits) else {
                return false;
            };
            at = next.line;
        }
        false
    }

    fn holds_against(&self, line: u64, txn: TxnId, owner: &Owner) -> bool {
        let Some(line) = self.lines.get(&line) else { return false };
        if line.at.mode == Mode::Settled {
            return line.on.contains(&txn);
        }
        let Some(scope) = self.scopes.get(&line.scope) else { return false };
        let keys = line.place.keys();
        // The transaction's own keys within the range.
        let begin = match (&keys, line.scope) {
            (Keys::Span(span), ScopeId::Tree(tree)) => {
                Some((tree, LockKey::from(span.from.as_slice())))
            }
            _ => None,
        };
        let inside =
            |(tree, key): &(TreeId, LockKey)| line.scope == ScopeId::Tree(*tree) && keys.has(key);
        let own = begin
            .iter()
            .flat_map(|begin| owner.keys.stretch(begin, &inside))
            .map(|(_, key)| key.clone());
        scope.holds_against(txn, &keys, line.at.mode, own)
    }

    /// If the line precedes the request, returns its last member that does. A line that waits for
    /// the request's transaction does not precede it: then `passes` is set.
    fn goes_first(&self, line: u64, r: &Request<'_>, passes: &Cell<bool>) -> Option<TxnId> {
        look();
        let found =
            self.lines.get(&line).filter(|l| Some(line) != r.line && l.at.mode != Mode::Settled)?;
        let earlier = |txn: &TxnId| {
            *txn != r.txn
                && self.owners.get(txn).and_then(|o| o.waits).is_some_and(|w| w.number < r.number)
        };
        let one = [found.last, found.first].into_iter().find(earlier)?;
        if self.waits_for(line, r.txn) {
            passes.set(true);
            return None;
        }
        Some(one)
    }

    /// Returns a waiting transaction that conflicts with the request and precedes it. Those at the
    /// same place come first.
    fn rival(&self, scope: &Scope, r: &Request<'_>, passes: &Cell<bool>) -> Option<TxnId> {
        if self.lines.is_empty() {
            return None;
        }
        let clash = |l: &&LineRef| l.mode.bit() & r.mode.conflicts() != 0;
        let here = scope
            .lines_at(&r.keys)
            .iter()
            .filter(clash)
            .find_map(|l| self.goes_first(l.id, r, passes));
        if here.is_some() {
            return here;
        }
        let mut found = None;
        scope.find_line(&r.keys, r.mode, r.number, |line| {
            let first = self.goes_first(line, r, passes);
            found = first.or(found);
            first.is_some()
        });
        found
    }

    /// Returns the request's obstacles. The transaction to watch comes first: an earlier waiter,
    /// because it remains an obstacle until it has had its turn, else a holder.
    fn obstacles(&self, r: &Request<'_>) -> Obstacles {
        let mut found = Obstacles::default();
        if r.mode == Mode::Settled {
            found.on = self.unsettled(r);
            return found;
        }
        let Some(scope) = self.scopes.get(&r.scope) else { return found };
        let passes = Cell::new(false);
        found.on.extend(self.rival(scope, r, &passes));
        // Limits the number of calls, not of distinct holders: one transaction may hold very many
        // keys of a range.
        let mut visited = 0;
        let rivals = found.on.len();
        if r.mode == Mode::Behind && !self.barred.is_empty() {
            found.on.extend(self.barred_ahead(r).take(NAMED - rivals));
        }
        let barred = r.mode == Mode::Behind
            && (found.on.len() > rivals || self.must_not_join(r.txn, r.scope, &r.keys));
        let mode = if barred { Mode::NoKeyExclusive } else { r.mode };
        scope.any_holder(r.txn, &r.keys, mode, |holder| {
            if found.on.len() < NAMED && !found.on.contains(&holder) {
                found.on.push(holder);
            }
            visited += 1;
            visited == NAMED || found.on.len() == NAMED
        });
        found.passes = passes.get();
        found
    }
}

/// Lines.
impl LockTable {
    /// Appends a transaction to a line.
    pub(super) fn join(&mut self, line: u64, txn: TxnId) -> InLine {
        self.unname(line, txn);
        let number = self.next_number();
        let Some(found) = self.lines.get_mut(&line) else { return InLine { line, on: Vec::new() } };
        let last = std::mem::replace(&mut found.last, txn);
        let joined = InLine { line, on: found.on.clone() };
        if let Some(waiting) = self.owners.get_mut(&last).and_then(|o| o.waits.as_mut()) {
            waiting.behind = Some(txn);
        }
        self.owners.entry(txn).or_default().waits =
            Some(Waiting { line, number, before: Some(last), behind: None });
        debug_assert!(self.names_no_member(line, &joined.on), "invariant 3");
        joined
    }

    /// Opens a line.
    pub(super) fn open(
        &mut self,
        txn: TxnId,
        scope: ScopeId,
        place: Place,
        mode: Mode,
        private: bool,
        on: Vec<TxnId>,
    ) -> InLine {
        let (id, number) = (self.next_number(), self.next_number());
        let at = LineRef { id, mode, private };
        let number_of = |line| {
            let first = self.lines.get(&line).and_then(|l| self.owners.get(&l.first)?.waits);
            first.map_or(0, |waiting| waiting.number)
        };
        self.scopes.entry(scope).or_default().add_line(&place, at, number, number_of);
        self.owners.entry(txn).or_default().waits =
            Some(Waiting { line: id, number, before: None, behind: None });
        self.lines.insert(id, Line { at, scope, place, first: txn, last: txn, on: Vec::new() });
        self.point(id, on.clone());
        InLine { line: id, on }
    }

    /// Makes a line watch the first of these transactions.
    pub(super) fn point(&mut self, line: u64, on: Vec<TxnId>) {
        debug_assert!(self.names_no_member(line, &on), "invariant 3");
        let Some(found) = self.lines.get_mut(&line).filter(|found| found.on != on) else { return };
        let (old, new) = (found.on.first().copied(), on.first().copied());
        found.on.clone_from(&on);
        if let Some(owner) = old.filter(|_| old != new).and_then(|old| self.owners.get_mut(&old)) {
            owner.watched.remove(&line);
        }
        if let Some(new) = new {
            self.owners.entry(new).or_default().watched.insert(line);
        }
        let stale = canary::on(Bug::StaleEdge) && old.is_some() && new.is_some();
        if !stale {
            self.events.push_back(Event::Line(InLine { line, on }));
        }
    }

    /// Removes a member from its line; returns true if it was the first.
    fn leave(&mut self, waiting: Waiting) -> bool {
        if let Some(before) =
            waiting.before.and_then(|txn| self.owners.get_mut(&txn)?.waits.as_mut())
        {
            before.behind = waiting.behind;
        }
        if let Some(behind) =
            waiting.behind.and_then(|txn| self.owners.get_mut(&txn)?.waits.as_mut())
        {
            behind.before = waiting.before;
        }
        let Some(line) = self.lines.get_mut(&waiting.line) else { return false };
        match (waiting.before, waiting.behind) {
            (None, None) => self.close(waiting.line),
            (None, Some(behind)) => line.first = behind,
            (Some(before), None) => line.last = before,
            (Some(_), Some(_)) => {}
        }
        waiting.before.is_none()
    }

    /// Closes a line that its last member has left.
    fn close(&mut self, line: u64) {
        self.point(line, Vec::new());
        let Some(line) = self.lines.remove(&line) else { return };
        self.in_scope(line.scope, |scope| scope.remove_line(&line.place, line.at));
    }

    /// Examines the lines that watched the transaction, oldest first.
    pub(super) fn serve_all(&mut self, txn: TxnId, watched: &BTreeSet<u64>) {
        if watched.is_empty() {
            return;
        }
        let number = |line: &u64| {
            let line = self.lines.get(line).filter(|l| l.on.first() == Some(&txn))?;
            Some((self.owners.get(&line.first)?.waits?.number, line.at.id))
        };
        let mut lines: Vec<(u64, u64)> = watched.iter().filter_map(number).collect();
        lines.sort_unstable();
        lines.into_iter().for_each(|(_, line)| self.serve(line));
    }

    /// Grants the members of a line that need not wait any longer, in order, and makes the line
    /// watch another transaction.
    pub(super) fn serve(&mut self, id: u64) {
        while let Some(line) = self.lines.get(&id) {
            look();
            let (txn, scope, mode) = (line.first, line.scope, line.at.mode);
            let Some(waiting) = self.owners.get(&txn).and_then(|o| o.waits) else { return };
            let keys = line.place.keys();
            let request =
                Request { txn, scope, keys, mode, line: Some(id), number: waiting.number };
            let on = self.obstacles(&request).on;
            if !on.is_empty() {
                return self.point(id, on);
            }
            let place = line.place.clone();
            self.owners.entry(txn).or_default().waits = None;
            self.grant(txn, scope, &place, mode);
            self.events.push_back(Event::Granted(txn));
            self.leave(waiting);
            // A wait in `Mode::Settled` ends without a lock.
            self.forget_idle(txn);
        }
    }
}
