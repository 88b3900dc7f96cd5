//! An owner in a process of its own that is killed.

use super::*;
use clearway_fabric::{FabricWorker, RemoteAddr, Request, ScratchRange, Verb};

const COMMITS: usize = 400;
/// The owner that is killed; the test's process is the other one.
const VICTIM: u32 = 1;

/// Runs the owner's process.
pub fn serve(fields: &[&str]) {
    match fields {
        ["shm", contents, mode, path] => {
            let segment = ShmSegment::attach(path.as_ref()).unwrap();
            let fabric = segment.node(FabricNode(VICTIM), Duration::ZERO).unwrap();
            own(&fabric, "-", Shape::parse(contents, mode));
        }
        ["tcp", contents, mode] => {
            let fabric = bind(VICTIM);
            let address = fabric.address().to_string();
            own(&fabric, &address, Shape::parse(contents, mode));
        }
        _ => panic!("{fields:?}"),
    }
}

fn own<F: Fabric>(fabric: &F, address: &str, shape: Shape) {
    let region = fabric.register(shape.words()).unwrap();
    println!("ready {address} {}", region.key().key);
    std::io::stdin().lines().for_each(drop);
}

/// Starts the owner's process. Returns it with its address and its region's key.
fn start(spec: &str) -> (Process, String, u64) {
    let (sender, lines) = channel();
    let process = spawn(0, spec, sender);
    let ready = lines.iter().find_map(|(_, line)| line.strip_prefix("ready ").map(str::to_owned));
    let ready = ready.expect("the owner's process ended");
    let (address, key) = ready.split_once(' ').unwrap();
    (process, address.to_owned(), key.parse().unwrap())
}

fn kill(process: &mut Process) {
    process.child.kill().unwrap();
    process.wait();
}

/// The rows live in the segment: workers do not notice the owner's death.
fn kill_owner_on_shm(contents: Contents) {
    for shape in Shape::all(contents) {
        let segment = segment(shape);
        let path = segment.path().display().to_string();
        let node = segment.node(FabricNode(0), Duration::ZERO).unwrap();
        let region = node.register(shape.words()).unwrap();
        let (mut victim, _, key) = start(&format!("owner shm {shape} {path}"));
        let keys = [region.key().key, key];
        let mut owners = Owners::new(shape, vec![region], &keys, &format!("shm NUMBER {path}"));
        // No worker dies here, however slow the machine is.
        owners.watches.clear();
        owners.wait_until(|owners| owners.committed >= COMMITS);
        kill(&mut victim);
        let before = owners.committed;
        owners.wait_until(|owners| owners.committed >= before + COMMITS);
        owners.send_all("finish");
        owners.wait_until(Owners::have_all_ended);
        assert_eq!((owners.end_workers(), owners.failed), (0, 0));
        let words = shape.words();
        let mut reader = node.worker(1, words).unwrap();
        let owner = owners.table.owners[VICTIM as usize];
        let queue = reader.connect(owner.address).unwrap();
        let (remote, local) =
            (RemoteAddr { key: owner.region, word: 0 }, ScratchRange::new(0, words));
        reader.post(queue, &[Request::new(0, Verb::Read { remote, local })]).unwrap();
        let mut done = Vec::new();
        while reader.poll(&mut done) == 0 {
            reader.wait();
        }
        assert!(done[0].result.is_ok(), "{done:?}");
        let mut read = owners.read(0, |word| owners.regions[0].load(word));
        let of_victim = owners.read(VICTIM, |word| reader.load(word));
        let written = |op: &StoreOp| matches!(op, StoreOp::Read(_, value) if *value > 0);
        assert!(of_victim.iter().any(written), "{of_victim:?}");
        read.extend(of_victim);
        owners.check(read, 2 * COMMITS);
    }
}

/// The rows die with the owner's process: workers end, and the rows of the other owner are rebuilt.
fn kill_owner_on_tcp(contents: Contents) {
    let mut completed = 0;
    for shape in Shape::all(contents) {
        let fabric = bind(0);
        let region = fabric.register(shape.words()).unwrap();
        let (mut victim, address, key) = start(&format!("owner tcp {shape}"));
        let keys = [region.key().key, key];
        let place = format!("tcp NUMBER {} {address}", fabric.address());
        let mut owners = Owners::new(shape, vec![region], &keys, &place);
        // No worker dies here before the owner, however slow the machine is.
        owners.watches.clear();
        owners.wait_until(|owners| owners.committed >= COMMITS);
        kill(&mut victim);
        owners.wait_until(|owners| owners.failed == owners.alive());
        owners.regions[0].fence().unwrap();
        for worker in &mut owners.workers {
            worker.child.kill().unwrap();
        }
        let unknown = owners.end_workers();
        let outcomes =
            rebuild(&owners.table, &[Some(&owners.regions[0] as &dyn Region), None], &[]);
        completed += outcomes.rows_completed;
        // What is left, as a last transaction sees it.
        let read = owners.read(0, |word| owners.regions[0].load(word));
        owners.check(read, COMMITS);
        println!(
            "{:?}: {} rows completed, {} exclusive locks freed, {unknown} unknown outcomes",
            owners.table.mode, outcomes.rows_completed, outcomes.exclusive_freed
        );
    }
    println!("{completed} rows completed in all modes");
}

#[test]
fn a_killed_owner_keeps_its_rows_on_shm() {
    kill_owner_on_shm(Contents::Rows);
}

#[test]
fn a_killed_owner_leaves_other_rows_intact_on_tcp() {
    kill_owner_on_tcp(Contents::Rows);
}

#[test]
fn a_killed_owner_keeps_its_keys_on_shm() {
    kill_owner_on_shm(Contents::Store);
}

#[test]
fn a_killed_owner_leaves_other_keys_intact_on_tcp() {
    kill_owner_on_tcp(Contents::Store);
}
