//! The cost of a hit. For a meaningful number:
//! `cargo test -p clearway-buffer --release hit_path -- --nocapture`.

use crate::common::*;
use clearway_buffer::FileSpace;
use clearway_env::{Clock, OsClock, SeededEntropy};
use clearway_replacement::ReplacementKind;
use clearway_testkit::MemDisk;
use clearway_types::PageId;
use std::hint::black_box;

#[test]
fn hit_path() {
    let pages = 4096;
    for policy in ReplacementKind::all() {
        let f = pool_on(&MemDisk::new(), pages + 1024, policy);
        let random = SeededEntropy::new(1);
        for no in 0..pages {
            with(&f.pool, |pool| {
                pool.create(page(0, no), FileSpace::Usual)
                    .map(|mut p| stamp(&mut p, &f.wal, u64::from(no)))
            });
        }
        let ids: Vec<PageId> =
            (0..1 << 12).map(|_| page(0, random.below(u64::from(pages)) as u32)).collect();
        let hits = if cfg!(debug_assertions) { 1 << 14 } else { 1 << 23 };
        let measure = |what: &str, access: &dyn Fn(PageId) -> u8| {
            let start = OsClock.monotonic();
            let mut checksum = 0_u64;
            for &id in ids.iter().cycle().take(hits) {
                checksum += u64::from(black_box(access(id)));
            }
            let ns = (OsClock.monotonic() - start).as_nanos() as f64 / hits as f64;
            println!("{policy} {what}: {ns:.1} ns a hit, checksum {checksum}");
        };
        let hot = page(0, 1);
        measure("read of one page", &|_| f.pool.read(hot).unwrap()[40]);
        measure("read", &|id| f.pool.read(id).unwrap()[40]);
        measure("write", &|id| f.pool.write(id).unwrap()[40]);
        assert_eq!(f.pool.stats().reads, 0, "no page was evicted");
    }
}
