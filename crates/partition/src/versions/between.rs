//! The keys of a range that have images, in memory or in the file, with their values as of a
//! snapshot.

use super::change::{Older, Rewind};
use super::spill::{At, Spilled};
use super::{AsOf, Chain, Image, Key, Versions};
use crate::exec::Stop;
use clearway_types::TreeId;
use std::borrow::Cow;
use std::collections::btree_map;
use std::ops::{Bound, ControlFlow};

/// Receives a key with its value as of the snapshot, or without one.
pub(crate) type VisitAt<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()> + 'a;

/// Iterates over keys with images; see [`Versions::between`].
pub(crate) struct Between<'v> {
    versions: &'v Versions,
    as_of: AsOf,
    keys: Option<btree_map::Range<'v, Key, Chain>>,
    reverse: bool,
    next: Option<(&'v Key, &'v [Image])>,
    /// `None` if nothing is in the file.
    spilled: Option<Spilled<'v>>,
}

impl Versions {
    /// Returns the keys with images between the bounds, in order. The result converts a value in
    /// the tree to the snapshot's value.
    pub(crate) fn between<'v>(
        &'v self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        as_of: AsOf,
    ) -> Between<'v> {
        let empty = is_empty(from, to);
        let chains = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree));
        let keys = chains.filter(|_| !empty).map(|chains| chains.range::<[u8], _>((from, to)));
        let spilled = !empty && !self.spill.is_empty();
        let spilled = spilled
            .then(|| Spilled::new(&self.spill, tree, (from, to), reverse, self.reader(as_of)));
        Between { versions: self, as_of, keys, reverse, next: None, spilled }
    }
}

/// Returns true if no key can be between the bounds; a map of keys panics for such bounds.
pub(super) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
    }
}

impl<'v> Between<'v> {
    fn peek(&mut self) -> Option<(&'v Key, &'v [Image])> {
        if self.next.is_none() {
            let keys = self.keys.as_mut()?;
            let next = if self.reverse { keys.next_back() } else { keys.next() };
            self.next = next.map(|(key, chain)| (key, chain.as_slice()));
        }
        self.next
    }

    /// Returns the next key with images.
    fn first(&mut self) -> Result<Option<&'v [u8]>, Stop> {
        let in_memory = self.peek().map(|(key, _)| &**key);
        let spilled = match self.spilled.as_mut().and_then(|spilled| spilled.head()) {
            None => return Ok(in_memory),
            Some(At::Start) => return self.take_spilled().map(|_| None),
            Some(At::Key(key)) => key,
        };
        Ok(Some(match in_memory {
            Some(key) if (key < spilled) != self.reverse => key,
            _ => spilled,
        }))
    }

    fn take_spilled(&mut self) -> Result<Older<'v>, Stop> {
        self.spilled.as_mut().map_or(Ok(Older::default()), Spilled::take)
    }

    /// Consumes the next key and returns its value; `now` is the one in the tree.
    fn resolve<'a>(
        &mut self,
        key: &[u8],
        now: Option<&'a [u8]>,
    ) -> Result<Option<Cow<'a, [u8]>>, Stop>
    where
        'v: 'a,
    {
        let chain = self.peek().filter(|(same, _)| ***same == *key).map(|(_, chain)| chain);
        let rewind = chain.map(|chain| self.versions.rewind(chain, now, self.as_of)).transpose()?;
        let (mut back, settled) = rewind.unwrap_or((Rewind::from(now), false));
        if self.spilled.as_ref().and_then(Spilled::head) == Some(At::Key(key)) {
            let older = self.take_spilled()?;
            if !settled {
                older.apply(&mut back)?;
            }
        }
        if chain.is_some() {
            self.next = None;
        }
        back.end()
    }

    /// Visits the keys with images before `key` (`None`: all remaining ones), which are not in the
    /// tree. Returns true if `visit` broke.
    pub(crate) fn before(
        &mut self,
        key: Option<&[u8]>,
        visit: &mut VisitAt<'_>,
    ) -> Result<bool, Stop> {
        while let Some(behind) = self.first()? {
            let ahead = |key: &[u8]| if self.reverse { behind <= key } else { behind >= key };
            if key.is_some_and(ahead) {
                break;
            }
            let value = self.resolve(behind, None)?;
            if visit(behind, value.as_deref()).is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the snapshot's value of a key that is in the tree, after all keys that
    /// [`Between::before`] has visited.
    pub(crate) fn value<'a>(
        &mut self,
        key: &[u8],
        now: &'a [u8],
    ) -> Result<Option<Cow<'a, [u8]>>, Stop>
    where
        'v: 'a,
    {
        if self.first()? == Some(key) {
            self.resolve(key, Some(now))
        } else {
            Ok(Some(Cow::Borrowed(now)))
        }
    }
}
