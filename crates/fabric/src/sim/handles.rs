//! Nodes, regions and workers of a simulated network.

use super::SimStep;
use super::core::{Core, End, Event, Memory, WorkerState};
use super::sparse::SparseWords;
use crate::{
    Completion, Fabric, FabricError, FabricNode, FabricWorker, Guarantees, PostError, QueueId,
    Region, RegionKey, Request, VerbError, WorkerAddr,
};
use clearway_env::Entropy;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A node of a simulated network.
#[derive(Clone)]
pub struct SimNode {
    core: Rc<RefCell<Core>>,
    node: FabricNode,
}

impl SimNode {
    pub(super) fn new(core: Rc<RefCell<Core>>, node: FabricNode) -> Self {
        Self { core, node }
    }
}

impl Fabric for SimNode {
    type Region = SimRegion;
    type Worker = SimWorker;

    fn node(&self) -> FabricNode {
        self.node
    }

    fn guarantees(&self) -> Guarantees {
        self.core.borrow().config.guarantees()
    }

    fn register(&self, words: usize) -> Result<SimRegion, FabricError> {
        if words == 0 {
            return Err(FabricError::Limit("words"));
        }
        let mut core = self.core.borrow_mut();
        let key = core.rng.u64();
        let node = &mut core.nodes[self.node.0 as usize];
        node.regions.push(Memory { key, words: SparseWords::new(words), registered: true });
        let index = node.regions.len() - 1;
        Ok(SimRegion { core: Rc::clone(&self.core), node: self.node.0 as usize, index })
    }

    fn worker(&self, port: u32, scratch_words: usize) -> Result<SimWorker, FabricError> {
        let address = WorkerAddr { node: self.node, port };
        let mut core = self.core.borrow_mut();
        if core.workers.iter().any(|w| w.address == address) {
            return Err(FabricError::Limit("workers of one port"));
        }
        let index = core.workers.len();
        let unclaimed = std::mem::take(&mut core.unclaimed);
        let (mine, others): (Vec<_>, Vec<_>) =
            unclaimed.into_iter().partition(|(wanted, _)| *wanted == address);
        core.unclaimed = others;
        let accepts: VecDeque<usize> = mine.into_iter().map(|(_, end)| end).collect();
        for end in &accepts {
            core.ends[*end].worker = Some(index);
        }
        let dead = core.nodes[self.node.0 as usize].dead;
        core.workers.push(WorkerState {
            address,
            dead,
            scratch: vec![0; scratch_words],
            completions: VecDeque::new(),
            accepts,
            ends: Vec::new(),
        });
        Ok(SimWorker { core: Rc::clone(&self.core), index, address })
    }
}

/// A registered region of a simulated node.
pub struct SimRegion {
    core: Rc<RefCell<Core>>,
    node: usize,
    index: usize,
}

impl SimRegion {
    fn with<T>(&self, word: usize, access: impl FnOnce(&mut u64) -> T) -> T {
        let mut core = self.core.borrow_mut();
        access(core.nodes[self.node].regions[self.index].words.get_mut(word))
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        self.core.borrow_mut().nodes[self.node].regions[self.index].registered = false;
    }
}

impl Region for SimRegion {
    fn key(&self) -> RegionKey {
        RegionKey { key: self.core.borrow().nodes[self.node].regions[self.index].key, base: 0 }
    }

    fn words(&self) -> usize {
        self.core.borrow().nodes[self.node].regions[self.index].words.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.core.borrow().nodes[self.node].regions[self.index].words.get(word)
    }

    fn store(&self, word: usize, value: u64) {
        self.with(word, |word| *word = value);
    }

    fn compare_exchange(&self, word: usize, expected: u64, new: u64) -> u64 {
        self.with(word, |word| {
            let found = *word;
            if found == expected {
                *word = new;
            }
            found
        })
    }

    fn fetch_add(&self, word: usize, add: u64) -> u64 {
        self.with(word, |word| std::mem::replace(word, word.wrapping_add(add)))
    }

    fn fence(&mut self) -> Result<(), FabricError> {
        let mut core = self.core.borrow_mut();
        core.settle(self.node, self.index);
        let key = core.rng.u64();
        core.nodes[self.node].regions[self.index].key = key;
        Ok(())
    }
}

/// A worker of a simulated node. Dropping it has the effect of a crash.
pub struct SimWorker {
    core: Rc<RefCell<Core>>,
    index: usize,
    address: WorkerAddr,
}

impl Drop for SimWorker {
    fn drop(&mut self) {
        // The network is borrowed here only while a call panics.
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.crash_worker(self.address);
        }
    }
}

impl FabricWorker for SimWorker {
    fn address(&self) -> WorkerAddr {
        self.address
    }

    fn guarantees(&self) -> Guarantees {
        self.core.borrow().config.guarantees()
    }

    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError> {
        self.core.borrow_mut().connect(self.index, peer)
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        self.core.borrow_mut().accept(self.index)
    }

    fn disconnect(&mut self, queue: QueueId) {
        self.core.borrow_mut().disconnect(self.index, queue);
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        self.core.borrow_mut().post(self.index, queue, batch)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let arrived = std::mem::take(&mut self.core.borrow_mut().workers[self.index].completions);
        let count = arrived.len();
        completions.extend(arrived);
        count
    }

    fn wait(&mut self) {
        let mut core = self.core.borrow_mut();
        if core.workers[self.index].completions.is_empty() {
            core.advance();
        }
    }

    fn scratch_words(&self) -> usize {
        self.core.borrow().workers[self.index].scratch.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.core.borrow().workers[self.index].scratch[word]
    }

    fn store(&mut self, word: usize, value: u64) {
        self.core.borrow_mut().workers[self.index].scratch[word] = value;
    }
}

impl Core {
    fn connect(&mut self, worker: usize, peer: WorkerAddr) -> Result<QueueId, FabricError> {
        let (here, there) = (self.workers[worker].address.node.0 as usize, peer.node.0 as usize);
        if self.nodes.get(there).is_none_or(|node| node.dead) {
            return Err(FabricError::UnknownPeer);
        }
        let id = self.workers[worker].ends.len() as u32;
        let (first, second) = (self.ends.len(), self.ends.len() + 1);
        let acceptor = self.workers.iter().position(|w| w.address == peer);
        self.ends.push(End {
            worker: Some(worker),
            id,
            here,
            there,
            other: second,
            ..End::default()
        });
        let passive = End {
            worker: acceptor,
            here: there,
            there: here,
            other: first,
            accepted: true,
            ..End::default()
        };
        self.ends.push(passive);
        self.workers[worker].ends.push(first);
        match acceptor {
            Some(acceptor) => {
                self.workers[acceptor].accepts.push_back(second);
                self.steps.push_back(SimStep::Worker(peer));
            }
            None => self.unclaimed.push((peer, second)),
        }
        Ok(QueueId(id))
    }

    fn accept(&mut self, worker: usize) -> Option<(QueueId, WorkerAddr)> {
        let end = self.workers[worker].accepts.pop_front()?;
        let id = self.workers[worker].ends.len() as u32;
        self.workers[worker].ends.push(end);
        self.ends[end].id = id;
        let connected = self.ends[self.ends[end].other].worker.expect("a worker connected it");
        Some((QueueId(id), self.workers[connected].address))
    }

    fn disconnect(&mut self, worker: usize, queue: QueueId) {
        let Some(&end) = self.workers[worker].ends.get(queue.0 as usize) else { return };
        if self.workers[worker].dead || std::mem::replace(&mut self.ends[end].left, true) {
            return;
        }
        self.break_end(end, VerbError::Flushed);
        let at_ns = self.now_ns + self.config.timeout_ns;
        self.schedule(at_ns, Event::GiveUp(self.ends[end].other));
    }
}
