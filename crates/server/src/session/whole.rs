//! Looks ahead to find out whether the transaction that is about to begin has arrived whole, and
//! which partitions its statements access.
//!
//! A simple query of several statements has arrived whole; a pipeline has arrived as far as its
//! messages are in the input. The result is advice to the engine ([`Client::announce`]): each
//! statement is still decoded, planned and answered in its turn.
//!
//! Invariants
//! 1. Looking ahead neither changes the session nor reports errors: if it fails, the transaction
//!    counts as not whole.
//! 2. A transaction is whole if its end has been found, and nothing before the end makes the client
//!    wait for a reply or the session wait for the client: no Flush, no COPY, no row limit.
//! 3. Looking ahead is bounded by [`MAX_STATEMENTS`] and [`MAX_BYTES`].
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

/// Maximum number of statements of a whole transaction.
const MAX_STATEMENTS: usize = 64;

/// Maximum number of bytes of a pipeline that are examined.
const MAX_BYTES: usize = 64 << 10;

/// What a statement tells about its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The transaction continues.
    More,
    /// The transaction ends here.
    End,
    /// The transaction is not whole, or this cannot be known.
    Unknown,
}

/// A look ahead in progress.
struct LookAhead<'a> {
    engine: &'a Engine,
    whole: Whole,
    /// BEGIN was found: the transaction does not end with the Sync or the query.
    explicit: bool,
    statements: usize,
}

impl<'a> LookAhead<'a> {
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
        if known && self.statements < MAX_STATEMENTS { Found::More } else { Found::Unknown }
    }

    /// Ends looking ahead, at the end of the query or at a Sync.
    fn end(self) -> Option<Whole> {
        (!self.explicit).then_some(self.whole)
    }
}

/// Statements and portals that the pipeline creates, not executed yet.
#[derive(Default)]
struct Pipeline<'m> {
    statements: Vec<(&'m str, Rc<Prepared>)>,
    portals: Vec<(&'m str, Arc<Plan>, Env)>,
}

impl Session {
    /// Looks ahead before an Execute; `rest` is the input after it.
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
        if on {
            cx.clock.forget();
        }
        if let Some(client) = &mut self.client {
            client.announce(whole);
        }
    }

    fn whole_pipeline(&self, cx: &mut Context<'_>, portal: &str, mut rest: &[u8]) -> Option<Whole> {
        let engine = cx.port.engine().clone();
        let mut ahead = LookAhead::new(&engine);
        let first = self.portals.get((!portal.is_empty()).then_some(portal))?;
        match ahead.statement(&first.plan, &first.env) {
            Found::More => {}
            _ => return None,
        }
        let mut pipeline = Pipeline::default();
        rest = rest.get(..MAX_BYTES).unwrap_or(rest);
        loop {
            let frame = frame(rest, MAX_MESSAGE).ok()??;
            let (message, after) = rest.split_at(frame.len);
            rest = after;
            match Frontend::decode(message[0], &message[5..]).ok()? {
                Frontend::Parse { name, sql, types } => {
                    let statement =
                        cx.plans.prepared(sql, types, &self.catalog(cx), &self.config.env).ok()?;
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

    /// Handles an Execute of a portal that was bound before the look ahead.
    fn bound_before(&self, ahead: &mut LookAhead<'_>, name: &str) -> Option<Found> {
        let portal = self.portals.get((!name.is_empty()).then_some(name))?;
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
        let mut params = Vec::new();
        extended::values(bind, formats, &plan, &self.config.env.zone, &mut params).ok()?;
        pipeline.portals.retain(|(known, ..)| *known != name);
        pipeline.portals.push((name, plan, self.env_ahead(params)));
        Some(())
    }

    /// Creates the environment of the expressions that determine a statement's partitions.
    fn env_ahead(&self, params: Vec<clearway_types::Datum>) -> Env {
        let (now, session) = (self.times.statement, Some(self.config.env.clone()));
        Env { params, now, statement_now: now, session, ..Env::default() }
    }

    /// Looks ahead before the next statement of a simple query with several statements.
    pub(super) fn look_ahead_in_query(&mut self, cx: &mut Context<'_>, next: &Plan, env: &Env) {
        if self.client.as_ref().is_none_or(Client::in_transaction) {
            return;
        }
        let Some(mut simple) = self.exchange.simple.take() else { return };
        let on = cx.shared.config.hot_rows.whole;
        let whole = if on { self.whole_query(cx, next, env, simple.rest()) } else { None };
        self.exchange.simple = Some(simple);
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
        let mut ahead = LookAhead::new(&engine);
        if ahead.statement(next, env) != Found::More {
            return None;
        }
        let env = self.env_ahead(Vec::new());
        for item in rest {
            let plan = item.plan(&catalog, &self.config.env)?;
            match ahead.statement(&plan, &env) {
                Found::More => {}
                Found::End => return Some(ahead.whole),
                Found::Unknown => return None,
            }
        }
        ahead.end()
    }

    /// Releases partitions held for a whole transaction at the end of the session's turn: unless
    /// the engine works for it, its next turn may be far away.
    pub(super) fn release_partitions(&mut self) {
        if let Some(client) = &mut self.client {
            client.release_exclusive();
        }
    }
}

/// Returns true if a Sync comes next.
pub(super) fn is_sync(rest: &[u8]) -> bool {
    rest.starts_with(&[b'S', 0, 0, 0, 4])
}
