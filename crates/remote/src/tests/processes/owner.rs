//! An owner of rows in a process of its own that is killed.

use super::*;
use clearway_fabric::{FabricWorker, Request, ScratchRange, Verb};

const COMMITS: usize = 400;
/// The owner that is killed; the test's process is the other one.
const VICTIM: u32 = 1;

/// Runs the owner's process.
pub fn serve(fields: &[&str]) {
    match fields {
        ["shm", mode, path] => {
            let segment = ShmSegment::attach(path.as_ref()).unwrap();
            own(&segment.node(FabricNode(VICTIM), Duration::ZERO).unwrap(), "-", mode);
        }
        ["tcp", mode] => {
            let fabric = bind(VICTIM);
            let address = fabric.address().to_string();
            own(&fabric, &address, mode);
        }
        _ => panic!("{fields:?}"),
    }
}

fn own<F: Fabric>(fabric: &F, address: &str, mode: &str) {
    let region = fabric.register(words_of(mode.parse().unwrap())).unwrap();
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
#[test]
fn a_killed_owner_keeps_its_rows_on_shm() {
    for mode in 0..all_modes().len() {
        let segment = segment(mode);
        let path = segment.path().display().to_string();
        let node = segment.node(FabricNode(0), Duration::ZERO).unwrap();
        let region = node.register(words_of(mode)).unwrap();
        let (mut victim, _, key) = start(&format!("owner shm {mode} {path}"));
        let keys = [region.key().key, key];
        let mut owners = Owners::new(mode, vec![region], &keys, &format!("shm NUMBER {path}"));
        // No worker dies here, however slow the machine is.
        owners.watches.clear();
        owners.wait_until(|owners| owners.committed >= COMMITS);
        kill(&mut victim);
        let before = owners.committed;
        owners.wait_until(|owners| owners.committed >= before + COMMITS);
        owners.send_all("finish");
        owners.wait_until(|owners| owners.ended == owners.alive());
        assert_eq!((owners.end_workers(), owners.failed), (0, 0));
        owners.check(2 * COMMITS);
        let words = owners.table.mode.header_words() + PAYLOAD;
        let mut reader = node.worker(1, words).unwrap();
        let queue = reader.connect(owners.table.owners[VICTIM as usize].address).unwrap();
        for index in 0..ROWS {
            let remote = owners.table.word(RowId { owner: VICTIM, index }, 0);
            let read = Verb::Read { remote, local: ScratchRange::new(0, words) };
            reader.post(queue, &[Request::new(0, read)]).unwrap();
            let mut done = Vec::new();
            while reader.poll(&mut done) == 0 {
                reader.wait();
            }
            assert!(done[0].result.is_ok(), "{done:?}");
            assert!(owners.check_row(VICTIM, index, |word| reader.load(word)) > 0);
        }
    }
}

/// The rows die with the owner's process: workers end, and the rows of the other owner are rebuilt.
#[test]
fn a_killed_owner_leaves_other_rows_intact_on_tcp() {
    let mut completed = 0;
    for mode in 0..all_modes().len() {
        let fabric = bind(0);
        let region = fabric.register(words_of(mode)).unwrap();
        let (mut victim, address, key) = start(&format!("owner tcp {mode}"));
        let keys = [region.key().key, key];
        let place = format!("tcp NUMBER {} {address}", fabric.address());
        let mut owners = Owners::new(mode, vec![region], &keys, &place);
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
        // The rows that are left, as a last transaction sees them.
        let start = now_ns();
        let mut ops = Vec::new();
        for index in 0..ROWS {
            let first = owners.table.word(RowId { owner: 0, index }, 0).word as usize;
            let value = owners.check_row(0, index, |word| owners.regions[0].load(first + word));
            let key = owners.history.key(&format!("0.{index}"));
            ops.push(Op::Read { key, value: (value > 0).then_some(value) });
        }
        let (session, outcome) = (WORKERS * LIMITS.transactions as u32, TxnOutcome::Committed);
        owners.history.push(Txn { session, start, end: Some(now_ns()), outcome, ops }).unwrap();
        owners.check(COMMITS);
        println!(
            "{:?}: {} rows completed, {} exclusive locks freed, {unknown} unknown outcomes",
            owners.table.mode, outcomes.rows_completed, outcomes.exclusive_freed
        );
    }
    println!("{completed} rows completed in all modes");
}
