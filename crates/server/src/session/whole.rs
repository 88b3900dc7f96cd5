//! Looking ahead: whether the transaction that is about to begin has arrived as a whole, and where
//! its statements go.
//!
//! A simple query of several statements has; a pipeline has as far as its messages are in the
//! input. What is found here is advice to the engine ([`Client::announce`]): every statement is
//! decoded, planned and answered in its turn, as any other.
//!
//! Invariants
//! 1. Nothing here changes the session, and no error is told here: who looks ahead and fails finds
//!    a transaction that is not whole.
//! 2. A transaction is whole if its end is found, and nothing before it makes the client wait for
//!    an answer or the session wait for the client: no Flush, no COPY, no row limit.
//! 3. The look is bounded: by [`MOST_STATEMENTS`] and [`MOST_BYTES`].
//!
//! Locking: none. A crash leaves nothing.

use super::prepared::{PortalState, Prepared};
use super::simple::Item;
use super::{Context, Session, extended};
use crate::io::MAX_MESSAGE;
use clearway_coordinator::{Client, Engine, Whole, reach};
use clearway_ir::{Env, Plan, Statement};
use clearway_wire::frame;
use clearway_wire::frontend::{Bind, Frontend};
use std::rc::Rc;
use std::sync::Arc;

/// Statements of a transaction that is taken for whole, at most.
const MOST_STATEMENTS: usize = 64;

/// Bytes of a pipeline that are looked at, at most.
const MOST_BYTES: usize = 64 << 10;

/// What a statement says of its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// There is more to come.
    More,
    /// It ends here.
    End,
    /// It is not whole, or nobody can know.
    Unknown,
}

/// A look at what comes.
struct Ahead<'a> {
    engine: &'a Engine,
    whole: Whole,
    /// BEGIN has come: neither the Sync nor the query's end is the transaction's.
    explicit: bool,
    statements: usize,
}

impl<'a> Ahead<'a> {
    fn new(engine: &'a Engine) -> Self {
        Self { engine, whole: Whole::new(), explicit: false, statements: 0 }
    }

    fn statement(&mut self, plan: &Plan, env: &Env) -> Found {
        self.statements += 1;
        let known = match &plan.statement {
            Statement::Commit | Statement::Rollback => return Found::End,
            Statement::Begin(_) => {
                self.explicit = true;
                true
            }
            Statement::Set { .. }
            | Statement::SetTransaction { .. }
            | Statement::Reset(_)
            | Statement::Show(_)
            | Statement::Empty => true,
            _ => reach(&mut self.whole, self.engine, plan, env),
        };
        if known && self.statements < MOST_STATEMENTS { Found::More } else { Found::Unknown }
    }

    /// The message ends, or its Sync has come.
    fn end(self) -> Option<Whole> {
        (!self.explicit).then_some(self.whole)
    }
}

/// What a pipeline has prepared and bound and not executed yet.
#[derive(Default)]
struct Pipeline<'m> {
    statements: Vec<(&'m str, Rc<Prepared>)>,
    portals: Vec<(&'m str, Arc<Plan>, Env)>,
}

impl Session {
    /// A statement is about to be executed: `rest` has come after its Execute.
    pub(super) fn look_ahead_in_pipeline(
        &mut self,
        cx: &mut Context<'_>,
        portal: &str,
        max_rows: u32,
        rest: &[u8],
    ) {
        if self.client.as_ref().is_none_or(Client::in_transaction) {
            return;
        }
        let on = cx.shared.config.hot_rows.whole && max_rows == 0 && !is_sync(rest);
        let whole = if on { self.whole_pipeline(cx, portal, rest) } else { None };
        if let Some(client) = &mut self.client {
            client.announce(whole);
        }
    }

    fn whole_pipeline(&self, cx: &mut Context<'_>, portal: &str, mut rest: &[u8]) -> Option<Whole> {
        let engine = cx.port.engine().clone();
        let mut ahead = Ahead::new(&engine);
        let first = self.portal((!portal.is_empty()).then_some(portal))?;
        match ahead.statement(&first.plan, &first.env) {
            Found::More => {}
            _ => return None,
        }
        let mut pipeline = Pipeline::default();
        rest = rest.get(..MOST_BYTES).unwrap_or(rest);
        loop {
            let frame = frame(rest, MAX_MESSAGE).ok()??;
            let (message, after) = rest.split_at(frame.len);
            rest = after;
            match Frontend::decode(message[0], &message[5..]).ok()? {
                Frontend::Parse { name, sql, types } => {
                    let statement =
                        cx.plans.prepared(sql, types, &self.catalog(cx), &self.env).ok()?;
                    pipeline.statements.retain(|(known, _)| *known != name);
                    pipeline.statements.push((name, statement));
                }
                Frontend::Bind(bind) => self.bind_ahead(&mut pipeline, bind)?,
                Frontend::Execute { portal, max_rows: 0 } => {
                    let at = pipeline.portals.iter().position(|(name, ..)| *name == portal);
                    let found = match at.map(|at| pipeline.portals.swap_remove(at)) {
                        Some((_, plan, env)) => ahead.statement(&plan, &env),
                        None => self.bound_before(&mut ahead, portal)?,
                    };
                    match found {
                        Found::More => {}
                        Found::End => return Some(ahead.whole),
                        Found::Unknown => return None,
                    }
                }
                Frontend::DescribeStatement(_)
                | Frontend::DescribePortal(_)
                | Frontend::CloseStatement(_)
                | Frontend::ClosePortal(_) => {}
                Frontend::Sync => return ahead.end(),
                _ => return None,
            }
        }
    }

    /// A portal that was there before the pipeline's rest.
    fn bound_before(&self, ahead: &mut Ahead<'_>, name: &str) -> Option<Found> {
        let portal = self.portal((!name.is_empty()).then_some(name))?;
        matches!(portal.state, PortalState::New).then(|| ahead.statement(&portal.plan, &portal.env))
    }

    fn bind_ahead<'m>(&self, pipeline: &mut Pipeline<'m>, mut bind: Bind<'m>) -> Option<()> {
        let statement = match pipeline.statements.iter().find(|(name, _)| *name == bind.statement) {
            Some((_, statement)) => statement,
            None => self.statement(bind.statement).ok()?,
        };
        let plan = statement.plan();
        let (formats, count) = (bind.formats().ok()?, bind.count().ok()?);
        if count != plan.params.len() {
            return None;
        }
        let name = bind.portal;
        let (params, _) = extended::values(bind, formats, &plan, &self.env.zone).ok()?;
        pipeline.portals.retain(|(known, ..)| *known != name);
        pipeline.portals.push((name, plan, self.env_ahead(params)));
        Some(())
    }

    /// What expressions see that say where a statement goes.
    fn env_ahead(&self, params: Vec<clearway_types::Datum>) -> Env {
        let (now, session) = (self.statement_now, Some(self.env.clone()));
        Env { params, now, statement_now: now, session, ..Env::default() }
    }

    /// The next statement of a simple query is about to run; the query has several.
    pub(super) fn look_ahead_in_query(&mut self, cx: &mut Context<'_>, next: &Plan, env: &Env) {
        if self.client.as_ref().is_none_or(Client::in_transaction) {
            return;
        }
        let Some(mut simple) = self.simple.take() else { return };
        let on = cx.shared.config.hot_rows.whole;
        let whole = if on { self.whole_query(cx, next, env, simple.rest()) } else { None };
        self.simple = Some(simple);
        if let Some(client) = &mut self.client {
            client.announce(whole);
        }
    }

    fn whole_query<'i>(
        &self,
        cx: &mut Context<'_>,
        next: &Plan,
        env: &Env,
        rest: impl Iterator<Item = &'i mut Item>,
    ) -> Option<Whole> {
        let engine = cx.port.engine().clone();
        let catalog = self.catalog(cx);
        let mut ahead = Ahead::new(&engine);
        if ahead.statement(next, env) != Found::More {
            return None;
        }
        let env = self.env_ahead(Vec::new());
        for item in rest {
            let plan = item.plan(&catalog, &self.env)?;
            match ahead.statement(&plan, &env) {
                Found::More => {}
                Found::End => return Some(ahead.whole),
                Found::Unknown => return None,
            }
        }
        ahead.end()
    }

    /// The session has its turn no more. Unless the engine works for it, nobody knows for how long.
    pub(super) fn let_go(&mut self, cx: &mut Context<'_>) {
        if let Some(client) = &mut self.client {
            client.let_go(cx.port);
        }
    }
}

/// Whether a Sync comes next.
pub(super) fn is_sync(rest: &[u8]) -> bool {
    rest.starts_with(&[b'S', 0, 0, 0, 4])
}
