//! The simple query protocol: text with one or several statements.

use super::prepared::Prepared;
use super::run::{Origin, Run, failed_block};
use super::{Context, Phase, Session};
use clearway_coordinator::TxnStatus;
use clearway_plan::{Catalog, Env, Plan, StatementText};
use clearway_planner::ParsedStatement;
use clearway_types::{SqlError, SqlResult};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// What is left of a simple query.
pub(super) struct SimpleQuery {
    statements: VecDeque<ParsedStatement>,
    /// Several statements are one implicit transaction.
    several: bool,
}

impl Session {
    pub(super) fn simple_query(&mut self, cx: &mut Context<'_>, sql: &str) {
        self.unnamed = None;
        self.simple = None;
        let catalog = self.catalog(cx);
        // In a failed block only its end counts, and that is never cached.
        if self.status() != TxnStatus::Failed
            && let Some((plan, params)) = cx.plans.simple(sql, &catalog, &self.env)
        {
            match Arc::get_mut(&mut self.simple_text) {
                Some(text) => text.replace_range(.., sql),
                None => self.simple_text = Arc::new(sql.to_owned()),
            }
            let env = self.simple_env(params);
            return self.start_simple(cx, None, plan, env, false);
        }
        match clearway_planner::parse(sql) {
            Err(e) => self.fail(cx, &Origin::Simple, &e),
            Ok(statements) => {
                let statements: VecDeque<_> = statements.into();
                if statements.is_empty() {
                    clearway_wire::backend::empty_query(&mut self.io.out);
                    return self.ready(cx);
                }
                self.simple = Some(SimpleQuery { several: statements.len() > 1, statements });
                self.next_simple(cx);
            }
        }
    }

    /// A statement of the query is over. The next one, if any, is started from the session's loop: there may be very many.
    pub(super) fn after_simple(&mut self, cx: &mut Context<'_>) {
        if self.simple.is_some() {
            self.phase = Phase::NextStatement;
        } else {
            self.end_implicit(cx, true);
        }
    }

    /// Starts the next statement of the query, or ends it.
    pub(super) fn next_simple(&mut self, cx: &mut Context<'_>) {
        let next = self.simple.as_mut().and_then(|s| Some((s.statements.pop_front()?, s.several)));
        let Some((parsed, several)) = next else {
            self.simple = None;
            return self.end_implicit(cx, true);
        };
        match self.plan_simple(cx, parsed) {
            Ok(statement) => {
                let env = self.make_env(StatementText::Parsed(statement.text().clone()), Vec::new());
                let plan = statement.plan();
                self.start_simple(cx, Some(Rc::new(statement)), plan, env, several);
            }
            Err(e) => self.fail(cx, &Origin::Simple, &e),
        }
    }

    fn plan_simple(&mut self, cx: &mut Context<'_>, parsed: ParsedStatement) -> SqlResult<Prepared> {
        let catalog = self.catalog(cx);
        let result = Prepared::new(parsed, Vec::new(), &catalog, &self.env);
        let result = result.and_then(Prepared::without_parameters);
        // Only what ends a failed block is looked at in one; that needs no catalog, so anything that fails to plan is not it.
        if self.status() == TxnStatus::Failed { result.map_err(|_| failed_block()) } else { result }
    }

    /// The statement of the last cached simple query, parsed as it was written.
    pub(super) fn parse_simple_text(&self, catalog: &Catalog) -> SqlResult<Rc<Prepared>> {
        let parsed = clearway_planner::parse(&self.simple_text)?.into_iter().next();
        let parsed = parsed.ok_or_else(|| SqlError::internal("a cached statement has no text"))?;
        Prepared::new(parsed, Vec::new(), catalog, &self.env).map(Rc::new)
    }

    fn start_simple(
        &mut self,
        cx: &mut Context<'_>,
        statement: Option<Rc<Prepared>>,
        plan: Arc<Plan>,
        env: Arc<Env>,
        several: bool,
    ) {
        let run = Run {
            statement,
            plan,
            env,
            origin: Origin::Simple,
            implicit_block: several,
            replans: 0,
            began: false,
            headed: false,
            sent: 0,
            cursor: None,
            binary: false,
        };
        self.start(cx, run);
    }
}
