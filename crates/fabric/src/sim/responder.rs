//! The receiving side of a queue pair: the effect of a request on its node's memory, word by word.

use super::core::{Core, Event, Op, Place};
use super::sparse::SparseWords;
use crate::{RemoteAddr, Verb, VerbError};

impl Core {
    pub fn arrive(&mut self, id: u64) {
        let Some(op) = self.ops.get_mut(id) else { return };
        op.arrived = true;
        let (end, verb) = (op.end, op.request.verb);
        if self.nodes[self.ends[end].there].dead || self.ends[end].refused {
            return;
        }
        let words = op.payload.len();
        let there = self.ends[end].there;
        Self::occupy(&mut self.nodes[there].in_free_ns, self.now_ns, &self.config, words);
        let Some(remote) = verb.remote() else {
            let at_ns = self
                .now_ns
                .max(self.ends[end].writes_until_ns)
                .max(self.ends[end].atomics_until_ns);
            self.schedule(at_ns, Event::Deliver(id));
            return;
        };
        let Some(place) = self.find(there, remote, verb.scratch().words) else {
            self.ends[end].refused = true;
            self.schedule(self.now_ns, Event::Answer(id, Err(VerbError::RemoteAccess)));
            return;
        };
        match verb {
            Verb::Read { local, .. } => self.arrive_read(id, end, place, local.words),
            Verb::Write { local, .. } => self.arrive_write(id, end, place, local.words),
            _ => self.arrive_atomic(id, end, place),
        }
    }

    /// Returns the first word of a range if all of it is registered.
    fn find(&self, node: usize, remote: RemoteAddr, words: usize) -> Option<Place> {
        let matches = |m: &super::core::Memory| {
            m.registered && m.key == remote.key.key && remote.key.base == 0
        };
        let region = self.nodes[node].regions.iter().position(matches)?;
        let end = remote.word.checked_add(words as u64)?;
        let within = end <= self.nodes[node].regions[region].words.len() as u64;
        within.then_some(Place { node, region, word: remote.word as usize })
    }

    fn arrive_read(&mut self, id: u64, end: usize, place: Place, words: usize) {
        let from = &self.ends[end];
        let mut start_ns = self.now_ns.max(from.writes_until_ns).max(from.reads_until_ns);
        if self.config.reads_follow_atomics {
            start_ns = start_ns.max(from.atomics_until_ns);
        }
        self.ops.get_mut(id).expect("it arrives").payload = vec![0; words];
        let mut last_ns = start_ns;
        for index in 0..words {
            let at_ns = start_ns + self.draw(self.config.spread_ns);
            last_ns = last_ns.max(at_ns);
            self.schedule(
                at_ns,
                Event::Sample(id, Place { word: place.word + index, ..place }, index),
            );
        }
        self.ends[end].reads_until_ns = last_ns;
        self.schedule(last_ns, Event::Answer(id, Ok(words)));
    }

    fn arrive_write(&mut self, id: u64, end: usize, place: Place, words: usize) {
        let start_ns = self.now_ns.max(self.ends[end].atomics_until_ns);
        let op = &self.ops[id];
        let payload = op.payload.clone();
        let cut = op.cut;
        let mut until_ns = self.ends[end].writes_until_ns;
        // Per word, this WRITE must not land before an earlier one of the queue pair.
        let earlier = std::mem::take(&mut self.ends[end].landings);
        let mut landings: Vec<_> =
            earlier.into_iter().filter(|(_, at_ns)| *at_ns >= self.now_ns).collect();
        for (index, value) in payload.into_iter().enumerate() {
            let place = Place { word: place.word + index, ..place };
            let before = landings
                .iter()
                .filter(|(other, _)| *other == place)
                .map(|(_, at_ns)| at_ns + 1)
                .max();
            let at_ns = (start_ns + self.draw(self.config.spread_ns)).max(before.unwrap_or(0));
            until_ns = until_ns.max(at_ns);
            landings.push((place, at_ns));
            self.schedule(at_ns, Event::Land(place, value));
        }
        self.ends[end].landings = landings;
        self.ends[end].writes_until_ns = until_ns;
        if !cut {
            // Before the words have landed: a completed WRITE need not be visible to others.
            self.schedule(self.now_ns, Event::Answer(id, Ok(words)));
        }
    }

    fn arrive_atomic(&mut self, id: u64, end: usize, place: Place) {
        let from = &self.ends[end];
        let start_ns = self.now_ns.max(from.writes_until_ns).max(from.atomics_until_ns);
        let start_ns = start_ns.max(self.nodes[place.node].atomic_free_ns);
        let store_ns = start_ns + 1 + self.draw(self.config.atomic_ns.saturating_sub(1));
        self.ends[end].atomics_until_ns = store_ns + 1;
        self.nodes[place.node].atomic_free_ns = store_ns + 1;
        self.schedule(start_ns, Event::Fetch(id, place, store_ns));
        self.schedule(store_ns, Event::Answer(id, Ok(1)));
    }

    pub fn land(&mut self, place: Place, value: u64) {
        if let Some(words) = self.words(place) {
            *words.get_mut(place.word) = value;
        }
    }

    pub fn sample(&mut self, id: u64, place: Place, index: usize) {
        let value = self.words(place).map_or(0, |words| words.get(place.word));
        if let Some(op) = self.ops.get_mut(id) {
            op.payload[index] = value;
        }
    }

    pub fn fetch(&mut self, id: u64, place: Place, store_ns: u64) {
        let found = self.words(place).map_or(0, |words| words.get(place.word));
        let Some(op) = self.ops.get_mut(id) else { return };
        op.payload = vec![found];
        let new = match op.request.verb {
            Verb::Cas { expected, new, .. } => (found == expected).then_some(new),
            Verb::Faa { add, .. } => Some(found.wrapping_add(add)),
            _ => None,
        };
        if let Some(new) = new {
            self.schedule(store_ns, Event::Land(place, new));
        }
    }

    /// Returns the words of a registered region, unless its node is dead or the region is gone.
    fn words(&mut self, place: Place) -> Option<&mut SparseWords> {
        let node = &mut self.nodes[place.node];
        let region = &mut node.regions[place.region];
        (!node.dead && region.registered).then_some(&mut region.words)
    }

    pub fn deliver(&mut self, id: u64) {
        let Some(end) = self.ops.get(id).map(|op: &Op| op.end) else { return };
        let other = self.ends[end].other;
        if self.is_alive(other) {
            self.ends[other].inbox.push_back(id);
            self.match_messages(other);
        }
    }

    /// Delivers messages that have arrived at this end to its RECVs.
    pub fn match_messages(&mut self, end: usize) {
        while let (Some(&(recv, local)), Some(&message)) =
            (self.ends[end].recvs.front(), self.ends[end].inbox.front())
        {
            self.ends[end].inbox.pop_front();
            // A sender that has given up is gone, and so is its message.
            let Some(op) = self.ops.get(message) else { continue };
            self.ends[end].recvs.pop_front();
            let words = op.payload.len();
            if words > local.words {
                self.complete(end, recv, Err(VerbError::MessageTooLong));
                self.schedule(self.now_ns, Event::Answer(message, Err(VerbError::MessageTooLong)));
                self.break_end(end, VerbError::Flushed);
                return;
            }
            let payload = op.payload.clone();
            if let Some(worker) = self.ends[end].worker {
                self.workers[worker].scratch[local.start..local.start + words]
                    .copy_from_slice(&payload);
            }
            self.complete(end, recv, Ok(words));
            self.schedule(self.now_ns, Event::Answer(message, Ok(words)));
        }
    }
}
