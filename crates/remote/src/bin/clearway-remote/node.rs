//! Connects a process by the chosen transport: a node with its part of the store, or a client.

use crate::keys::{Keys, sum};
use crate::load::Duty;
use crate::options::Options;
use crate::parent::{Parent, Res, print};
use crate::session::{run_client, run_node};
use clearway_fabric::shm::{ShmConfig, ShmFabric, ShmSegment, ShmWorker};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, RegionKey, WorkerAddr};
use clearway_remote::ycsb::Transport;
use clearway_remote::{
    FabricLink, Link, Mailbox, MessageServer, MessageWorker, Owner, RemoteError, RowWorker, Table,
    TcpLink, message_words,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Ports of the worker that runs transactions and of the worker that serves messages.
const CLIENT_PORT: u32 = 0;
const SERVER_PORT: u32 = 1;

/// Splits a `peers` line into three fields for each process.
fn peers(line: &str, options: &Options) -> Res<Vec<[String; 3]>> {
    let fields: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let peers = fields.as_chunks::<3>().0.to_vec();
    if peers.len() == options.members() as usize {
        Ok(peers)
    } else {
        Err("`peers` does not list all processes".into())
    }
}

/// Returns the place of a region of a process. No worker need have the port.
fn place(node: u32, key: u64) -> Owner {
    let address = WorkerAddr { node: FabricNode(node), port: SERVER_PORT };
    Owner { address, region: RegionKey { key, base: 0 } }
}

/// Returns the table of the store, without the keys of its regions.
fn table(options: &Options) -> Table {
    options.layout().table((0..options.nodes).map(|node| place(node, 0)).collect())
}

/// Runs the process until its parent stops it.
pub fn run(options: &Options) -> Res<()> {
    let parent = Parent::new();
    match options.transport {
        Transport::OneSided => one_sided(options, &parent),
        Transport::TwoSided => two_sided(options, &parent),
        Transport::Tcp => tcp(options, &parent),
    }
}

/// Attaches this process to the segment. Returns the segment's path, too.
fn shared_memory(options: &Options, table: &Table) -> Res<(ShmFabric, String)> {
    let (nodes, members) = (options.nodes as usize, options.members() as usize);
    let segment = match &options.segment {
        Some(path) => ShmSegment::attach(path)?,
        None => ShmSegment::create(ShmConfig {
            nodes: members,
            workers: nodes + members,
            regions: nodes + members,
            queue_pairs: members * (nodes + members),
            ring_words: 4 * options.transactions * message_words(table, options.limits().rows),
            heap_words: nodes * table.words() + members * options.limits().mailbox_words(),
        })?,
    };
    let node = segment.node(FabricNode(options.node), options.latency)?;
    Ok((node, segment.path().display().to_string()))
}

/// The duty of a thread whose node needs no help from it.
struct NoRequests<W>(W);

impl<C, W: FnMut(&mut C) -> Result<(), RemoteError>> Duty<C> for NoRequests<W> {
    fn serve(&mut self) -> Result<bool, RemoteError> {
        Ok(false)
    }

    fn wait(&mut self, client: &mut C) -> Result<(), RemoteError> {
        (self.0)(client)
    }
}

fn one_sided(options: &Options, parent: &Parent) -> Res<()> {
    let mut table = table(options);
    let limits = options.limits();
    let (node, path) = shared_memory(options, &table)?;
    let keys = (!options.is_client).then(|| Keys::new(options));
    let region = keys.as_ref().map(|_| node.register(table.words())).transpose()?;
    if let (Some(keys), Some(region)) = (&keys, &region) {
        for (row, payload) in keys.payloads(options.node) {
            table.write_payload(region, row, &payload);
        }
    }
    let own = node.register(limits.mailbox_words())?;
    let key = region.as_ref().map_or("-".to_owned(), |region| region.key().key.to_string());
    print(&format!("ready {path} {key} {} -", own.key().key))?;
    let peers = peers(&parent.receive("peers")?, options)?;
    for ([key, ..], owner) in peers.iter().zip(&mut table.owners) {
        owner.region.key = key.parse()?;
    }
    let mailbox = |(node, [_, key, _]): (u32, &[String; 3])| Ok(place(node, key.parse()?));
    let all = (0..).zip(&peers).map(mailbox).collect::<Res<Vec<Owner>>>()?;
    let fabric = node.worker(CLIENT_PORT, limits.scratch_words(table.longest_payload()))?;
    let local = region.as_ref().map(|region| region as &dyn Region);
    let rows = RowWorker::new(fabric, table.clone(), options.node as u16, limits, local)?;
    let rows = rows.with_mailbox(Mailbox { own: &own, all })?;
    let mut duty = NoRequests(|client: &mut RowWorker<'_, ShmWorker>| {
        client.fabric().wait();
        Ok(())
    });
    let (Some(keys), Some(region)) = (&keys, &region) else {
        return run_client(rows, &mut duty, options, parent);
    };
    run_node(rows, &mut duty, options, keys, parent)?;
    print(&format!("rows {}", sum(options, |row| table.read_row(region, row))?))?;
    parent.wait_for_end();
    Ok(())
}

/// Creates the server of a node's part of the store.
fn server<L: Link>(link: L, table: &Table, options: &Options, keys: &Keys) -> MessageServer<L> {
    let mut server = MessageServer::new(link, table.clone());
    for (row, payload) in keys.payloads(options.node) {
        server.set_payload(row, &payload);
    }
    server
}

fn served_sum<L: Link>(server: &MessageServer<L>, options: &Options) -> Res<u64> {
    if !server.is_free() || server.bad_requests() > 0 {
        return Err("a lock leaked, or a request was invalid".into());
    }
    sum(options, |row| (Vec::new(), server.payload(row).to_vec()))
}

/// A node's thread executes requests between its own transactions.
impl Duty<MessageWorker<FabricLink<ShmWorker>>> for MessageServer<FabricLink<ShmWorker>> {
    fn serve(&mut self) -> Result<bool, RemoteError> {
        self.poll().map(|()| true)
    }

    fn wait(
        &mut self,
        client: &mut MessageWorker<FabricLink<ShmWorker>>,
    ) -> Result<(), RemoteError> {
        client.link().fabric().wait();
        Ok(())
    }
}

fn two_sided(options: &Options, parent: &Parent) -> Res<()> {
    let table = table(options);
    let limits = options.limits();
    let (node, path) = shared_memory(options, &table)?;
    let words = message_words(&table, limits.rows);
    let link = |port, peers| -> Res<FabricLink<ShmWorker>> {
        let scratch = FabricLink::<ShmWorker>::scratch_words(peers, options.transactions, words);
        Ok(FabricLink::new(node.worker(port, scratch)?, peers, options.transactions, words))
    };
    let mut served = None;
    if !options.is_client {
        let keys = Keys::new(options);
        let link = link(SERVER_PORT, options.members() as usize)?;
        served = Some((server(link, &table, options, &keys), keys));
    }
    let mut client = link(CLIENT_PORT, table.owners.len())?;
    print(&format!("ready {path} - - -"))?;
    peers(&parent.receive("peers")?, options)?;
    table.owners.iter().try_for_each(|owner| client.connect(owner.address))?;
    let rows = MessageWorker::new(client, table, options.node as u16, limits);
    let Some((server, keys)) = &mut served else {
        let mut duty = NoRequests(|client: &mut MessageWorker<FabricLink<ShmWorker>>| {
            client.link().fabric().wait();
            Ok(())
        });
        return run_client(rows, &mut duty, options, parent);
    };
    run_node(rows, server, options, keys, parent)?;
    print(&format!("rows {}", served_sum(server, options)?))?;
    parent.wait_for_end();
    Ok(())
}

fn tcp(options: &Options, parent: &Parent) -> Res<()> {
    let table = table(options);
    let words = message_words(&table, options.limits().rows);
    let mut served = None;
    if options.is_client {
        print("ready - - - -")?;
    } else {
        let listen = "127.0.0.1:0".parse()?;
        let listener = TcpLink::listen(listen, options.members() as usize, words)?;
        let address = listener.address()?;
        let keys = Keys::new(options);
        served = Some((server(listener, &table, options, &keys), keys));
        print(&format!("ready - - - {address}"))?;
    }
    let mut client = TcpLink::new(words);
    let peers = peers(&parent.receive("peers")?, options)?;
    for [_, _, address] in peers.iter().take(table.owners.len()) {
        client.connect(address.parse()?)?;
    }
    let rows = MessageWorker::new(client, table, options.node as u16, options.limits());
    let mut duty = NoRequests(|client: &mut MessageWorker<TcpLink>| client.link().wait());
    let Some((mut server, keys)) = served else {
        return run_client(rows, &mut duty, options, parent);
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            // Acquire: pairs with the Release below. Seeing the flag late is harmless.
            while !stop.load(Ordering::Acquire) {
                server.poll()?;
                server.link().wait()?;
            }
            Ok::<_, RemoteError>(server)
        });
        let ran = run_node(rows, &mut duty, options, &keys, parent);
        stop.store(true, Ordering::Release); // Release: pairs with the Acquire above.
        let server = served.join().map_err(|_| "the server's thread panicked")??;
        ran?;
        print(&format!("rows {}", served_sum(&server, options)?))?;
        parent.wait_for_end();
        Ok(())
    })
}
