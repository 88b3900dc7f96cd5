//! Tests that every provider must pass. They check the guarantees in the crate's documentation.
//!
//! [`run`] creates two nodes for each check and drives them from one thread. On failure it panics
//! with the check's name and the reason.

use crate::{
    Completion, Fabric, FabricWorker, QueueId, Region, RegionKey, RemoteAddr, Request,
    ScratchRange, Verb, VerbError, WorkerAddr,
};
use VerbError::{Flushed, MessageTooLong, PeerDead, RemoteAccess};

/// Polls without a completion before a check fails.
const MAX_POLLS: usize = 100_000;

/// Words of a scratch area and of a region.
const WORDS: usize = 64;

/// A check and its name.
type Check<F> = (&'static str, fn(&F, &F));

/// Runs every check, each on two fresh nodes of one fabric created by `make`.
///
/// # Panics
/// Panics if a check fails.
pub fn run<F: Fabric>(mut make: impl FnMut() -> (F, F)) {
    let checks: [Check<F>; 18] = [
        ("reads_return_what_was_written", reads_return_what_was_written),
        ("atomics_return_the_old_value", atomics_return_the_old_value),
        ("completions_keep_the_order_of_posting", completions_keep_the_order_of_posting),
        (
            "bad_keys_and_bounds_break_only_their_queue_pair",
            bad_keys_and_bounds_break_only_their_queue_pair,
        ),
        ("a_dropped_region_is_inaccessible", a_dropped_region_is_inaccessible),
        ("a_fence_revokes_the_key", a_fence_revokes_the_key),
        ("a_bad_batch_is_rejected_as_a_whole", a_bad_batch_is_rejected_as_a_whole),
        ("a_full_queue_pair_rejects_requests", a_full_queue_pair_rejects_requests),
        ("messages_arrive_in_order", messages_arrive_in_order),
        ("a_message_too_long_breaks_both_ends", a_message_too_long_breaks_both_ends),
        ("recvs_are_flushed_when_the_peer_is_gone", recvs_are_flushed_when_the_peer_is_gone),
        ("a_disconnected_queue_pair_is_in_error", a_disconnected_queue_pair_is_in_error),
        ("a_refused_verb_ends_earlier_messages", a_refused_verb_ends_earlier_messages),
        ("an_atomic_publishes_earlier_writes", an_atomic_publishes_earlier_writes),
        ("atomics_exclude_one_another", atomics_exclude_one_another),
        ("a_fenced_write_does_not_overtake_a_read", a_fenced_write_does_not_overtake_a_read),
        ("inline_words_are_taken_when_posted", inline_words_are_taken_when_posted),
        ("a_node_reaches_its_own_memory", a_node_reaches_its_own_memory),
    ];
    for (name, check) in checks {
        let (a, b) = make();
        let context = Context(name);
        check(&a, &b);
        drop(context);
    }
}

/// Prints the name of the check that panicked.
struct Context(&'static str);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("conformance check `{}` failed", self.0);
        }
    }
}

/// A worker with the completions it has received.
struct Driver<W> {
    worker: W,
    done: Vec<Completion>,
}

impl<W: FabricWorker> Driver<W> {
    fn new<F: Fabric<Worker = W>>(node: &F, port: u32) -> Self {
        Self { worker: node.worker(port, WORDS).expect("a worker"), done: Vec::new() }
    }

    fn connect(&mut self, peer: WorkerAddr) -> QueueId {
        self.worker.connect(peer).expect("a queue pair")
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) {
        self.worker.post(queue, batch).expect("posted");
    }

    /// Waits until `count` completions have arrived and returns them.
    fn finish(&mut self, count: usize) -> Vec<Completion> {
        for _ in 0..MAX_POLLS {
            self.worker.poll(&mut self.done);
            if self.done.len() >= count {
                return self.done.drain(..count).collect();
            }
            self.worker.wait();
        }
        panic!("{} of {count} completions", self.done.len());
    }

    /// Posts a batch and waits for it. Panics unless every request succeeds.
    fn run(&mut self, queue: QueueId, batch: &[Request]) {
        self.post(queue, batch);
        for completion in self.finish(batch.len()) {
            assert!(completion.result.is_ok(), "{completion:?}");
        }
    }

    fn accept(&mut self) -> (QueueId, WorkerAddr) {
        for _ in 0..MAX_POLLS {
            if let Some(accepted) = self.worker.accept() {
                return accepted;
            }
            self.worker.wait();
        }
        panic!("nothing to accept");
    }

    fn results(&mut self, count: usize) -> Vec<Result<usize, VerbError>> {
        self.finish(count).into_iter().map(|c| c.result).collect()
    }
}

/// Polls both ends of a queue pair until each has its number of completions. A message needs both
/// ends to make progress.
fn finish_both<W: FabricWorker>(
    (client, of_client): (&mut Driver<W>, usize),
    (server, of_server): (&mut Driver<W>, usize),
) -> (Vec<Completion>, Vec<Completion>) {
    for _ in 0..MAX_POLLS {
        client.worker.poll(&mut client.done);
        server.worker.poll(&mut server.done);
        if client.done.len() >= of_client && server.done.len() >= of_server {
            return (client.finish(of_client), server.finish(of_server));
        }
        client.worker.wait();
        server.worker.wait();
    }
    panic!(
        "{} of {of_client} and {} of {of_server} completions",
        client.done.len(),
        server.done.len()
    );
}

fn at(key: RegionKey, word: u64) -> RemoteAddr {
    RemoteAddr { key, word }
}

fn read(id: u64, remote: RemoteAddr, start: usize, words: usize) -> Request {
    Request::new(id, Verb::Read { remote, local: ScratchRange::new(start, words) })
}

fn write(id: u64, start: usize, words: usize, remote: RemoteAddr) -> Request {
    Request::new(id, Verb::Write { local: ScratchRange::new(start, words), remote })
}

fn cas(id: u64, remote: RemoteAddr, expected: u64, new: u64, old: usize) -> Request {
    Request::new(id, Verb::Cas { remote, expected, new, old })
}

fn faa(id: u64, remote: RemoteAddr, add: u64, old: usize) -> Request {
    Request::new(id, Verb::Faa { remote, add, old })
}

fn send(id: u64, start: usize, words: usize) -> Request {
    Request::new(id, Verb::Send { local: ScratchRange::new(start, words) })
}

fn recv(id: u64, start: usize, words: usize) -> Request {
    Request::new(id, Verb::Recv { local: ScratchRange::new(start, words) })
}

/// Registers a region on `b` and connects a worker of `a` to that node. `b` has no worker.
fn one_sided<F: Fabric>(a: &F, b: &F) -> (F::Region, Driver<F::Worker>, QueueId) {
    let region = b.register(WORDS).expect("a region");
    let mut worker = Driver::new(a, 1);
    let queue = worker.connect(WorkerAddr { node: b.node(), port: 1 });
    (region, worker, queue)
}

/// Creates workers on both nodes, with a queue pair from the first to the second.
fn two_sided<F: Fabric>(a: &F, b: &F) -> (Driver<F::Worker>, QueueId, Driver<F::Worker>, QueueId) {
    let mut server = Driver::new(b, 7);
    let mut client = Driver::new(a, 1);
    let queue = client.connect(server.worker.address());
    let (accepted, from) = server.accept();
    assert_eq!(from, client.worker.address());
    (client, queue, server, accepted)
}

fn reads_return_what_was_written<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    assert_eq!(region.words(), WORDS);
    let values: Vec<u64> = (1..=20).map(|n| n * 0x0101_0101_0101_0101).collect();
    worker.worker.store_range(0, &values);
    // A READ sees all of an earlier WRITE of the same queue pair.
    worker.run(
        queue,
        &[write(1, 0, 20, at(region.key(), 44)), read(2, at(region.key(), 44), 30, 20)],
    );
    let mut found = vec![0; 20];
    worker.worker.load_range(30, &mut found);
    assert_eq!(found, values);
    assert_eq!((region.load(43), region.load(44), region.load(63)), (0, values[0], values[19]));
    // Two WRITEs to the same word land in order.
    worker.worker.store(0, 5);
    worker.worker.store(1, 6);
    let word = at(region.key(), 0);
    worker.run(queue, &[write(3, 0, 1, word), write(4, 1, 1, word), read(5, word, 2, 1)]);
    assert_eq!((worker.worker.load(2), region.load(0)), (6, 6));
}

fn atomics_return_the_old_value<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    region.store(3, 40);
    let word = at(region.key(), 3);
    let batch = [
        cas(1, word, 41, 1, 0),
        cas(2, word, 40, 50, 1),
        faa(3, word, 5, 2),
        faa(4, word, 6_u64.wrapping_neg(), 3),
        faa(5, word, 0, 4),
    ];
    worker.run(queue, &batch);
    let mut old = [0; 5];
    worker.worker.load_range(0, &mut old);
    assert_eq!(old, [40, 40, 50, 55, 49]);
    assert_eq!(region.load(3), 49);
    region.store(3, u64::MAX);
    worker.run(queue, &[faa(6, word, 2, 0)]);
    assert_eq!((worker.worker.load(0), region.load(3)), (u64::MAX, 1));
    assert_eq!(
        (region.compare_exchange(3, 1, 8), region.fetch_add(3, 1), region.load(3)),
        (1, 8, 9)
    );
}

fn completions_keep_the_order_of_posting<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    let other = worker.connect(WorkerAddr { node: b.node(), port: 2 });
    let word = at(region.key(), 0);
    for round in 0..10 {
        let id = round * 10;
        let batch = [
            read(id, word, 1, 30),
            write(id + 1, 40, 1, word),
            faa(id + 2, word, 1, 50),
            read(id + 3, word, 51, 1),
        ];
        worker.post(queue, &batch);
        worker.post(other, &[faa(1000 + round, word, 1, 52)]);
    }
    let done = worker.finish(50);
    let of =
        |q: QueueId| done.iter().filter(move |c| c.queue == q).map(|c| c.id).collect::<Vec<_>>();
    assert_eq!(
        of(queue),
        (0..10).flat_map(|r| (0..4).map(move |i| r * 10 + i)).collect::<Vec<_>>()
    );
    assert_eq!(of(other), (1000..1010).collect::<Vec<_>>());
    assert!(
        done.iter().all(|c| c.result == Ok(if c.id < 1000 && c.id % 10 == 0 { 30 } else { 1 })),
        "{done:?}"
    );
}

fn bad_keys_and_bounds_break_only_their_queue_pair<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    let mut neighbour = Driver::new(a, 2);
    let good = neighbour.connect(WorkerAddr { node: b.node(), port: 1 });
    let key = region.key();
    let no_such = RegionKey { key: key.key ^ 1, ..key };
    worker.worker.store(0, 9);
    let bad = [
        read(1, at(no_such, 0), 0, 1),
        write(1, 0, 2, at(key, WORDS as u64 - 1)),
        cas(1, at(key, WORDS as u64), 0, 9, 0),
        faa(1, at(key, u64::MAX), 9, 0),
        read(1, at(key, u64::MAX - 1), 0, 3),
        write(1, 0, 1, at(key, 1 << 61)),
    ];
    for (bad, port) in bad.into_iter().zip(10..) {
        let broken = worker.connect(WorkerAddr { node: b.node(), port });
        worker.post(broken, &[faa(0, at(key, 5), 1, 20), bad, write(2, 0, 1, at(key, 7))]);
        assert_eq!(worker.results(3), [Ok(1), Err(RemoteAccess), Err(Flushed)], "{bad:?}");
        worker.post(broken, &[write(3, 0, 1, at(key, 7)), recv(4, 0, 1)]);
        assert_eq!(worker.results(2), [Err(Flushed), Err(Flushed)]);
        // Other queue pairs of the worker, other workers and the region are unaffected.
        worker.run(queue, &[faa(0, at(key, 6), 1, 20)]);
        neighbour.run(good, &[faa(0, at(key, 6), 1, 20)]);
    }
    assert_eq!([5, 6, 7, WORDS - 1].map(|word| region.load(word)), [6, 12, 0, 0]);
}

fn a_dropped_region_is_inaccessible<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    let kept = b.register(WORDS).expect("a second region");
    let key = region.key();
    assert_ne!(key, kept.key());
    worker.run(queue, &[write(1, 0, 1, at(key, 0))]);
    drop(region);
    worker.run(queue, &[write(2, 0, 1, at(kept.key(), 0))]);
    worker.post(queue, &[read(3, at(key, 0), 0, 1)]);
    assert_eq!(worker.results(1), [Err(RemoteAccess)]);
}

fn a_fence_revokes_the_key<F: Fabric>(a: &F, b: &F) {
    let (mut region, mut worker, queue) = one_sided(a, b);
    let old = region.key();
    worker.worker.store_range(0, &[5, 6]);
    worker.run(queue, &[write(1, 0, 2, at(old, 0)), faa(2, at(old, 2), 7, 9)]);
    if let Err(why) = region.fence() {
        assert!(matches!(why, crate::FabricError::Unsupported(_)), "{why}");
        return;
    }
    // Completed verbs have landed, and their effects stay.
    assert_eq!([0, 1, 2].map(|word| region.load(word)), [5, 6, 7]);
    assert_ne!(region.key(), old);
    worker.post(queue, &[write(3, 0, 1, at(old, 2))]);
    assert_eq!(worker.results(1), [Err(RemoteAccess)]);
    let queue = worker.connect(WorkerAddr { node: b.node(), port: 1 });
    worker.run(queue, &[faa(4, at(region.key(), 2), 1, 9)]);
    assert_eq!((worker.worker.load(9), region.load(2)), (7, 8));
}

fn a_bad_batch_is_rejected_as_a_whole<F: Fabric>(a: &F, b: &F) {
    use crate::PostError::{BadRange, OneSided, UnknownQueue};
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    let region = b.register(WORDS).expect("a region");
    let word = at(region.key(), 0);
    let good = faa(1, word, 1, 0);
    for bad in [
        read(2, word, WORDS - 1, 2),
        write(2, 0, 0, word),
        faa(2, word, 1, WORDS),
        send(2, usize::MAX, 2),
    ] {
        assert_eq!(client.worker.post(queue, &[good, bad]), Err(BadRange), "{bad:?}");
    }
    assert_eq!(client.worker.post(QueueId(77), &[good]), Err(UnknownQueue));
    assert_eq!(server.worker.post(accepted, &[recv(1, 0, 1), good]), Err(OneSided));
    client.run(queue, &[good]);
    assert_eq!(client.worker.load(0), 0, "a rejected batch was executed");
    assert!(server.worker.poll(&mut server.done) == 0);
}

fn a_full_queue_pair_rejects_requests<F: Fabric>(a: &F, b: &F) {
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    let depth = client.worker.guarantees().queue_depth;
    let batch: Vec<Request> = (0..depth as u64).map(|id| send(id, 0, 1)).collect();
    client.post(queue, &batch);
    assert_eq!(client.worker.post(queue, &[send(0, 0, 1)]), Err(crate::PostError::QueueFull));
    let recvs: Vec<Request> = (0..depth as u64).map(|id| recv(id, 0, 1)).collect();
    server.post(accepted, &recvs);
    let (sent, received) = finish_both((&mut client, depth), (&mut server, depth));
    assert!(sent.iter().chain(&received).all(|c| c.result == Ok(1)));
    client.post(queue, &[send(0, 0, 1)]);
}

fn messages_arrive_in_order<F: Fabric>(a: &F, b: &F) {
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    client.worker.store_range(0, &[1, 2, 3, 4]);
    server.post(accepted, &[recv(1, 0, 8)]);
    // The first message finds a posted RECV; the second waits for one.
    client.post(queue, &[send(1, 0, 3), send(2, 3, 1), recv(3, 10, 2)]);
    let (sent, received) = finish_both((&mut client, 1), (&mut server, 1));
    assert_eq!(sent, [Completion { queue, id: 1, result: Ok(3) }]);
    assert_eq!(received, [Completion { queue: accepted, id: 1, result: Ok(3) }]);
    server.post(accepted, &[recv(2, 8, 8)]);
    let (sent, received) = finish_both((&mut client, 1), (&mut server, 1));
    assert_eq!(sent, [Completion { queue, id: 2, result: Ok(1) }]);
    assert_eq!(received, [Completion { queue: accepted, id: 2, result: Ok(1) }]);
    assert_eq!([0, 1, 2, 3, 8].map(|word| server.worker.load(word)), [1, 2, 3, 0, 4]);
    // A message in the other direction, on the same queue pair.
    server.worker.store_range(20, &[70, 80]);
    server.post(accepted, &[send(3, 20, 2)]);
    let (received, sent) = finish_both((&mut client, 1), (&mut server, 1));
    assert_eq!(received, [Completion { queue, id: 3, result: Ok(2) }]);
    assert_eq!(sent, [Completion { queue: accepted, id: 3, result: Ok(2) }]);
    assert_eq!((client.worker.load(10), client.worker.load(11)), (70, 80));
}

fn a_message_too_long_breaks_both_ends<F: Fabric>(a: &F, b: &F) {
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    server.post(accepted, &[recv(1, 0, 2), recv(2, 10, 20)]);
    client.post(queue, &[send(1, 0, 3), send(2, 0, 1), recv(3, 0, 1)]);
    let (mut sent, received) = finish_both((&mut client, 3), (&mut server, 2));
    let results = |done: &[Completion]| done.iter().map(|c| c.result).collect::<Vec<_>>();
    assert_eq!(results(&received), [Err(MessageTooLong), Err(Flushed)]);
    sent.sort_by_key(|c| c.id);
    assert_eq!(results(&sent), [Err(MessageTooLong), Err(Flushed), Err(Flushed)]);
    let again = client.connect(server.worker.address());
    let (accepted, _) = server.accept();
    server.post(accepted, &[recv(1, 0, 2)]);
    client.post(again, &[send(1, 0, 2)]);
    let (sent, received) = finish_both((&mut client, 1), (&mut server, 1));
    assert_eq!((sent[0].result, received[0].result), (Ok(2), Ok(2)));
}

fn recvs_are_flushed_when_the_peer_is_gone<F: Fabric>(a: &F, b: &F) {
    if !a.guarantees().recvs_end_with_peer {
        return;
    }
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    server.post(accepted, &[recv(1, 0, 2), recv(2, 2, 2), recv(3, 4, 2)]);
    client.worker.store(0, 8);
    client.post(queue, &[send(1, 0, 1)]);
    let (sent, received) = finish_both((&mut client, 1), (&mut server, 1));
    assert_eq!((sent[0].result, received[0].result, server.worker.load(0)), (Ok(1), Ok(1), 8));
    // The connecting end goes away; the accepting end notices.
    drop(client);
    assert_eq!(server.results(2), [Err(Flushed), Err(Flushed)]);
    server.post(accepted, &[recv(4, 0, 2)]);
    assert_eq!(server.results(1), [Err(Flushed)]);
    // The accepting end goes away. The connecting end notices for a RECV posted before that, and
    // for one posted after it.
    let mut client = Driver::new(a, 2);
    let early = client.connect(server.worker.address());
    let late = client.connect(server.worker.address());
    server.accept();
    server.accept();
    client.post(early, &[recv(5, 0, 2)]);
    drop(server);
    assert_eq!(client.results(1), [Err(Flushed)]);
    client.post(late, &[recv(6, 0, 2)]);
    assert_eq!(client.results(1), [Err(Flushed)]);
}

fn a_disconnected_queue_pair_is_in_error<F: Fabric>(a: &F, b: &F) {
    let (mut client, queue, mut server, accepted) = two_sided(a, b);
    let kept = client.connect(server.worker.address());
    let (of_kept, _) = server.accept();
    let region = b.register(WORDS).expect("a region");
    let word = at(region.key(), 0);
    client.run(queue, &[faa(1, word, 1, 0)]);
    client.post(queue, &[send(2, 0, 1), recv(3, 0, 1)]);
    client.worker.disconnect(queue);
    assert_eq!(client.results(2), [Err(Flushed), Err(Flushed)]);
    client.worker.disconnect(queue);
    client.post(queue, &[faa(4, word, 1, 0), recv(5, 0, 1)]);
    assert_eq!(client.results(2), [Err(Flushed), Err(Flushed)]);
    // Its other queue pairs are unaffected.
    server.post(of_kept, &[recv(6, 0, 1)]);
    client.post(kept, &[faa(7, word, 1, 0), send(8, 0, 1)]);
    let (sent, received) = finish_both((&mut client, 2), (&mut server, 1));
    assert!(sent.iter().chain(&received).all(|c| c.result == Ok(1)));
    assert_eq!(region.load(0), 2);
    if !a.guarantees().recvs_end_with_peer {
        return;
    }
    // The other end notices, whichever has left. The first RECV may get the message of the SEND.
    server.post(accepted, &[recv(9, 0, 1), recv(10, 0, 1)]);
    assert_eq!(server.results(2)[1], Err(Flushed));
    server.worker.disconnect(of_kept);
    client.post(kept, &[recv(11, 0, 1)]);
    assert_eq!(client.results(1), [Err(Flushed)]);
}

fn a_refused_verb_ends_earlier_messages<F: Fabric>(a: &F, b: &F) {
    let (mut client, queue, server, _) = two_sided(a, b);
    let region = b.register(WORDS).expect("a region");
    // Nobody receives the message.
    client.post(queue, &[send(1, 0, 1), read(2, at(region.key(), WORDS as u64), 1, 1)]);
    drop(server);
    let results = client.results(2);
    assert!(matches!(results[..], [Err(Flushed | PeerDead), Err(RemoteAccess | Flushed)]));
}

fn an_atomic_publishes_earlier_writes<F: Fabric>(a: &F, b: &F) {
    let (region, mut writer, queue) = one_sided(a, b);
    let mut reader = Driver::new(b, 2);
    let own = reader.connect(WorkerAddr { node: b.node(), port: 2 });
    let key = region.key();
    for round in 1..=20 {
        writer.worker.store_range(0, &[round; 16]);
        writer.post(queue, &[write(1, 0, 16, at(key, 1)), faa(2, at(key, 0), 1, 60)]);
        loop {
            // The READ of the payload is fenced, so it runs after the READ of the flag.
            reader.run(own, &[read(1, at(key, 0), 0, 1), read(2, at(key, 1), 1, 16).fenced()]);
            if reader.worker.load(0) == round {
                break;
            }
        }
        assert!((1..=16).all(|word| reader.worker.load(word) == round), "round {round}");
        writer.finish(2);
    }
}

fn atomics_exclude_one_another<F: Fabric>(a: &F, b: &F) {
    const EACH: usize = 20;
    let (region, mut first, queue) = one_sided(a, b);
    let mut second = Driver::new(b, 2);
    let own = second.connect(WorkerAddr { node: b.node(), port: 2 });
    let word = at(region.key(), 0);
    let batch: Vec<Request> = (0..EACH).map(|n| faa(n as u64, word, 1, n)).collect();
    first.post(queue, &batch);
    second.post(own, &batch);
    first.finish(EACH);
    second.finish(EACH);
    let mut seen: Vec<u64> =
        (0..EACH).flat_map(|n| [first.worker.load(n), second.worker.load(n)]).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * EACH as u64).collect::<Vec<_>>());
    assert_eq!(region.load(0), 2 * EACH as u64);
}

fn a_fenced_write_does_not_overtake_a_read<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    let word = at(region.key(), 0);
    for round in 0..20 {
        worker.worker.store(1, round + 1);
        worker
            .run(queue, &[read(1, word, 0, 1), write(2, 1, 1, word).fenced(), read(3, word, 2, 1)]);
        assert_eq!((worker.worker.load(0), worker.worker.load(2)), (round, round + 1));
    }
}

fn inline_words_are_taken_when_posted<F: Fabric>(a: &F, b: &F) {
    let (region, mut worker, queue) = one_sided(a, b);
    let inline = worker.worker.guarantees().inline_words.min(WORDS);
    if inline == 0 {
        return;
    }
    for round in 1..=5 {
        worker.worker.store_range(0, &vec![round; inline]);
        worker.post(
            queue,
            &[write(1, 0, inline, at(region.key(), 0)), faa(2, at(region.key(), 0), 0, 0)],
        );
        worker.worker.store_range(0, &vec![0; inline]);
        worker.finish(2);
        assert!((0..inline).all(|word| region.load(word) == round));
    }
}

fn a_node_reaches_its_own_memory<F: Fabric>(a: &F, _: &F) {
    let (region, mut worker, queue) = one_sided(a, a);
    worker.run(queue, &[faa(1, at(region.key(), 1), 4, 0), cas(2, at(region.key(), 1), 4, 6, 1)]);
    assert_eq!((worker.worker.load(1), region.load(1)), (4, 6));
    let own = worker.worker.address();
    let queue = worker.connect(own);
    while worker.accept().1 != own {}
    worker.run(queue, &[read(3, at(region.key(), 1), 5, 1)]);
    assert_eq!(worker.worker.load(5), 6);
}
