//! What the in-memory disk loses in a crash, refuses, and damages.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::ManualClock;
use clearway_env::Clock;

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut content = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut content, 0).expect("read");
    content
}

/// Returns a disk with a synced file `f` of three sectors of ones.
fn synced() -> (MemDisk, Arc<dyn File>) {
    let disk = MemDisk::new();
    let file = disk.open(Path::new("f"), Open::Create).expect("created");
    file.write_all_at(&[1; 1536], 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("")).expect("synced");
    (disk, file)
}

fn after_crash(disk: &MemDisk, seed: u64) -> Vec<u8> {
    content(
        &*disk.crash(seed).open(Path::new("f"), Open::Existing).expect("a synced name survives"),
    )
}

#[test]
fn synced_data_survives_a_crash() {
    // Invariant 1 of the in-memory disk.
    let (disk, file) = synced();
    file.write_all_at(&[2; 512], 0).expect("written");
    file.sync_data().expect("synced");
    file.write_all_at(&[3; 512], 1024).expect("written");
    for seed in 0..100 {
        assert!(after_crash(&disk, seed).starts_with(&[[2; 512], [1; 512]].concat()));
    }
}

#[test]
fn unsynced_sector_keeps_any_of_its_states() {
    // Invariants 2 and 4.
    let (disk, file) = synced();
    file.write_all_at(&[2; 1536], 0).expect("written");
    file.write_all_at(&[3; 600], 500).expect("written");
    let mut seen = BTreeSet::new();
    for seed in 0..1000 {
        let bytes = after_crash(&disk, seed);
        assert_eq!(bytes, after_crash(&disk, seed), "a seed determines the outcome");
        let sectors: Vec<_> = bytes.chunks(512).map(|sector| (sector[0], sector[511])).collect();
        seen.insert(sectors);
    }
    // States of each: (1,1), (2,2), (2,3) | (1,1), (2,2), (3,3) | (1,1), (2,2), (3,2).
    assert_eq!(seen.len(), 27);
    assert_eq!(content(&*file)[500], 3, "the disk that did not crash goes on");
}

#[test]
fn an_unsynced_length_may_be_lost() {
    let (disk, file) = synced();
    file.set_len(700).expect("cut");
    file.write_all_at(&[2; 100], 1600).expect("written");
    let mut lengths = BTreeSet::new();
    for seed in 0..300 {
        let bytes = after_crash(&disk, seed);
        lengths.insert(bytes.len());
        let expected = |(place, byte): (usize, &u8)| match place {
            0..700 => *byte == 1,
            700..1536 => *byte <= 1,
            _ => *byte == 0 || *byte == 2,
        };
        assert!(bytes.iter().enumerate().all(expected), "seed {seed}");
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [700, 1536, 1700]);
    file.sync_data().expect("synced");
    assert_eq!(after_crash(&disk, 0), content(&*file));
}

#[test]
fn unsynced_names_survive_as_a_prefix() {
    // Invariant 3.
    let (disk, _) = synced();
    disk.open(Path::new("a"), Open::Create).expect("created");
    disk.rename(Path::new("f"), Path::new("g")).expect("renamed");
    disk.remove(Path::new("a")).expect("removed");
    let left = |seed| disk.crash(seed).list(Path::new("")).expect("listed");
    let seen: BTreeSet<_> = (0..100).map(left).collect();
    let prefixes: [&[&str]; 4] = [&["a", "f"], &["a", "g"], &["f"], &["g"]];
    assert!(seen.iter().eq(prefixes.iter()), "{seen:?}");
    disk.sync_dir(Path::new("")).expect("synced");
    assert!((0..20).all(|seed| disk.crash(seed).list(Path::new("")).expect("listed") == ["g"]));
}

/// Invariant 3, for directories.
#[test]
fn unsynced_directory_is_lost_with_its_content() {
    let [a, b, f] = ["a", "a/b", "a/b/f"].map(Path::new);
    let disk = MemDisk::new();
    disk.create_dir_all(b).expect("made");
    disk.open(f, Open::Create).expect("created").sync_data().expect("synced");
    disk.sync_dir(b).expect("synced");
    let left = |seed| [a, b, f].map(|path| disk.crash(seed).exists(path).expect("looked"));
    let seen = || (0..100).map(left).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    assert_eq!(seen(), [[false; 3], [true, false, false], [true; 3]]);
    disk.sync_dir(a).expect("synced");
    assert_eq!(seen(), [[false; 3], [true; 3]]);
    disk.sync_dir(Path::new("")).expect("synced");
    assert_eq!(seen(), [[true; 3]]);
}

#[test]
fn crash_is_atomic_across_files() {
    // Invariant 7. A count is synced in one file before it is written to the other. The many files
    // in between make the crash take long.
    let disk = MemDisk::new();
    let create = |name: String| disk.open(Path::new(&name), Open::Create).expect("created");
    let first = create("0".to_owned());
    (1..200).for_each(|between| {
        create(format!("1-{between}")).write_all_at(&[0; 4096], 0).expect("written")
    });
    let second = create("2".to_owned());
    disk.sync_dir(Path::new("")).expect("synced");
    let over = AtomicBool::new(false);
    let count = |bytes: &[u8]| bytes.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for now in 1_u64.. {
                first.write_all_at(&now.to_le_bytes(), 0).expect("written");
                first.sync_data().expect("synced");
                second.write_all_at(&now.to_le_bytes(), 0).expect("written");
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let crashes: Vec<_> = (0..200).map(|seed| disk.crash(seed)).collect();
        over.store(true, Ordering::Relaxed);
        for crashed in crashes {
            let of = |name| {
                count(&content(
                    &*crashed.open(Path::new(name), Open::Existing).expect("its name survives"),
                ))
            };
            assert!(of("2") <= of("0"), "{} was written before {} was synced", of("2"), of("0"));
        }
    });
}

#[test]
fn failing_disk_changes_nothing() {
    // Invariant 5.
    let (disk, file) = synced();
    let before = disk.operations();
    disk.fail_after(1);
    file.write_all_at(&[2; 512], 0).expect("granted");
    assert_eq!(kind(file.write_all_at(&[3; 512], 0)), Some(ErrorKind::Other));
    assert_eq!(kind(file.sync_data()), Some(ErrorKind::Other));
    assert_eq!(kind(file.set_len(0)), Some(ErrorKind::Other));
    assert_eq!(kind(disk.remove(Path::new("f"))), Some(ErrorKind::Other));
    assert_eq!(kind(disk.open(Path::new("new"), Open::Create)), Some(ErrorKind::Other));
    assert_eq!((disk.operations(), content(&*file)[0]), (before + 1, 2));
    let next = disk.crash(1).open(Path::new("f"), Open::Existing).expect("opened");
    next.write_all_at(&[4; 512], 0).expect("the disk after the crash does not fail");
}

fn seeds(mut check: impl FnMut(u64)) {
    (0..200).for_each(&mut check);
}

/// Returns a synced disk under a plan with one fault, anywhere.
fn under(
    fault: Fault,
    when: When,
    times: u64,
    seed: u64,
) -> (MemDisk, Arc<dyn File>, Arc<FaultPlan>) {
    let (disk, file) = synced();
    let zone = FaultZone::new(Role::Any, "all", |_| true).fault(fault, when, times);
    let plan = Arc::new(FaultPlan::new(seed, Duration::from_millis(20), vec![zone]));
    disk.set_faults(Some(Arc::clone(&plan)));
    (disk, file, plan)
}

fn read(file: &dyn File) -> std::io::Result<Vec<u8>> {
    let mut buf = vec![0; 1536];
    file.read_exact_at(&mut buf, 0)?;
    Ok(buf)
}

#[test]
fn reads_fail_as_often_as_planned() {
    let (_disk, file, plan) = under(Fault::FailedRead, When::After(1), 2, 0);
    let reads: Vec<bool> = (0..5).map(|_| read(&*file).is_ok()).collect();
    assert_eq!(reads, [true, false, false, true, true]);
    assert_eq!(plan.injected().len(), 2);
    let (_disk, file, _) = under(Fault::FailedRead, When::After(3), FOR_EVER, 0);
    let reads = (0..100).filter(|_| read(&*file).is_ok()).count();
    assert_eq!(reads, 3);
    let error = read(&*file).expect_err("broken");
    assert!(error.to_string().starts_with("read f: input/output error"), "{error}");
}

#[test]
fn rewriting_repairs_an_unreadable_sector() {
    let mut worn = BTreeSet::new();
    seeds(|seed| {
        let (disk, file, _) = under(Fault::UnreadableSector, When::After(0), 1, seed);
        assert!(read(&*file).is_err() && read(&*file).is_err(), "for good");
        let after = disk.crash(seed).open(Path::new("f"), Open::Existing).expect("opened");
        assert!(read(&*after).is_err(), "a crash repairs nothing");
        let mut sector = [0; 512];
        let unreadable: Vec<u64> =
            (0..3).filter(|at| file.read_exact_at(&mut sector, at * 512).is_err()).collect();
        let [one] = unreadable[..] else { panic!("{unreadable:?}") };
        file.write_all_at(&[7; 512], one * 512).expect("remapped");
        assert_eq!(read(&*file).expect("readable")[one as usize * 512], 7);
        worn.insert(one);
    });
    assert_eq!(worn.len(), 3);
}

#[test]
fn short_read_returns_a_prefix() {
    seeds(|seed| {
        let (_disk, file, _) = under(Fault::ShortRead, When::OneIn(2), FOR_EVER, seed);
        let mut buf = [9; 1536];
        let n = file.read_at(&mut buf, 0).expect("read");
        assert!(
            n > 0
                && buf[..n].iter().all(|&byte| byte == 1)
                && buf[n..].iter().all(|&byte| byte == 9)
        );
        assert_eq!(read(&*file).expect("in the end all of it"), [1; 1536]);
    });
}

#[test]
fn a_flipped_bit_stays_flipped() {
    seeds(|seed| {
        let (disk, file, plan) = under(Fault::FlippedBit, When::After(0), 1, seed);
        let flipped: u32 =
            read(&*file).expect("read").iter().map(|byte| (byte ^ 1).count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(read(&*file).expect("read"), after_crash(&disk, seed));
        assert_eq!(plan.injected()[0].duty, Duty::Detects);
    });
}

#[test]
fn cache_bits_may_flip_before_a_sync() {
    for (role, flips) in [(Role::Cache, true), (Role::Pages, false)] {
        let (disk, file) = synced();
        file.write_all_at(&[2; 1536], 0).expect("written");
        let zone =
            FaultZone::new(role, "all", |_| true).fault(Fault::FlippedBit, When::After(0), 1);
        disk.set_faults(Some(Arc::new(FaultPlan::new(1, Duration::ZERO, vec![zone]))));
        let bytes = read(&*file).expect("read");
        let flipped: u32 = bytes.iter().map(|byte| (byte ^ 2).count_ones()).sum();
        assert_eq!(flipped, u32::from(flips), "{role:?}");
        // A sector with a flipped bit has no other state; the other sectors also have the previous
        // one.
        let mut states: [BTreeSet<Vec<u8>>; 3] = Default::default();
        for seed in 0..100 {
            let left = after_crash(&disk, seed);
            states
                .iter_mut()
                .zip(left.chunks(512))
                .for_each(|(states, sector)| states.extend([sector.to_vec()]));
        }
        let expected = bytes.chunks(512).map(|sector| if sector == [2; 512] { 2 } else { 1 });
        assert!(states.iter().map(BTreeSet::len).eq(expected), "{role:?}");
        file.sync_data().expect("synced");
        assert_eq!(read(&*file).expect("read"), bytes);
    }
}

#[test]
fn flip_bits_stays_in_range_and_at_rest() {
    let (disk, file) = synced();
    let flipped = disk.flip_bits(Path::new("f"), 600..700, 5, 3).expect("flipped");
    assert!(
        flipped.len() == 5 && flipped.iter().all(|bit| (4800..5600).contains(bit)),
        "{flipped:?}"
    );
    let mut expected = vec![1_u8; 1536];
    flipped.iter().for_each(|bit| expected[(bit / 8) as usize] ^= 1 << (bit % 8));
    assert_eq!(content(&*file), expected);
    file.write_all_at(&[2; 1], 0).expect("written");
    assert!(
        disk.flip_bits(Path::new("f"), 0..512, 9, 3).expect("nothing").is_empty(),
        "at rest only"
    );
    assert_eq!(kind(disk.flip_bits(Path::new("g"), 0..1, 1, 0)), Some(ErrorKind::NotFound));
}

#[test]
fn failed_write_leaves_a_prefix() {
    let mut done = BTreeSet::new();
    seeds(|seed| {
        let (_disk, file, _) = under(Fault::FailedWrite, When::After(0), 1, seed);
        assert_eq!(kind(file.write_all_at(&[2; 1536], 0)), Some(ErrorKind::Other));
        let bytes = content(&*file);
        let written = bytes.iter().take_while(|&&byte| byte == 2).count();
        assert!(bytes[written..].iter().all(|&byte| byte == 1));
        done.insert(written);
        file.write_all_at(&[3; 1536], 0).expect("only one write fails");
    });
    assert_eq!(done.into_iter().collect::<Vec<_>>(), [0, 512, 1024, 1536]);
}

/// The next sync succeeds without writing anything; a crash shows that, or immediately a read.
#[test]
fn failed_sync_drops_unwritten_sectors() {
    let mut seen = BTreeSet::new();
    seeds(|seed| {
        let (disk, file, _) = under(Fault::FailedSync, When::After(0), 1, seed);
        file.write_all_at(&[2; 1536], 0).expect("written");
        assert_eq!(kind(file.sync_data()), Some(ErrorKind::Other));
        file.sync_data().expect("there is nothing left to sync");
        let (cached, left) = (content(&*file), after_crash(&disk, seed));
        assert!(cached == [2; 1536] || cached == left, "in the cache all, or what the medium has");
        assert_eq!(left, after_crash(&disk, seed + 1), "it was decided at the sync");
        seen.insert((cached == left, left.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>()));
        file.write_all_at(&[3; 1536], 0).expect("written again");
        file.sync_data().expect("synced");
        assert_eq!(after_crash(&disk, seed), [3; 1536], "what is written anew is synced");
    });
    assert_eq!(seen.len(), 15, "evicted or not, and any subset; all of it is one case: {seen:?}");
}

#[test]
fn lost_write_is_missing_after_a_sync() {
    let mut cached = BTreeSet::new();
    seeds(|seed| {
        let (disk, file, _) = under(Fault::LostWrite, When::After(0), 1, seed);
        file.write_all_at(&[2; 512], 512).expect("acknowledged");
        file.write_all_at(&[3; 512], 1024).expect("written");
        file.sync_data().expect("synced");
        assert_eq!(after_crash(&disk, seed), [[1; 512], [1; 512], [3; 512]].concat());
        cached.insert(content(&*file)[512]);
    });
    assert_eq!(cached.len(), 2);
}

#[test]
fn a_misled_write_lands_elsewhere() {
    let mut places = BTreeSet::new();
    seeds(|seed| {
        let (disk, file, _) = under(Fault::MisledWrite, When::After(0), 1, seed);
        file.write_all_at(&[2; 512], 512).expect("acknowledged");
        file.sync_data().expect("synced");
        let bytes = content(&*file);
        assert_eq!(bytes, after_crash(&disk, seed));
        assert_eq!(bytes.len(), 1536);
        places.insert(bytes.chunks(512).position(|sector| sector[0] == 2));
    });
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [None, Some(0), Some(1), Some(2)]);
}

#[test]
fn failed_name_operations_change_nothing() {
    let (disk, _file, _) = under(Fault::FailedName, When::After(0), 4, 0);
    let (f, g) = (Path::new("f"), Path::new("g"));
    assert_eq!(kind(disk.rename(f, g)), Some(ErrorKind::Other));
    assert_eq!(kind(disk.remove(f)), Some(ErrorKind::Other));
    assert_eq!(kind(disk.open(g, Open::Create)), Some(ErrorKind::Other));
    assert_eq!(kind(disk.sync_dir(Path::new(""))), Some(ErrorKind::Other));
    assert_eq!(disk.list(Path::new("")).expect("listed"), ["f"]);
    disk.rename(f, g).expect("renamed");
}

/// Invariant 6.
#[test]
fn full_disk_fills_up_and_reuses_freed_space() {
    let (disk, file) = synced();
    disk.set_capacity(2048);
    assert_eq!(disk.used(), 1536);
    assert_eq!(kind(file.write_all_at(&[2; 1024], 1536)), Some(ErrorKind::StorageFull));
    assert_eq!((disk.used(), content(&*file).len()), (2048, 2048), "as far as it goes");
    file.write_all_at(&[3; 2048], 0).expect("in place there is room");
    assert_eq!(kind(file.set_len(2049)), Some(ErrorKind::StorageFull));
    let other = disk.open(Path::new("g"), Open::Create).expect("a name takes no room");
    assert_eq!(kind(other.write_all_at(&[1], 0)), Some(ErrorKind::StorageFull));
    let error = other.write_all_at(&[1], 9).expect_err("nor does a gap");
    assert!(error.to_string().starts_with("write g: "), "{error}");
    assert!(other.is_empty().expect("length"));
    assert_eq!(
        kind(disk.crash(1).open(Path::new("h"), Open::Create).and_then(|h| h.set_len(4096))),
        Some(ErrorKind::StorageFull),
        "a crash makes no room"
    );
    file.set_len(1024).expect("cut");
    other.write_all_at(&[1; 512], 512).expect("room has come");
    assert_eq!(disk.used(), 2048);
    disk.remove(Path::new("f")).expect("removed");
    assert_eq!(disk.used(), 1024);
    file.write_all_at(&[1; 9000], 0).expect("what has no name takes no room");
    disk.rename(Path::new("g"), Path::new("h")).expect("renamed");
    disk.open(Path::new("i"), Open::Create).expect("created").set_len(100).expect("there is room");
    disk.rename(Path::new("i"), Path::new("h")).expect("in its place");
    assert_eq!(disk.used(), 100);
    disk.set_capacity(u64::MAX);
    file.set_len(1 << 20).expect("room");
}

#[test]
fn read_only_disk_allows_reads() {
    let (disk, file) = synced();
    disk.set_read_only(true);
    let read_only = Some(ErrorKind::ReadOnlyFilesystem);
    assert_eq!(kind(file.write_all_at(&[2], 0)), read_only);
    assert_eq!(kind(file.set_len(0)), read_only);
    assert_eq!(kind(disk.remove(Path::new("f"))), read_only);
    assert_eq!(kind(disk.open(Path::new("g"), Open::OpenOrCreate)), read_only);
    disk.open(Path::new("f"), Open::OpenOrCreate).expect("it is there");
    assert_eq!(read(&*file).expect("read"), [1; 1536]);
    disk.set_read_only(false);
    file.write_all_at(&[2], 0).expect("written");
}

/// The hook lets delays pass: here with a clock that only the hook advances.
#[test]
fn delays_take_simulated_time() {
    let (disk, file, plan) = under(Fault::Delay, When::OneIn(2), 60, 5);
    let clock = Arc::new(ManualClock::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (hooks_clock, hooks_seen) = (Arc::clone(&clock), Arc::clone(&seen));
    disk.set_hook(Some(Arc::new(move |operation: Operation<'_>| {
        hooks_clock.advance(operation.delay);
        guard(&hooks_seen).push((operation.kind, operation.delay));
    })));
    for _ in 0..100 {
        file.write_all_at(&[2], 0).expect("late, not lost");
        file.sync_data().expect("late, not lost");
    }
    let seen = guard(&seen);
    assert_eq!((seen[0].0, seen[1].0, seen.len()), (OpKind::Write, OpKind::Sync, 200));
    let late = seen.iter().filter(|(_, delay)| !delay.is_zero()).count();
    assert!(
        late > 50
            && late <= 60
            && seen.iter().all(|(_, delay)| *delay <= Duration::from_millis(20)),
        "{late}"
    );
    assert_eq!(clock.monotonic(), seen.iter().map(|(_, delay)| *delay).sum());
    assert!(plan.injected().is_empty(), "a delay creates no duty");
}

/// Invariant 1 of the plan, and zones are independent.
#[test]
fn a_zone_has_its_own_budget() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("d/wal")).expect("made");
    ["d", ""].into_iter().for_each(|dir| disk.sync_dir(Path::new(dir)).expect("synced"));
    let [log, page, other] = ["d/wal/1", "d/p", "d/q"].map(|name| {
        let file = disk.open(Path::new(name), Open::Create).expect("created");
        file.write_all_at(&[1; 512], 0).expect("written");
        file
    });
    let zones = vec![
        FaultZone::under(Role::Log, "log", "d/wal").fault(Fault::FailedSync, When::OneIn(3), 2),
        FaultZone::under(Role::Pages, "pages", "d/p").fault(Fault::FailedRead, When::OneIn(4), 5),
    ];
    let plan = Arc::new(FaultPlan::new(11, Duration::ZERO, zones));
    disk.set_faults(Some(Arc::clone(&plan)));
    let failures = |file: &Arc<dyn File>| {
        let syncs = (0..300).filter(|_| file.sync_data().is_err()).count();
        (syncs, (0..300).filter(|_| file.read_at(&mut [0; 10], 0).is_err()).count())
    };
    assert_eq!((failures(&log), failures(&page), failures(&other)), ((2, 0), (0, 5), (0, 0)));
    let injected = plan.injected();
    assert_eq!(injected.len(), 7);
    assert_eq!((injected[0].zone, injected[0].duty), ("log", Duty::Stops));
    assert_eq!(
        (injected[6].zone, injected[6].duty, injected[6].path.as_path()),
        ("pages", Duty::Continues, Path::new("d/p"))
    );
    let after = disk.crash(0);
    after.set_faults(Some(plan));
    assert_eq!(
        failures(&after.open(Path::new("d/wal/1"), Open::OpenOrCreate).expect("opened")).0,
        0,
        "used up"
    );
}

#[test]
#[should_panic(expected = "zone log: Log does not cover LostWrite")]
fn zone_refuses_faults_outside_its_role() {
    drop(FaultZone::under(Role::Log, "log", "wal").fault(Fault::LostWrite, When::After(0), 1));
}

/// Invariant 4, with all faults at once.
#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed: u64| {
        let zone = [
            Fault::FailedRead,
            Fault::UnreadableSector,
            Fault::ShortRead,
            Fault::FlippedBit,
            Fault::FailedWrite,
            Fault::LostWrite,
            Fault::MisledWrite,
            Fault::FailedSync,
            Fault::FailedName,
            Fault::Delay,
        ]
        .into_iter()
        .fold(FaultZone::new(Role::Any, "all", |_| true), |zone, fault| {
            zone.fault(fault, When::OneIn(20), FOR_EVER)
        });
        let plan = Arc::new(FaultPlan::new(seed, Duration::from_secs(1), vec![zone]));
        let (disk, file) = synced();
        disk.set_faults(Some(Arc::clone(&plan)));
        let random = SeededEntropy::new(seed);
        let mut results = Vec::new();
        for _ in 0..400 {
            let (at, len) = (random.below(9000), random.below(2000) as usize);
            let result = match random.below(4) {
                0 => file.read_at(&mut vec![0; len], at),
                1 => file.sync_data().map(|()| 0),
                2 => disk.rename(Path::new("f"), Path::new("f")).map(|()| 1),
                _ => file.write_all_at(&vec![at as u8; len], at).map(|()| 2),
            };
            results.push(result.map_err(|error| error.to_string()));
        }
        disk.set_faults(None);
        let left: Vec<_> = (0..5)
            .map(|crash| {
                read(&*disk.crash(crash).open(Path::new("f"), Open::Existing).expect("there"))
                    .map_err(|error| error.to_string())
            })
            .collect();
        (results, plan.injected(), left)
    };
    assert!(run(1) == run(1) && run(2) == run(2) && run(1) != run(2));
}

/// Invariant 6, with space that is allocated before use.
#[test]
fn allocated_space_counts_once() {
    let disk = MemDisk::new();
    let file = disk.open(Path::new("a"), Open::Create).unwrap();
    disk.set_capacity(4096);
    file.allocate(0, 3000).unwrap();
    assert_eq!((disk.used(), file.len().unwrap()), (3000, 0));
    assert_eq!(file.allocate(3000, 3000).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.used(), 3000);
    disk.set_capacity(0);
    file.write_all_at(&[1; 1000], 2000).unwrap();
    assert!(file.write_all_at(&[1; 1000], 2001).is_err());
    assert_eq!((disk.used(), file.len().unwrap()), (3000, 3000));
    file.set_len(100).unwrap();
    assert_eq!(disk.used(), 100);
    disk.set_capacity(4096);
    file.allocate(0, 200).unwrap();
    disk.remove(Path::new("a")).unwrap();
    assert_eq!(disk.used(), 0);
}
