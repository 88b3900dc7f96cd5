//! A session's interface to the engine: one transaction at a time, one statement at a time.
//!
//! A statement on one partition that ends in one message ([`Client::start_simple`]) runs without
//! its own allocation. Every other statement is a task: an async function polled whenever a reply
//! arrives. Both use [`Core`].
//!
//! Invariants
//! 1. While `running` is not `Idle`, no other statement starts.
//! 2. A transaction that has ended (committed or aborted) holds no lock at any partition: every
//!    participant has answered `Finish`.
//! 3. Dropping a client without [`Client::close`] leaves its locks held; the server always calls
//!    `close`.

use crate::characteristics::{Characteristics, RunOptions};
use crate::copy::CopyIn;
use crate::core::{Answer, Block, Core};
use crate::engine::Engine;
use crate::insert::{self, OneMessage};
use crate::outcome::{End, Outcome, Refusal, Step, Task, TxnStatus};
use crate::port::Port;
use crate::snapshot::{Needs, ReadAt, Work};
use crate::statement::{
    command, controls, failed_block, has_more_work, modify_tag, read_only, writes,
};
use crate::tag::Tag;
use crate::task::{self, Suspended};
use crate::whole::{self, Acquiring};
use crate::{finish, learning, multi, replay, snapshot, stream, txn};
use clearway_ir::program::Env;
use clearway_ir::statement::{Query, Route, Source, TxnOptions};
use clearway_ir::{Catalog, Plan, Statement};
use clearway_partition::{Body, Failure, Reply};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, RowBatch, SqlError, SqlResult, SqlState, TxnId};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) struct Simple {
    plan: Arc<Plan>,
    env: Arc<Env>,
    seq: u32,
    one_shot: bool,
}

pub(crate) enum Running {
    Idle,
    Simple(Simple),
    /// Requesting partitions before the first statement of a transaction that arrived whole.
    Acquiring(Acquiring),
    Task(Task),
}

/// A session's interface to the engine.
pub struct Client {
    pub(crate) core: Rc<Core>,
    pub(crate) running: Running,
    pub(crate) copy: Option<CopyIn>,
}

impl Client {
    /// Creates a client for the session that the server calls `session`.
    pub fn new(port: &mut Port, session: u32) -> Self {
        let core =
            port.inner.register(|token| Rc::new(Core::new(port.inner.clone(), token, session)));
        Self { core, running: Running::Idle, copy: None }
    }

    /// Returns the transaction's status, for ReadyForQuery.
    pub fn status(&self) -> TxnStatus {
        let txn = self.core.txn();
        match txn.block {
            Block::None => TxnStatus::Idle,
            Block::Implicit if !txn.failed => TxnStatus::Idle,
            _ if txn.failed => TxnStatus::Failed,
            _ => TxnStatus::InBlock,
        }
    }

    /// Returns the snapshot that the last statement read, or `None` if it read the newest state.
    pub fn reads_at(&self) -> Option<Lsn> {
        self.core.reads_at()
    }

    /// Returns true if the transaction is behind others: it is undone if one of them rolls back,
    /// also before the client's next statement.
    pub fn is_behind(&self) -> bool {
        let txn = self.core.txn();
        txn.protocol.is_undone() || txn.protocol.is_behind()
    }

    /// Returns the oldest open snapshot, and whether it may outlive the running statement.
    pub fn snapshot(&self) -> Option<(Lsn, bool)> {
        self.core.txn().open_snapshot()
    }

    /// Returns the catalog to plan against: the committed one, or one with this transaction's
    /// changes.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.core.catalog()
    }

    /// Returns the version of [`Client::catalog`]. Unlike the catalog, it shares no counter of
    /// references with other threads.
    pub fn catalog_version(&self) -> u64 {
        self.core.catalog_version()
    }

    /// Starts a statement. A failed block refuses everything except its end (25P02).
    pub fn start(&mut self, plan: &Arc<Plan>, env: &Arc<Env>, options: RunOptions) -> Step {
        debug_assert!(matches!(self.running, Running::Idle));
        if !canary::on(Bug::KeptCancel) {
            self.core.forget_cancel();
        }
        if let Some(refused) = self.refuse(&plan.statement, options) {
            return self.failed(refused);
        }
        if let Some(version) = plan.catalog {
            if version != self.core.catalog_version() {
                return Step::Replan;
            }
            // The plan reveals the catalog.
            self.core.show(self.core.engine().catalog_commit());
        }
        {
            self.core.enter(options);
            self.core.txn().queried |= !controls(&plan.statement);
        }
        env.memory.reset();
        self.core.read_at.set(ReadAt::Newest);
        self.core.streams(false);
        if whole::asks_before(&self.core, &plan.statement) {
            return self.acquire_partitions(plan, env);
        }
        self.go(plan, env)
    }

    /// Starts a statement once its partitions have been requested, if it needed that.
    pub(crate) fn go(&mut self, plan: &Arc<Plan>, env: &Arc<Env>) -> Step {
        if let Some(step) = self.start_simple(plan, env) {
            return step;
        }
        self.start_task(plan.clone(), env.clone())
    }

    /// Continues the running statement. If none runs, ends what is left of a transaction that was
    /// undone because another rolled back.
    pub fn resume(&mut self) -> Step {
        if !self.core.txn().protocol.is_undone() {
            return self.poll_running();
        }
        replay::interrupt(&self.core);
        let step = self.poll_running();
        if !self.is_running() {
            replay::release(&self.core);
        }
        step
    }

    fn poll_running(&mut self) -> Step {
        match std::mem::replace(&mut self.running, Running::Idle) {
            Running::Idle => Step::Pending,
            Running::Acquiring(acquiring) => self.poll_acquiring(acquiring),
            Running::Simple(simple) => match self.core.try_reply(simple.seq) {
                Some(answer) => {
                    self.finish_simple(&simple.plan, &simple.env, simple.one_shot, answer)
                }
                None => {
                    self.core.unblock_if_stalled();
                    self.running = Running::Simple(simple);
                    Step::Pending
                }
            },
            Running::Task(task) => self.poll_task(task),
        }
    }

    /// Returns the running statement's notices so far, as SQLSTATE and text. Call it after
    /// [`Step::Pending`], and before an error is sent.
    pub fn take_notices(&self) -> Vec<(SqlState, String)> {
        self.core.take_notices()
    }

    /// If the block has been replayed since the last call, returns what its statements read then,
    /// as [`Client::reads_at`]. These are the queries, INSERTs, UPDATEs and DELETEs before the last
    /// one.
    pub fn take_replayed(&self) -> Option<Vec<Option<Lsn>>> {
        self.core.replays.take_read()
    }

    /// Returns true if a statement is running, so that [`Client::resume`] has work.
    pub fn is_running(&self) -> bool {
        !matches!(self.running, Running::Idle)
    }

    /// Ends the implicit transaction of several statements, if there is one.
    pub fn end_implicit(&mut self, commit: bool) -> Step {
        if self.core.txn().block != Block::Implicit {
            return Step::Done(Ok(Outcome::plain("")));
        }
        // A cancel request that came too late for the last statement.
        self.core.forget_cancel();
        let core = self.core.clone();
        self.poll_task(Box::pin(async move {
            let commit = commit && !core.txn().failed;
            match if commit {
                txn::commit(&core).await
            } else {
                txn::abort(&core).await.map(|()| Lsn(0))
            } {
                Ok(wait) => End::Outcome(Outcome { wait, ..Outcome::plain("") }),
                Err(e) => End::Error(e),
            }
        }))
    }

    /// Ends the running statement with this error where it can be interrupted: lock waits, page
    /// waits and long scans.
    pub fn cancel(&mut self, error: &SqlError) {
        if self.is_running() {
            self.core.cancel(error);
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.core.engine()
    }

    /// Returns the transactions of the running statement.
    pub(crate) fn calling(&self) -> Vec<TxnId> {
        self.core.calling()
    }

    /// Returns how long the running statement has waited for a lock, or `None` if it waits for
    /// none.
    pub fn waited_for_lock(&self) -> Option<Duration> {
        let waits = self.engine().waits_for();
        self.calling().into_iter().filter_map(|txn| waits.longest(txn)).max()
    }

    /// Returns the session's active transactions: its open one, and those of single statements that
    /// have not been answered.
    pub fn transactions(&self) -> Vec<TxnId> {
        let mut all = self.calling();
        let open = self.core.txn().protocol.id();
        if open != TxnId(0) {
            all.insert(0, open);
        }
        all.dedup();
        all
    }

    /// Returns the open transaction's characteristics, or `default`, those of the next one.
    pub fn characteristics(&self, default: Characteristics) -> Characteristics {
        let txn = self.core.txn();
        if txn.block == Block::None { default } else { txn.characteristics }
    }

    /// Prepares for a statement that the session itself executes.
    pub fn enter(&mut self, options: RunOptions) {
        self.core.enter(options);
    }

    /// Executes SET of `transaction_isolation` or a related variable. No effect outside a block.
    ///
    /// # Errors
    /// 25001 if the transaction can no longer change this.
    pub fn set_characteristics(&mut self, options: TxnOptions) -> SqlResult<()> {
        let mut txn = self.core.txn();
        if txn.block == Block::None { Ok(()) } else { txn.change(options) }
    }

    /// Reports a statement that failed before it reached the client, for example in the parser. It
    /// fails an open transaction block all the same. The step ends with the error after the block's
    /// changes are undone.
    pub fn fail(&mut self, error: SqlError) -> Step {
        // The error may reveal the catalog, for example that a table does not exist.
        self.core.show(self.core.engine().catalog_commit());
        self.failed(error)
    }

    /// Closes the connection: aborts its transaction in the background. The session's number may be
    /// reused at once.
    pub fn close(mut self) {
        let gone = SqlError::new(SqlState::CONNECTION_FAILURE, "the client has gone");
        self.core.cancel(&gone);
        let (core, running) =
            (self.core.clone(), std::mem::replace(&mut self.running, Running::Idle));
        let ending: Task = Box::pin(async move {
            match running {
                Running::Idle => {}
                Running::Acquiring(acquiring) => drop(acquiring.answer.await),
                Running::Simple(simple) => drop(core.reply(simple.seq).await),
                Running::Task(task) => drop(task.await),
            }
            core.forget_cancel();
            let open = core.txn().is_open();
            match if open { txn::abort(&core).await } else { txn::undo(&core).await } {
                Ok(()) => End::Outcome(Outcome::plain("")),
                Err(e) => End::Error(e),
            }
        });
        self.core.port.adopt(self.core.token, ending);
    }

    fn refuse(&self, statement: &Statement, options: RunOptions) -> Option<SqlError> {
        let ends =
            matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        if self.core.txn().failed && !ends {
            return Some(failed_block());
        }
        if self.characteristics(options.characteristics).read_only && writes(statement) {
            return Some(read_only(command(statement)));
        }
        None
    }

    /// The fast path: a statement that is one message to one partition. Returns `None` for others.
    fn start_simple(&mut self, plan: &Arc<Plan>, env: &Arc<Env>) -> Option<Step> {
        let core = &self.core;
        let OneMessage { program, partition, rows } = match self.one_message(plan, env)? {
            Ok(message) => message,
            Err(e) => return Some(self.failed_simply(e)),
        };
        let one_shot = core.txn().block == Block::None;
        let (txn, body) = if one_shot {
            (
                core.port.next_txn(),
                Body::OneShot { program: program.clone(), env: env.clone(), rows },
            )
        } else {
            let mut state = core.txn();
            let known = state.protocol.participants().contains(&partition);
            let needs = Needs::at_home(program);
            let marks = !known && (state.protocol.is_short() || !state.savepoints.is_empty());
            if marks || state.protocol.is_undone() || state.wants_snapshot(needs) {
                return None;
            }
            if state.reads_freely(needs) && state.protocol.must_prepare_to_read(partition) {
                return None;
            }
            state.settle(needs);
            let sees = state.sees(needs);
            if snapshot::is_past(core, sees) {
                return None;
            }
            let id = txn::join(core, &mut state, partition);
            state.protocol.write(!matches!(plan.statement, Statement::Query(_)));
            let fresh = txn::is_fresh(&state, program);
            let learns = learning::learns(core.engine(), &state, program);
            let (may_use_retired, may_add) = (state.may_use_retired(program), state.may_add());
            let batch = stream::batch_of(core, &plan.statement);
            core.read_at.set(ReadAt::of(sees));
            let plain = Work::plain(program, env);
            let work = Work { rows, batch, fresh, learns, may_use_retired, may_add, ..plain };
            (id, work.body(sees))
        };
        let seq = core.send(partition, txn, body);
        Some(match core.try_reply(seq) {
            Some(answer) => self.finish_simple(plan, env, one_shot, answer),
            None => {
                self.core.unblock_if_stalled();
                self.running =
                    Running::Simple(Simple { plan: plan.clone(), env: env.clone(), seq, one_shot });
                Step::Pending
            }
        })
    }

    fn one_message<'p>(&self, plan: &'p Plan, env: &Env) -> Option<SqlResult<OneMessage<'p>>> {
        let partitions = self.core.engine().partitions();
        let (program, route) = match &plan.statement {
            Statement::Query(Query {
                once: None,
                source: Source::Table { program, route: route @ Route::Hash(_) },
                ..
            }) => (program, route),
            Statement::Modify { program, route: route @ Route::Hash(_) }
                if !has_more_work(program) =>
            {
                (program, route)
            }
            Statement::Insert(insert) => return insert::one_row(&self.core, insert, env),
            _ => return None,
        };
        let partition = route.partition(env, partitions).transpose()?;
        Some(partition.map(|partition| OneMessage { program, partition, rows: None }))
    }

    fn finish_simple(
        &mut self,
        plan: &Arc<Plan>,
        env: &Arc<Env>,
        one_shot: bool,
        answer: Answer,
    ) -> Step {
        let reply = match answer {
            Ok(reply) => reply,
            Err(failure) => return self.failed_at_partition(plan, env, one_shot, failure),
        };
        let (rows, tag) = match &plan.statement {
            Statement::Query(_) if reply.more => return self.stream(plan, env, reply),
            Statement::Query(query)
                if !query.finish.is_empty()
                    && reply.rows.len() > self.core.engine().chunk_rows() =>
            {
                return self.finish_in_turns(plan.clone(), env.clone(), one_shot, reply.rows);
            }
            Statement::Query(query) => {
                match finish::apply_at_once(&self.core, &query.finish, reply.rows, env) {
                    Ok(rows) => {
                        let n = rows.len() as u64;
                        (rows, Tag::Select(n))
                    }
                    Err(e) => return self.failed_simply(e),
                }
            }
            Statement::Insert(_) => (reply.rows, Tag::Insert(reply.count)),
            Statement::Modify { program, .. } => (reply.rows, modify_tag(program, reply.count)),
            _ => (reply.rows, Tag::Plain("")),
        };
        if one_shot {
            self.core.port.count_end(true);
        } else {
            self.core.txn().rows += reply.count;
            replay::note(&self.core, plan, env, &rows, tag);
        }
        let wait = self.core.answered(reply.commit.unwrap_or_default(), false);
        Step::Done(Ok(Outcome { rows, tag, wait, notices: Vec::new() }))
    }

    #[cold]
    #[inline(never)]
    fn failed_at_partition(
        &mut self,
        plan: &Arc<Plan>,
        env: &Arc<Env>,
        one_shot: bool,
        failure: Failure,
    ) -> Step {
        match failure {
            Failure::StalePlan => Step::Replan,
            // A task opens a snapshot, and may answer in parts.
            Failure::NeedsSnapshot => self.start_task(plan.clone(), env.clone()),
            // The task replays the block and continues.
            Failure::Undone => self.start_task(plan.clone(), env.clone()),
            Failure::Sql(e) if replay::is_undone(&self.core, &e) => {
                self.start_task(plan.clone(), env.clone())
            }
            // The task may retry the statement.
            Failure::Sql(e) if one_shot && multi::is_victim(&self.core, &e) => {
                self.start_task(plan.clone(), env.clone())
            }
            Failure::Sql(e) => self.failed_simply(e),
        }
    }

    /// Runs the finishing steps of many rows as a task.
    fn finish_in_turns(
        &mut self,
        plan: Arc<Plan>,
        env: Arc<Env>,
        one_shot: bool,
        rows: RowBatch,
    ) -> Step {
        self.poll_task(Box::pin(task::finish(self.core.clone(), plan, env, one_shot, rows)))
    }

    /// Runs the rest of a query whose partition has answered with the first of several batches.
    #[cold]
    #[inline(never)]
    fn stream(&mut self, plan: &Arc<Plan>, env: &Arc<Env>, first: Reply) -> Step {
        let Some(Ok(OneMessage { partition, .. })) = self.one_message(plan, env) else {
            return self.failed(SqlError::internal("a query in batches has no partition"));
        };
        let (core, batch) = (self.core.clone(), self.core.last_batch());
        self.poll_task(Box::pin(task::stream(
            core,
            plan.clone(),
            env.clone(),
            batch,
            (partition, first),
        )))
    }

    /// Suspends the statement that has just returned [`Step::Rows`] so that others can run;
    /// [`Client::resume_suspended`] returns the rest. A single statement's transaction becomes an
    /// implicit one, which [`Client::end_implicit`] ends.
    pub fn suspend(&mut self) -> Option<Suspended> {
        let Running::Task(task) = std::mem::replace(&mut self.running, Running::Idle) else {
            return None;
        };
        let mut txn = self.core.txn();
        if txn.block == Block::None {
            txn.block = Block::Implicit;
        }
        txn.suspend_view();
        replay::close(&self.core, &mut txn);
        Some(Suspended(task))
    }

    /// Continues a suspended statement of the transaction.
    pub fn resume_suspended(&mut self, suspended: Suspended) -> Step {
        debug_assert!(matches!(self.running, Running::Idle));
        self.core.forget_cancel();
        if self.core.txn().protocol.is_undone() {
            return self.failed(Failure::undone());
        }
        self.core.streams(true);
        self.poll_task(suspended.0)
    }

    /// Like [`Client::failed`], for a statement on the fast path: a single statement is a
    /// transaction that has now ended.
    fn failed_simply(&mut self, error: SqlError) -> Step {
        if self.core.txn().block == Block::None {
            self.core.port.count_end(false);
        }
        self.failed(error)
    }

    pub(crate) fn failed(&mut self, error: SqlError) -> Step {
        if self.core.txn().has_only_to_end() {
            return self.poll_task(Box::pin(txn::give_up(self.core.clone(), error)));
        }
        let wait = self.core.refused(&error);
        Step::Done(Err(Refusal { error, wait }))
    }

    fn start_task(&mut self, plan: Arc<Plan>, env: Arc<Env>) -> Step {
        if let Statement::Begin(options) = &plan.statement {
            return match self.begin(options) {
                Ok(outcome) => Step::Done(Ok(outcome)),
                Err(e) => self.failed(e),
            };
        }
        self.poll_task(Box::pin(task::run(self.core.clone(), plan, env)))
    }

    /// Executes BEGIN. Inside a block it begins nothing, and its options apply to the current
    /// block. If it fails, it begins nothing either: an implicit block ends with its message.
    fn begin(&mut self, options: &TxnOptions) -> SqlResult<Outcome> {
        let mut txn = self.core.txn();
        let already = txn.block == Block::Explicit;
        let changed = txn.change(*options);
        if changed.is_ok() {
            txn.block = Block::Explicit;
        }
        if already {
            self.core.notice(
                SqlState::ACTIVE_TRANSACTION,
                "there is already a transaction in progress".to_owned(),
            );
        }
        let mut outcome = Outcome::plain(if options.start { "START TRANSACTION" } else { "BEGIN" });
        changed.map(|()| {
            outcome.notices = self.core.take_notices();
            outcome
        })
    }

    pub(crate) fn poll_task(&mut self, mut task: Task) -> Step {
        match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                self.running = Running::Task(task);
                self.core.take_part().map_or(Step::Pending, Step::Rows)
            }
            Poll::Ready(End::Outcome(outcome)) => {
                let wait = self.core.answered(outcome.wait, false);
                Step::Done(Ok(Outcome { wait, ..outcome }))
            }
            Poll::Ready(End::Error(e)) => self.failed(e),
            Poll::Ready(End::Replan) => Step::Replan,
        }
    }
}
