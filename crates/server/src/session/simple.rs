//! The simple query protocol: text with one or more statements.

use super::prepared::{Prepared, ResultColumns};
use super::run::{Origin, Run, failed_block};
use super::{Context, Phase, Session};
use clearway_coordinator::TxnStatus;
use clearway_ir::{Catalog, Env, Plan, SessionEnv, Signal, StatementText};
use clearway_planner::ParsedStatement;
use clearway_types::{SqlError, SqlResult};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// A statement of a simple query that has not run yet.
pub(super) enum Item {
    /// Parsed only.
    Parsed(Box<ParsedStatement>),
    /// Already planned, by looking ahead.
    Planned(Box<Prepared>),
}

impl Item {
    /// Plans it ahead of its turn; `None` if it cannot be planned yet or has parameters.
    pub(super) fn plan(&mut self, catalog: &Catalog, env: &SessionEnv) -> Option<Arc<Plan>> {
        if let Self::Parsed(parsed) = self {
            let statement = Prepared::new((**parsed).clone(), &[], catalog, env).ok()?;
            *self = Self::Planned(Box::new(statement.without_parameters().ok()?));
        }
        match self {
            Self::Planned(statement) => Some(statement.plan()),
            Self::Parsed(_) => None,
        }
    }
}

/// The rest of a simple query.
pub(super) struct SimpleQuery {
    statements: VecDeque<Item>,
    /// The query has several statements: they are one implicit transaction.
    several: bool,
    /// A cancel request came. The running statement may end before it notices; then the next one
    /// fails.
    cancelled: bool,
}

impl SimpleQuery {
    /// Returns the statements that have not run yet.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = &mut Item> {
        self.statements.iter_mut()
    }

    /// Notes a cancel request.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
    }
}

impl Session {
    pub(super) fn simple_query(&mut self, cx: &mut Context<'_>, sql: &str) {
        self.statements.unnamed = None;
        self.exchange.simple = None;
        if std::mem::take(&mut self.exchange.cancelled) {
            return self.fail(cx, &Origin::Simple, &Signal::Cancel.error());
        }
        let catalog = self.catalog(cx);
        // In a failed block only statements that end it are allowed; they are never cached.
        if self.status() != TxnStatus::Failed
            && let Some((plan, params)) = cx.plans.simple(sql, &catalog, &self.config.env)
        {
            match Arc::get_mut(&mut self.statements.simple_text) {
                Some(text) => text.replace_range(.., sql),
                None => self.statements.simple_text = Arc::new(sql.to_owned()),
            }
            let env = self.simple_env(params);
            return self.start_simple(cx, None, plan, env, false);
        }
        cx.clock.forget();
        match clearway_planner::parse(sql) {
            Err(e) => self.fail(cx, &Origin::Simple, &e),
            Ok(statements) => {
                statements.iter().for_each(|statement| self.notices(statement.notices()));
                let statements: VecDeque<_> =
                    statements.into_iter().map(|s| Item::Parsed(Box::new(s))).collect();
                if statements.is_empty() {
                    clearway_wire::backend::empty_query(&mut self.io.out);
                    return self.ready(cx);
                }
                let several = statements.len() > 1;
                self.exchange.simple = Some(SimpleQuery { statements, several, cancelled: false });
                self.next_simple(cx);
            }
        }
    }

    /// Continues after a statement of the query. The session's main loop starts the next one: there
    /// may be very many.
    pub(super) fn after_simple(&mut self, cx: &mut Context<'_>) {
        if self.exchange.simple.is_some() {
            self.phase = Phase::NextStatement;
        } else {
            self.end_implicit(cx, true);
        }
    }

    /// Starts the next statement of the query, or ends it.
    pub(super) fn next_simple(&mut self, cx: &mut Context<'_>) {
        let query = self.exchange.simple.as_mut();
        let next =
            query.and_then(|q| q.statements.pop_front().map(|item| (item, q.several, q.cancelled)));
        let Some((item, several, cancelled)) = next else {
            self.exchange.simple = None;
            return self.end_implicit(cx, true);
        };
        if cancelled {
            return self.fail(cx, &Origin::Simple, &Signal::Cancel.error());
        }
        cx.clock.forget();
        match self.plan_simple(cx, item) {
            Ok(statement) => {
                let text = StatementText::Parsed(statement.text().clone());
                let env = Arc::new(self.make_env(text, Vec::new()));
                let plan = statement.plan();
                if several {
                    self.look_ahead_in_query(cx, &plan, &env);
                }
                self.start_simple(cx, Some(Rc::new(statement)), plan, env, several);
            }
            Err(e) => self.fail(cx, &Origin::Simple, &e),
        }
    }

    fn plan_simple(&mut self, cx: &mut Context<'_>, item: Item) -> SqlResult<Prepared> {
        let catalog = self.catalog(cx);
        let result = match item {
            Item::Parsed(parsed) => Prepared::new(*parsed, &[], &catalog, &self.config.env),
            Item::Planned(statement) if statement.is_fresh(catalog.version, &self.config.env) => {
                Ok(*statement)
            }
            Item::Planned(statement) => statement
                .replan(&catalog, &self.config.env, ResultColumns::Free)
                .map(|()| *statement),
        };
        let result = result.and_then(Prepared::without_parameters);
        // A failed block allows only statements that end it. They need no catalog, so a statement
        // that fails to plan is not one of them.
        if self.status() == TxnStatus::Failed { result.map_err(|_| failed_block()) } else { result }
    }

    /// Parses the text of the last cached simple query as it was written.
    pub(super) fn parse_simple_text(&self, catalog: &Catalog) -> SqlResult<Rc<Prepared>> {
        let parsed = clearway_planner::parse(&self.statements.simple_text)?.into_iter().next();
        let parsed = parsed.ok_or_else(|| SqlError::internal("a cached statement has no text"))?;
        Prepared::new(parsed, &[], catalog, &self.config.env).map(Rc::new)
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
            columns: ResultColumns::Free,
            implicit_block: several,
            replans: 0,
            began: false,
            header_sent: false,
            sent: 0,
            cursor: None,
            binary: false,
        };
        self.start(cx, run);
    }
}
