//! Runs the node with the chosen transport.

use crate::load::Load;
use crate::options::Options;
use clearway_env::SeededEntropy;
use clearway_fabric::shm::{ShmConfig, ShmFabric, ShmSegment, ShmWorker};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, RegionKey, WorkerAddr};
use clearway_remote::ycsb::{BUCKET_WORDS, PAYLOAD_WORDS, Transport};
use clearway_remote::{
    Buckets, FabricLink, Link, LogLayout, Mailbox, MessageServer, MessageWorker, Owner, RowClient,
    RowWorker, Table, TcpLink, message_words,
};
use std::error::Error;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

type Res<T> = Result<T, Box<dyn Error>>;

/// Ports of the worker that runs transactions and of the worker that serves messages.
const CLIENT_PORT: u32 = 0;
const SERVER_PORT: u32 = 1;

/// The parent's lines.
struct Parent(Receiver<String>);

impl Parent {
    fn new() -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self(lines)
    }

    /// Reads the next line, which must begin with `word`, and returns the rest.
    fn receive(&self, word: &str) -> Res<String> {
        expect(word, &self.0.recv().map_err(|_| "the parent closed standard input")?)
    }

    /// Like [`Parent::receive`], but returns `None` if there is no line yet.
    fn try_receive(&self, word: &str) -> Res<Option<String>> {
        match self.0.try_recv() {
            Ok(line) => expect(word, &line).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the parent closed standard input".into()),
        }
    }

    fn wait_for_end(&self) {
        while self.0.recv().is_ok() {}
    }
}

fn expect(word: &str, line: &str) -> Res<String> {
    let rest = line.strip_prefix(word).ok_or_else(|| format!("expected `{word}`, got `{line}`"))?;
    Ok(rest.trim().to_owned())
}

fn print(line: &str) -> Res<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn run_time(line: &str) -> Res<Duration> {
    Ok(Duration::from_millis(line.parse()?))
}

/// Splits a `peers` line into three fields for each node.
fn peers(line: &str, options: &Options) -> Res<Vec<[String; 3]>> {
    let fields: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let peers = fields.as_chunks::<3>().0.to_vec();
    if peers.len() == options.nodes as usize {
        Ok(peers)
    } else {
        Err("`peers` does not list all nodes".into())
    }
}

fn table(options: &Options) -> Table {
    let index = if options.read_index { options.rows } else { 0 };
    let no_region = RegionKey { key: 0, base: 0 };
    let owner = |node| Owner {
        address: WorkerAddr { node: FabricNode(node), port: SERVER_PORT },
        region: no_region,
    };
    Table {
        mode: options.mode,
        payload_words: PAYLOAD_WORDS,
        rows: options.rows,
        buckets: Buckets { payload_words: BUCKET_WORDS, rows: index },
        log: LogLayout::default(),
        owners: (0..options.nodes).map(owner).collect(),
    }
}

fn load<C: RowClient>(client: C, options: &Options) -> Load<C> {
    let rng = SeededEntropy::new(options.seed << 8 | u64::from(options.node));
    let (plans, transactions, read_index) =
        (options.plans(), options.transactions, options.read_index);
    Load { client, plans, rng, transactions, read_index }
}

/// Sums rows that count their updates. Verifies that all words of a row are equal and that its lock
/// is free.
fn sum(rows: u32, read: impl Fn(u32) -> (Vec<u64>, [u64; PAYLOAD_WORDS])) -> Res<u64> {
    let mut sum = 0;
    for row in 0..rows {
        let (metadata, payload) = read(row);
        if metadata.iter().any(|word| *word != 0) || payload.iter().any(|word| *word != payload[0])
        {
            return Err(format!("row {row} is locked or torn: {metadata:?} {payload:?}").into());
        }
        sum += payload[0];
    }
    Ok(sum)
}

/// Runs the node until its parent stops it.
pub fn serve(options: &Options) -> Res<()> {
    let parent = Parent::new();
    match options.transport {
        Transport::OneSided => one_sided(options, &parent),
        Transport::TwoSided => two_sided(options, &parent),
        Transport::Tcp => tcp(options, &parent),
    }
}

/// Attaches this process to the segment as a node. Returns the segment's path, too.
fn shared_memory(options: &Options, table: &Table) -> Res<(ShmFabric, String)> {
    let nodes = options.nodes as usize;
    let segment = match &options.segment {
        Some(path) => ShmSegment::attach(path)?,
        None => ShmSegment::create(ShmConfig {
            nodes,
            workers: 2 * nodes,
            regions: 2 * nodes,
            queue_pairs: 2 * nodes * nodes,
            ring_words: 4 * options.transactions * message_words(table, options.limits().rows),
            heap_words: nodes * (table.words() + options.limits().mailbox_words()),
        })?,
    };
    let node = segment.node(FabricNode(options.node), options.latency)?;
    Ok((node, segment.path().display().to_string()))
}

fn one_sided(options: &Options, parent: &Parent) -> Res<()> {
    let mut table = table(options);
    let limits = options.limits();
    let (node, path) = shared_memory(options, &table)?;
    let (region, own) = (node.register(table.words())?, node.register(limits.mailbox_words())?);
    print(&format!("ready {path} {} {} -", region.key().key, own.key().key))?;
    let mut all = table.owners.clone();
    let peers = peers(&parent.receive("peers")?, options)?;
    for ([rows, mailbox, _], (owner, place)) in
        peers.iter().zip(table.owners.iter_mut().zip(&mut all))
    {
        owner.region.key = rows.parse()?;
        place.region.key = mailbox.parse()?;
    }
    let fabric = node.worker(CLIENT_PORT, limits.scratch_words(table.longest_payload()))?;
    let rows = RowWorker::new(fabric, table.clone(), options.node as u16, limits, Some(&region))?;
    let mut load = load(rows.with_mailbox(Mailbox { own: &own, all })?, options);
    print("connected")?;
    let time = run_time(&parent.receive("run")?)?;
    let done = load.run(time, |client, busy| {
        if !busy {
            client.fabric().wait();
        }
        Ok(())
    })?;
    print(&format!("result {done}"))?;
    parent.receive("check")?;
    let header = table.mode.header_words();
    let read = |row: u32| {
        let first = row as usize * (header + PAYLOAD_WORDS);
        let metadata = (first..first + header).map(|word| region.load(word)).collect();
        (metadata, std::array::from_fn(|word| region.load(first + header + word)))
    };
    print(&format!("rows {}", sum(options.rows, read)?))?;
    parent.wait_for_end();
    Ok(())
}

fn served_sum<L: Link>(server: &MessageServer<L>, options: &Options) -> Res<u64> {
    if !server.is_free() || server.bad_requests() > 0 {
        return Err("a lock leaked, or a request was invalid".into());
    }
    let read = |row| (Vec::new(), std::array::from_fn(|word| server.payload(row)[word]));
    sum(options.rows, read)
}

fn two_sided(options: &Options, parent: &Parent) -> Res<()> {
    let table = table(options);
    let limits = options.limits();
    let (node, path) = shared_memory(options, &table)?;
    let words = message_words(&table, limits.rows);
    let link = |port| -> Res<FabricLink<ShmWorker>> {
        let scratch =
            FabricLink::<ShmWorker>::scratch_words(table.owners.len(), options.transactions, words);
        Ok(FabricLink::new(
            node.worker(port, scratch)?,
            table.owners.len(),
            options.transactions,
            words,
        ))
    };
    let mut server = MessageServer::new(link(SERVER_PORT)?, table.clone());
    let mut client = link(CLIENT_PORT)?;
    print(&format!("ready {path} - - -"))?;
    peers(&parent.receive("peers")?, options)?;
    table.owners.iter().try_for_each(|owner| client.connect(owner.address))?;
    let mut load =
        load(MessageWorker::new(client, table.clone(), options.node as u16, limits), options);
    print("connected")?;
    let time = run_time(&parent.receive("run")?)?;
    let done = load.run(time, |client, busy| {
        server.poll()?;
        if !busy {
            client.link().fabric().wait();
        }
        Ok(())
    })?;
    print(&format!("result {done}"))?;
    while parent.try_receive("check")?.is_none() {
        server.poll()?;
        server.link().fabric().wait();
    }
    print(&format!("rows {}", served_sum(&server, options)?))?;
    parent.wait_for_end();
    Ok(())
}

fn tcp(options: &Options, parent: &Parent) -> Res<()> {
    let table = table(options);
    let words = message_words(&table, options.limits().rows);
    let listener = TcpLink::listen("127.0.0.1:0".parse()?, table.owners.len(), words)?;
    print(&format!("ready - - - {}", listener.address()?))?;
    let mut client = TcpLink::new(words);
    for [_, _, address] in peers(&parent.receive("peers")?, options)? {
        client.connect(address.parse()?)?;
    }
    let mut load = load(
        MessageWorker::new(client, table.clone(), options.node as u16, options.limits()),
        options,
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut server = MessageServer::new(listener, table);
            // Acquire: pairs with the Release below. Seeing the flag late is harmless.
            while !stop.load(Ordering::Acquire) {
                server.poll()?;
                server.link().wait()?;
            }
            Ok::<_, clearway_remote::RemoteError>(server)
        });
        let mut run = || -> Res<()> {
            print("connected")?;
            let time = run_time(&parent.receive("run")?)?;
            let done =
                load.run(time, |client, busy| if busy { Ok(()) } else { client.link().wait() })?;
            print(&format!("result {done}"))?;
            parent.receive("check")?;
            Ok(())
        };
        let ran = run();
        stop.store(true, Ordering::Release); // Release: pairs with the Acquire above.
        let server = served.join().map_err(|_| "the server's thread panicked")??;
        ran?;
        print(&format!("rows {}", served_sum(&server, options)?))?;
        parent.wait_for_end();
        Ok(())
    })
}
