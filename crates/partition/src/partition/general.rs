//! Messages of general transactions: statements, savepoints, table locks, DDL.

use super::{After, Partition};
use crate::exec::{Buffers, Exec, Locking, Stop, changes_rows, granted, reads_freely, run_raw};
use crate::lock::{Mode, Target};
use crate::message::{Batch, Body, Failure, FragmentOrigin, Outbox, Reply, Stake};
use crate::txn::{Job, Savepoint, Statement, Task, Then, Txn};
use crate::versions::AsOf;
use clearway_ir::Program;
use clearway_storage::{Trees, TxnMode, UndoLog};
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowBatch, SqlError, TxnId};

impl<T: Trees> Partition<T> {
    pub(super) fn general(
        &mut self,
        id: TxnId,
        stake: Stake,
        origin: FragmentOrigin,
        body: Body,
        out: &mut Outbox,
    ) {
        let mut txn = match self.txns.remove(&id) {
            Some(txn) => txn,
            None => self.new_txn(id, stake),
        };
        (txn.stake, txn.origin) = (stake, origin);
        if txn.task.is_some() {
            let busy = SqlError::internal("the last call of the transaction is still running");
            self.reply(origin, Err(Failure::Sql(busy)), out);
            self.txns.insert(id, txn);
            return;
        }
        if txn.doomed {
            self.reply(origin, Err(Failure::Undone), out);
            self.txns.insert(id, txn);
            return;
        }
        if let Body::TableChanged { table, .. } = body {
            self.tables.announce(table, id);
        }
        match start(&mut txn, body, &mut self.scratch.buffers) {
            Ok(Some(job)) => {
                let task = Task::new(origin, job);
                if let After::End = self.run_task(id, &mut txn, task, out) {
                    return;
                }
            }
            Ok(None) => self.reply(origin, Ok(Reply::default()), out),
            Err(e) => self.reply(origin, Err(Failure::Sql(e)), out),
        }
        self.txns.insert(id, txn);
    }

    fn new_txn(&mut self, id: TxnId, stake: Stake) -> Box<Txn<T::Log>> {
        match self.spare.take() {
            Some(mut txn) => {
                txn.renew(id, stake);
                txn
            }
            None => Box::new(Txn::new(id, stake)),
        }
    }

    /// Drops a paused statement.
    #[cold]
    pub(super) fn forget(&mut self, id: TxnId, statement: u32) {
        if let Some(txn) = self.txns.get_mut(&id) {
            txn.paused.retain(|paused| paused.exec.id() != statement);
        }
    }

    /// Discards a savepoint and all later ones.
    pub(super) fn release_savepoint(&mut self, id: TxnId, savepoint: u32) {
        if let Some(txn) = self.txns.get_mut(&id) {
            txn.savepoints.retain(|s| s.id < savepoint);
        }
    }

    pub(super) fn run_general(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        job: &mut Job,
        out: &mut Outbox,
    ) -> Result<Reply, Stop> {
        self.settle_before(id, job)?;
        match job {
            Job::Settle(failure) => match failure.take() {
                Some(failure) => Err(Stop::Fail(failure)),
                None => Ok(Reply::default()),
            },
            Job::ConvertIncrements => {
                self.convert_increments(id, txn)?;
                Ok(Reply::default())
            }
            Job::Statement(s) => {
                if s.as_of.is_some() {
                    self.convert_increments(id, txn)?;
                }
                let by_table = match s.as_of {
                    Some(as_of) => self.check_table(id, &s.exec.program, as_of)?,
                    None => self.check_plan(&s.exec.program, None).map(|()| false)?,
                };
                let mode = if s.fresh && !txn.has_had_savepoint {
                    TxnMode::Fresh
                } else {
                    TxnMode::Logged
                };
                let locking = self.statement_locking(
                    id,
                    &s.exec.program,
                    s.fresh || s.as_of.is_some() && reads_freely(&s.exec.program),
                );
                let replaced = self.replaced(id, &s.exec, s.as_of)?;
                let locking = match locking {
                    Locking::Take if s.optimistic => {
                        self.begin_fragment()?;
                        Locking::Record
                    }
                    locking => locking,
                };
                let retires = self.retires(txn, s) && locking == Locking::Take;
                let (mut cx, _) =
                    self.cx(id, &mut txn.log, locking, mode, Some((&mut txn.reads, s.learns)));
                cx.set_snapshot(s.as_of, replaced, by_table);
                cx.moved = Some(&mut txn.moved);
                cx.may_use_retired = retires;
                cx.may_add = s.may_add;
                if cx.adds_concurrently() && only_adds(&s.exec.program) {
                    txn.adds = true;
                }
                let more = s.exec.run(&mut cx)?;
                if locking == Locking::Record {
                    self.validate(id, true)?;
                    s.optimistic = false;
                }
                // Its own changes may have displaced versions that it then needed.
                if let Some(as_of) = s.as_of {
                    self.trees.versions.check(as_of)?;
                }
                let (rows, count) = s.exec.take_output();
                let mut behind = self.locks.is_behind_others(id);
                if self.blocking.is_taken() && !more {
                    behind |= self.statement_ended(id);
                }
                let behind = behind.then_some(self.id);
                if retires && count == 1 {
                    self.retire(id, &s.exec)?;
                }
                if more {
                    // The client may take its time with the batch.
                    self.unblock(id, out);
                    txn.short = false;
                }
                if more
                    && let Job::Statement(s) = std::mem::replace(job, Job::Finish { commit: None })
                {
                    txn.paused.push(s);
                }
                let increments = txn.adds.then_some(self.id);
                Ok(Reply { more, behind, increments, ..answer(rows, count) })
            }
            Job::KeepVersions { generation, misses } => {
                self.keep_versions((id, txn), *generation, misses)
            }
            Job::AwaitLarge { table, waited } => self.await_large((id, txn), *table, waited),
            Job::LockTable { table, .. } => {
                let mode = Mode::AccessExclusive;
                let target = Target::Table(*table);
                granted(self.locks.acquire(id, target, mode), target, mode)?;
                Ok(Reply::default())
            }
            Job::CreateTrees { trees, at } => {
                while let Some(tree) = trees.get(*at) {
                    self.trees.current.create_tree(*tree)?;
                    self.trees.versions.tree_created(*tree, id);
                    txn.created.push(*tree);
                    *at += 1;
                }
                Ok(Reply::default())
            }
            Job::Raw(op) => {
                let (mut cx, _) = self.cx(id, &mut txn.log, Locking::Take, TxnMode::Logged, None);
                run_raw(&mut cx, op)
            }
            _ => Err(SqlError::internal("not a general transaction's job").into()),
        }
    }
}

/// Returns true for an UPDATE that only adds.
fn only_adds(program: &Program) -> bool {
    matches!(program, Program::Update { adds: Some(_), .. })
}

pub(super) fn answer(rows: RowBatch, count: u64) -> Reply {
    Reply { rows, count, ..Reply::default() }
}

/// Converts a message to a job; `None` if it is already done.
fn start<L: UndoLog>(
    txn: &mut Txn<L>,
    body: Body,
    buffers: &mut Option<Box<Buffers>>,
) -> Result<Option<Job>, SqlError> {
    let mark = txn.log.mark();
    Ok(match body {
        Body::Statement {
            program,
            env,
            rows,
            batch,
            fresh,
            learns,
            may_use_retired,
            may_add,
            optimistic,
        } => {
            let optimistic = optimistic && changes_rows(&program) && batch == Batch::ALL;
            txn.short |= optimistic;
            Some(Job::Statement(Statement {
                exec: Box::new(Exec::new(program, env, rows, batch, buffers.take())),
                mark,
                fresh,
                learns,
                may_use_retired,
                may_add,
                optimistic,
                as_of: None,
            }))
        }
        Body::StatementAt { at, repeatable, program, env, rows, batch } => {
            let exec = Box::new(Exec::new(program, env, rows, batch, buffers.take()));
            let as_of = Some(AsOf { at, me: txn.log.txn(), repeatable });
            Some(Job::Statement(Statement {
                exec,
                mark,
                fresh: false,
                learns: false,
                may_use_retired: !repeatable,
                may_add: false,
                optimistic: false,
                as_of,
            }))
        }
        Body::Next(id) => {
            let paused = txn.paused.iter().position(|s| s.exec.id() == id);
            let at = paused.ok_or_else(|| SqlError::internal("the statement has not paused"))?;
            let paused = txn.paused.swap_remove(at);
            let as_of = paused.as_of.filter(|_| !canary::on(Bug::CurrentFetch));
            // If it fails now, what its transaction has done since it paused stays.
            Some(Job::Statement(Statement { as_of, mark, ..paused }))
        }
        Body::Savepoint(id) => {
            txn.has_had_savepoint = true;
            txn.savepoints.push(Savepoint {
                id,
                mark,
                drops: txn.drops.len(),
                changed: txn.changed.len(),
            });
            None
        }
        Body::RollbackTo(id) => {
            txn.paused.clear();
            let at = txn.savepoints.iter().position(|s| s.id == id);
            let at = at.ok_or_else(|| SqlError::internal("a savepoint is not known here"))?;
            txn.savepoints.truncate(at + 1);
            let s = &txn.savepoints[at];
            txn.drops.truncate(s.drops);
            txn.changed.truncate(s.changed);
            Some(Job::Undo { to: s.mark, then: Then::Done })
        }
        Body::KeepVersions(generation) => Some(Job::KeepVersions { generation, misses: 0 }),
        Body::AwaitLarge(table) => Some(Job::AwaitLarge { table, waited: false }),
        Body::LockTable { table, requester } => Some(Job::LockTable { table, requester }),
        Body::CreateTrees(trees) => Some(Job::CreateTrees { trees, at: 0 }),
        Body::DropTreesAtCommit(trees) => {
            txn.drops.extend(trees);
            None
        }
        Body::TableChanged { table, version } => {
            txn.changed.push((table, version));
            None
        }
        Body::Raw(op) => Some(Job::Raw(op)),
        Body::Settle => Some(Job::Settle(None)),
        Body::ConvertIncrements => Some(Job::ConvertIncrements),
        Body::OneShot { .. }
        | Body::Block { .. }
        | Body::Unblock
        | Body::AwaitQuiet
        | Body::AwaitsClient
        | Body::Forget(_)
        | Body::Release(_)
        | Body::Finish { .. }
        | Body::Cancel(_)
        | Body::GiveUp { .. }
        | Body::Unavailable { .. }
        | Body::Resume(_)
        | Body::HotRows(_)
        | Body::Report(_)
        | Body::SetScheme(_) => {
            return Err(SqlError::internal("not a general transaction's message"));
        }
    })
}
