//! Where the rows of a table without a distribution key go.

use crate::common::{Bank, Worker, int, open};
use clearway_ir::program::Env;
use clearway_ir::statement::{Copy, CopyDirection, CopyFormat, Query, Route, Source};
use clearway_ir::{Expr, OnConflict, Path, Program, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{DatumRef, PartitionId, RowBatch, SqlType};
use std::sync::Arc;

const PARTITIONS: u16 = 4;
/// Two batches for each partition.
const ROWS: i32 = 8000;
const BATCH: i32 = 1000;

/// Returns how many of the table's rows each partition has.
fn rows_at_each(worker: &mut Worker, bank: &Bank) -> Vec<usize> {
    let rows_at = |partition| {
        let id = (0..).find(|id| Bank::home(*id, PARTITIONS) == partition).unwrap();
        let access = bank.access(worker, Path::Full);
        let project = vec![Expr::Column(0)];
        let program = Arc::new(Program::Scan { access, group: None, project, limit: None });
        let route = Route::Hash(vec![int(id)]);
        let source = Source::Table { program, route };
        let query = Query { once: None, source, finish: Vec::new() };
        worker.plain(Statement::Query(query)).unwrap().rows.len()
    };
    (0..PARTITIONS).map(PartitionId).map(rows_at).collect()
}

/// Copies rows into the table in batches.
fn copy(worker: &mut Worker, bank: &Bank) {
    let table = bank.access(worker, Path::Full).table;
    let program = Arc::new(Program::Insert {
        table: table.clone(),
        returning: Vec::new(),
        on_conflict: OnConflict::Fail,
    });
    let row = vec![Expr::Column(0), Expr::Column(1)];
    let copy = Copy {
        direction: CopyDirection::From { table: table.clone(), row, program: program.clone() },
        format: CopyFormat {
            csv: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: false,
            quote: b'"',
            escape: b'"',
        },
        types: vec![SqlType::Int4; 2],
        names: Vec::new(),
    };
    worker.plain(Statement::Copy(copy)).unwrap();
    worker.client().copy_in_start(&table, &program, &Arc::new(Env::default()));
    for first in (0..ROWS).step_by(BATCH as usize) {
        let mut rows = RowBatch::new();
        for id in first..first + BATCH {
            rows.push_with(|row| {
                row.push(DatumRef::Int4(id));
                row.push(DatumRef::Int4(1));
            });
        }
        let step = worker.client().copy_in_rows(rows);
        worker.end(step).unwrap();
    }
    let step = worker.client().copy_in_end(None);
    worker.end(step).unwrap();
}

/// Each batch goes to the next partition, so that a table loaded by one statement has rows at all
/// of them.
#[test]
fn batches_of_rows_without_a_key_go_to_all_partitions() {
    let engine = open(&MemDisk::new(), PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let each = vec![ROWS as usize / usize::from(PARTITIONS); usize::from(PARTITIONS)];
    let series = Bank::create_without_key(&mut worker, "series", ROWS, 1);
    assert_eq!(rows_at_each(&mut worker, &series), each, "generate_series");
    let copied = Bank::create_without_key(&mut worker, "copied", 0, 1);
    copy(&mut worker, &copied);
    assert_eq!(rows_at_each(&mut worker, &copied), each, "COPY");
}
