//! The simple query protocol: text with one or several statements.

use super::prepared::Prepared;
use super::run::{Origin, Run, failed_block};
use super::{Context, Session};
use clearway_coordinator::TxnStatus;
use clearway_planner::ParsedStatement;
use clearway_types::{Datum, SqlResult};
use std::collections::VecDeque;
use std::rc::Rc;

/// What is left of a simple query.
pub(super) struct SimpleQuery {
    statements: VecDeque<ParsedStatement>,
    /// Several statements are one implicit transaction.
    several: bool,
}

impl Session {
    pub(super) fn simple_query(&mut self, cx: &mut Context<'_>, sql: &str) {
        self.unnamed = None;
        self.unnamed_portal = None;
        self.simple = None;
        let catalog = self.catalog(cx);
        if let Some((statement, params)) = cx.plans.simple(sql, &catalog, &self.env) {
            self.simple = Some(SimpleQuery { statements: VecDeque::new(), several: false });
            return self.start_simple(cx, statement, params, false);
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

    /// Starts the next statement of the query, or ends it.
    pub(super) fn next_simple(&mut self, cx: &mut Context<'_>) {
        let next = self.simple.as_mut().and_then(|s| Some((s.statements.pop_front()?, s.several)));
        let Some((parsed, several)) = next else {
            self.simple = None;
            return self.end_implicit(cx, true);
        };
        match self.plan_simple(cx, parsed) {
            Ok(statement) => self.start_simple(cx, Rc::new(statement), Vec::new(), several),
            Err(e) => self.fail(cx, &Origin::Simple, &e),
        }
    }

    fn plan_simple(&mut self, cx: &mut Context<'_>, parsed: ParsedStatement) -> SqlResult<Prepared> {
        let result = Prepared::new(parsed, Vec::new(), &self.catalog(cx), &self.env);
        // Only what ends a failed block is looked at in one; that needs no catalog, so anything that fails to plan is not it.
        if self.status() == TxnStatus::Failed { result.map_err(|_| failed_block()) } else { result }
    }

    fn start_simple(&mut self, cx: &mut Context<'_>, statement: Rc<Prepared>, params: Vec<Datum>, several: bool) {
        let env = self.make_env(cx, params);
        let plan = statement.plan();
        let run = Run { statement, plan, env, origin: Origin::Simple, implicit_block: several, replans: 0 };
        self.start(cx, run);
    }
}
