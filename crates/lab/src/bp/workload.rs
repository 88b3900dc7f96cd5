//! The page accesses of the source's workloads: generated transactions, run by the real B+tree
//! engine on its tables.
//!
//! DBT-1 is an online bookshop (TPC-W), DBT-2 is order entry at warehouses (TPC-C), and TableScan
//! scans whole tables of 128-byte rows. TableScan has the source's size where it fits
//! ([`Recorded`]); the other tables are smaller than the source's. As in the source, all pages are
//! resident.

use super::tables::{Access, Database};
use crate::room::Room;
use crate::simulator::Transactions;
use clearway_buffer::{PAGE_SIZE, data_file_name};
use clearway_harness::Res;
use clearway_harness::tools::TempDir;
use clearway_testkit::Rng;
use clearway_traces::generate::Zipf;
use clearway_types::{PageId, PartitionId};
use std::collections::HashMap;
use std::time::Instant;

/// The source's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An online bookshop.
    Dbt1,
    /// Order entry at warehouses.
    Dbt2,
    /// Scans of whole tables.
    TableScan,
}

impl Kind {
    /// All workloads, in the source's order.
    pub const ALL: [Self; 3] = [Self::Dbt1, Self::Dbt2, Self::TableScan];

    /// Returns the name in tables and for `--only`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dbt1 => "DBT-1-like",
            Self::Dbt2 => "DBT-2-like",
            Self::TableScan => "TableScan",
        }
    }
}

/// Size of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of customers; determines the size of the other tables.
    pub customers: u64,
    /// Number of recorded transactions.
    pub transactions: usize,
    /// Frames of the pool, enough for all pages.
    pub frames: u32,
}

impl Size {
    /// Returns the size for a whole or a quick run.
    pub fn of(quick: bool) -> Self {
        match quick {
            true => Self { customers: 600, transactions: 40, frames: 4_096 },
            false => Self { customers: 40_000, transactions: 3_000, frames: 32_768 },
        }
    }

    /// Returns a TableScan of which each table has this many rows.
    fn scans(rows: u64) -> Self {
        let pages = rows * u64::from(SCANNED) * SCAN_BYTES_A_ROW / PAGE_SIZE as u64;
        // A tenth more frames than pages: the pages must stay resident.
        Self { customers: rows, transactions: 3_000, frames: (pages + pages / 10 + 4_096) as u32 }
    }

    /// Returns a TableScan whose tables take at most this many bytes.
    pub fn scans_of(bytes: u64) -> Self {
        Self::scans((bytes / u64::from(SCANNED) / SCAN_BYTES_A_ROW).max(1))
    }

    /// Returns the size for runs on this machine: TableScan as the source has it, if it fits.
    pub fn measured(kind: Kind, quick: bool, room: Room) -> Self {
        let fits = SOURCE_ROWS * u64::from(SCANNED) * SCAN_BYTES_A_ROW <= room.for_tables();
        match kind == Kind::TableScan && !quick && fits {
            true => Self::scans(SOURCE_ROWS),
            false => Self::of(quick),
        }
    }
}

/// A workload as it is measured and as it is simulated.
pub struct Recorded {
    /// For runs on this machine.
    pub measured: Workload,
    /// Size of the measured workload.
    pub size: Size,
    /// For simulations, if it has smaller tables.
    smaller: Option<Workload>,
}

impl Recorded {
    /// Records a workload in the size that fits, and for simulations in the usual size. A scan of
    /// the source's size outlasts a simulation.
    pub fn new(kind: Kind, quick: bool, room: Room) -> Res<Self> {
        let (size, usual) = (Size::measured(kind, quick, room), Size::of(quick));
        let measured = Workload::record(kind, size)?;
        let differs = size.customers != usual.customers;
        let smaller = differs.then(|| Workload::record(kind, usual)).transpose()?;
        Ok(Self { measured, size, smaller })
    }

    /// Returns the workload for simulations.
    pub fn simulated(&self) -> &Workload {
        self.smaller.as_ref().unwrap_or(&self.measured)
    }

    /// Returns names and values for the configuration.
    pub fn described(&self) -> Vec<(String, String)> {
        let name = self.measured.kind.name();
        let smaller = self.smaller.iter().map(|w| (format!("{name}, simulated"), w.described()));
        [(name.to_owned(), self.measured.described())].into_iter().chain(smaller).collect()
    }
}

/// A recorded workload.
pub struct Workload {
    /// The workload.
    pub kind: Kind,
    /// Page numbers accessed by each transaction; pages are numbered from 0 in order of first
    /// access.
    pub transactions: Transactions,
    /// Whether each of these accesses changes the page.
    pub writes: Vec<Box<[bool]>>,
    /// The page of each number.
    pub pages: Vec<PageId>,
    /// Time per access in the engine during recording, in nanoseconds: its own work, the pool
    /// lookup and the recording.
    pub ns_per_access: f64,
    /// The database after the last transaction.
    pub directory: TempDir,
}

impl Workload {
    /// Creates the tables, runs the transactions and records their accesses.
    pub fn record(kind: Kind, size: Size) -> Res<Self> {
        let mut database = Database::new(&format!("lab-{}", kind.name()), TABLES, size.frames)?;
        let mut shop =
            Shop { rng: Rng::new(1), customers: size.customers, orders: 0, delivered: 0 };
        shop.fill(kind, &mut database)?;
        let popular = Zipf::new(shop.items() as u32, 0.8);
        let (mut recorded, mut elapsed) = (Vec::new(), 0.0);
        // Table scans are long, so a few suffice.
        let transactions = if kind == Kind::TableScan {
            size.transactions.div_ceil(50)
        } else {
            size.transactions
        };
        for _ in 0..transactions {
            let began = Instant::now();
            recorded.push(database.recorded(|database| match kind {
                Kind::Dbt1 => shop.browse_or_buy(&popular, database),
                Kind::Dbt2 => shop.order_or_pay(database),
                Kind::TableScan => shop.scan_a_table(database),
            })?);
            elapsed += began.elapsed().as_nanos() as f64;
        }
        let directory = database.close()?;
        let accesses: usize = recorded.iter().map(Vec::len).sum();
        let (mut numbers, mut pages) = (HashMap::new(), Vec::new());
        let mut number = |page: PageId| {
            *numbers.entry(page).or_insert_with(|| {
                pages.push(page);
                pages.len() as u32 - 1
            })
        };
        recorded.retain(|accessed| !accessed.is_empty());
        let writes = recorded
            .iter()
            .map(|accessed| accessed.iter().map(|access| access.writes).collect())
            .collect();
        let numbered = |accessed: Vec<Access>| {
            accessed.into_iter().map(|access| number(access.page)).collect()
        };
        let transactions = recorded.into_iter().map(numbered).collect();
        let ns_per_access = elapsed / accesses.max(1) as f64;
        Ok(Self { kind, transactions, writes, pages, ns_per_access, directory })
    }

    /// Returns the accesses of all transactions.
    pub fn accesses(&self) -> usize {
        self.transactions.iter().map(|transaction| transaction.len()).sum()
    }

    /// Returns the number of pages in the database, accessed or not.
    pub fn file_pages(&self) -> Res<u32> {
        let file = self.directory.path().join("data").join(data_file_name(PartitionId(0)));
        let length =
            std::fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
        Ok((length / PAGE_SIZE as u64) as u32)
    }

    /// Describes the workload for the record.
    pub fn described(&self) -> String {
        format!(
            "{} transactions, {} accesses, {:.1} % of them changes, to {} pages, {:.0} ns an access in the engine",
            self.transactions.len(),
            self.accesses(),
            self.writes.iter().flatten().filter(|writes| **writes).count() as f64 * 100.0
                / self.accesses().max(1) as f64,
            self.pages.len(),
            self.ns_per_access
        )
    }
}

/// Tables, by tree number.
const TABLES: u32 = 8;
const CUSTOMER: u32 = 1;
const ITEM: u32 = 2;
const BY_TITLE: u32 = 3;
const ORDERS: u32 = 4;
const LINES: u32 = 5;
const STOCK: u32 = 6;
const DISTRICT: u32 = 7;
const NEW_ORDER: u32 = 8;

/// Row sizes in bytes, roughly as in TPC-W and TPC-C.
const CUSTOMER_ROW: [u8; 400] = [1; 400];
const ITEM_ROW: [u8; 300] = [2; 300];
const SMALL_ROW: [u8; 48] = [3; 48];
const SCAN_ROW: [u8; 128] = [4; 128];
const DISTRICTS: u64 = 10;
/// Every warehouse stocks all items.
const MOST_ITEMS: u64 = 10_000;
/// Number of scanned tables; the source does not give one.
const SCANNED: u32 = TABLES;
/// Rows of each of the source's scanned tables.
const SOURCE_ROWS: u64 = 800_000;
/// Bytes of pages for each row of a scanned table, at most.
const SCAN_BYTES_A_ROW: u64 = 192;

/// Generates transactions.
struct Shop {
    rng: Rng,
    customers: u64,
    orders: u64,
    delivered: u64,
}

fn key(a: u64, b: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&a.to_be_bytes());
    key[8..].copy_from_slice(&b.to_be_bytes());
    key
}

impl Shop {
    fn items(&self) -> u64 {
        (self.customers / 4).min(MOST_ITEMS)
    }

    fn warehouses(&self) -> u64 {
        (self.customers / 3_000).max(1)
    }

    fn fill(&mut self, kind: Kind, to: &mut Database) -> Res<()> {
        let (customers, items) = (self.customers, self.items());
        if kind == Kind::TableScan {
            return (0..customers).try_for_each(|n| {
                (1..=SCANNED).try_for_each(|table| to.insert(table, &key(n, 0), &SCAN_ROW))
            });
        }
        (0..customers).try_for_each(|n| to.insert(CUSTOMER, &key(n, 0), &CUSTOMER_ROW))?;
        for item in 0..items {
            to.insert(ITEM, &key(item, 0), &ITEM_ROW)?;
            // Titles sort differently from item numbers.
            to.insert(BY_TITLE, &key(item.wrapping_mul(0x9e37_79b9_7f4a_7c15), item), &[])?;
        }
        for warehouse in 0..self.warehouses() {
            (0..items).try_for_each(|item| to.insert(STOCK, &key(warehouse, item), &SMALL_ROW))?;
            (0..DISTRICTS).try_for_each(|d| to.insert(DISTRICT, &key(warehouse, d), &SMALL_ROW))?;
        }
        (0..customers / 4).try_for_each(|_| self.order(to, |shop| shop.rng.below(items)))
    }

    /// Places an order of 5 to 15 lines.
    fn order(&mut self, to: &mut Database, mut item: impl FnMut(&mut Self) -> u64) -> Res<()> {
        self.orders += 1;
        let (order, lines) = (self.orders, 5 + self.rng.below(11));
        to.insert(ORDERS, &key(order, 0), &SMALL_ROW)?;
        to.insert(NEW_ORDER, &key(order, 0), &[])?;
        for line in 0..lines {
            let (item, warehouse) = (item(self), self.rng.below(self.warehouses()));
            to.get(ITEM, &key(item, 0))?;
            to.get(STOCK, &key(warehouse, item))?;
            to.update(STOCK, &key(warehouse, item), &SMALL_ROW)?;
            to.insert(LINES, &key(order, line), &SMALL_ROW)?;
        }
        Ok(())
    }

    /// Runs a transaction of TPC-W: mostly book pages, searches by title, and occasional orders.
    fn browse_or_buy(&mut self, popular: &Zipf, in_: &mut Database) -> Res<()> {
        let customer = key(self.rng.below(self.customers), 0);
        match self.rng.below(100) {
            0..30 => {
                in_.get(CUSTOMER, &customer)?;
                (0..5).try_for_each(|_| {
                    in_.get(ITEM, &key(popular.draw(&mut self.rng).into(), 0)).map(drop)
                })
            }
            30..65 => in_.get(ITEM, &key(popular.draw(&mut self.rng).into(), 0)).map(drop),
            65..90 => {
                in_.scan(BY_TITLE, &key(self.rng.next_u64(), 0), 50)?;
                (0..10).try_for_each(|_| {
                    in_.get(ITEM, &key(popular.draw(&mut self.rng).into(), 0)).map(drop)
                })
            }
            90..95 => {
                in_.get(CUSTOMER, &customer)?;
                let order = 1 + self.rng.below(self.orders);
                in_.scan(LINES, &key(order, 0), 10).map(drop)
            }
            _ => {
                in_.get(CUSTOMER, &customer)?;
                self.order(in_, |shop| popular.draw(&mut shop.rng).into())
            }
        }
    }

    /// Runs one of TPC-C's five transactions, in its proportions.
    fn order_or_pay(&mut self, in_: &mut Database) -> Res<()> {
        let district = key(self.rng.below(self.warehouses()), self.rng.below(DISTRICTS));
        let customer = key(self.rng.below(self.customers), 0);
        match self.rng.below(100) {
            0..45 => {
                in_.get(CUSTOMER, &customer)?;
                in_.update(DISTRICT, &district, &SMALL_ROW)?;
                self.order(in_, |shop| shop.rng.below(shop.items()))
            }
            45..88 => {
                in_.update(DISTRICT, &district, &SMALL_ROW)?;
                in_.update(CUSTOMER, &customer, &CUSTOMER_ROW)
            }
            88..92 => {
                in_.get(CUSTOMER, &customer)?;
                let order = 1 + self.rng.below(self.orders);
                in_.get(ORDERS, &key(order, 0))?;
                in_.scan(LINES, &key(order, 0), 10).map(drop)
            }
            92..96 => (0..DISTRICTS).try_for_each(|_| {
                self.delivered = (self.delivered + 1).min(self.orders);
                in_.delete(NEW_ORDER, &key(self.delivered, 0))?;
                in_.update(ORDERS, &key(self.delivered, 0), &SMALL_ROW)?;
                in_.scan(LINES, &key(self.delivered, 0), 10).map(drop)
            }),
            _ => {
                in_.get(DISTRICT, &district)?;
                let first = self.orders.saturating_sub(20);
                in_.scan(LINES, &key(first, 0), 200)?;
                let (warehouse, items) = (self.rng.below(self.warehouses()), self.items());
                (0..100).try_for_each(|_| {
                    in_.get(STOCK, &key(warehouse, self.rng.below(items))).map(drop)
                })
            }
        }
    }

    /// Scans a whole table.
    fn scan_a_table(&mut self, in_: &mut Database) -> Res<()> {
        let table = 1 + self.rng.below(SCANNED.into()) as u32;
        let (seen, _) = in_.scan(table, &[], usize::MAX)?;
        if seen as u64 == self.customers { Ok(()) } else { Err(format!("a scan saw {seen} rows")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanned_tables_have_the_expected_size() {
        let rows = 5_000;
        let workload = Workload::record(Kind::TableScan, Size::scans(rows)).unwrap();
        let bytes = u64::from(workload.file_pages().unwrap()) * PAGE_SIZE as u64;
        let expected = rows * u64::from(SCANNED) * SCAN_BYTES_A_ROW;
        assert!((expected * 3 / 4..=expected).contains(&bytes), "{bytes} of {expected}");
        assert_eq!(Size::scans_of(expected).customers, rows);
    }

    #[test]
    fn scans_have_the_sources_size_where_they_fit() {
        let (small, large) = (Room::of(1 << 30, 1 << 40), Room::of(8 << 30, 8 << 30));
        let customers = |kind, quick, room| Size::measured(kind, quick, room).customers;
        assert_eq!(customers(Kind::TableScan, false, large), SOURCE_ROWS);
        assert_eq!(customers(Kind::TableScan, false, small), Size::of(false).customers);
        assert_eq!(customers(Kind::TableScan, true, large), Size::of(true).customers);
        assert_eq!(customers(Kind::Dbt1, false, large), Size::of(false).customers);
    }

    #[test]
    fn recorded_workloads_access_trees_and_write() {
        for kind in Kind::ALL {
            let workload = Workload::record(kind, Size::of(true)).unwrap();
            let accesses = workload.accesses();
            assert!(
                accesses > workload.transactions.len() && workload.ns_per_access > 0.0,
                "{}",
                kind.name()
            );
            assert!(
                (10..4_096).contains(&workload.pages.len()),
                "{}: {}",
                kind.name(),
                workload.described()
            );
            let writes = workload.writes.iter().flatten().filter(|writes| **writes).count();
            match kind {
                Kind::TableScan => assert_eq!(writes, 0),
                // Most TPC-C transactions change rows; most TPC-W transactions do not.
                Kind::Dbt1 => {
                    assert!(writes > 0 && writes < accesses / 10, "{}", workload.described())
                }
                Kind::Dbt2 => assert!(writes > accesses / 20, "{}", workload.described()),
            }
            assert!(
                workload
                    .writes
                    .iter()
                    .zip(&*workload.transactions)
                    .all(|(w, t)| w.len() == t.len())
            );
            // Roots and inner pages are accessed repeatedly, except by scans, which go from leaf to
            // leaf.
            if kind != Kind::TableScan {
                assert!(accesses > 3 * workload.pages.len(), "{}", workload.described());
            }
            // Page copies in the double-write file do not count.
            let last = workload.pages.iter().map(|page| page.no()).max().unwrap();
            let pages = workload.file_pages().unwrap();
            assert!(
                (last + 1..last + 64).contains(&pages),
                "{pages} pages, the last one accessed is {last}"
            );
        }
    }
}
