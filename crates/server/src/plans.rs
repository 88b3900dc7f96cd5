//! Plans that the sessions of one worker share: by text for simple queries, by text and declared
//! types for Parse.
//!
//! Invariants
//! 1. A returned plan was made with the catalog passed by the caller, or needs no catalog.
//! 2. Only sessions with the default search path share plans.
//! 3. At most [`MAX_TEXTS`] texts of Parse messages are kept; one more clears them all. The planner
//!    bounds its own cache.
//!
//! Locking: none; each worker has its own. A crash leaves nothing.

use crate::session::Prepared;
use clearway_ir::search_path::SearchPath;
use clearway_ir::{Catalog, Plan, SessionEnv};
use clearway_planner::PlanCache;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::frontend::Oids;
use hashbrown::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// One text's plans, by the parameter types that clients declared.
type Variants = Vec<(Box<[SqlType]>, Rc<Prepared>)>;

/// Maximum number of cached texts of Parse messages.
const MAX_TEXTS: usize = 1000;
/// Maximum length of a cached text, in bytes.
const MAX_TEXT_LEN: usize = 16 << 10;

/// Plans that the sessions of one worker share.
#[derive(Default)]
pub struct Plans {
    simple: PlanCache,
    by_types: HashMap<Box<str>, Variants>,
}

fn types_of(oids: Oids<'_>) -> SqlResult<Vec<SqlType>> {
    let one = |oid| {
        SqlType::from_oid(oid).ok_or_else(|| {
            SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("parameters of type {oid} are not supported"),
            )
        })
    };
    oids.iter().map(one).collect()
}

/// Returns true if the session may share plans: a plan depends on the search path.
fn is_shared(env: &SessionEnv) -> bool {
    env.path == SearchPath::default()
}

impl Plans {
    /// Returns a plan for the text of a simple query and the values of its literals; `None` if the
    /// text must be parsed.
    pub fn simple(
        &mut self,
        sql: &str,
        catalog: &Catalog,
        env: &SessionEnv,
    ) -> Option<(Arc<Plan>, Vec<Datum>)> {
        if !is_shared(env) {
            return None;
        }
        self.simple.get_or_plan(sql, catalog, env)
    }

    /// Returns the statement of a Parse message.
    pub fn prepared(
        &mut self,
        sql: &str,
        oids: Oids<'_>,
        catalog: &Catalog,
        env: &SessionEnv,
    ) -> SqlResult<Rc<Prepared>> {
        let types = types_of(oids)?;
        if !is_shared(env) {
            // Neither looks up nor stores.
        } else if let Some(entries) = self.by_types.get_mut(sql) {
            entries.retain(|(_, statement)| statement.is_fresh(catalog, env));
            if let Some((_, statement)) = entries.iter().find(|(t, _)| **t == *types) {
                return Ok(statement.clone());
            }
        }
        let mut statements = clearway_planner::parse(sql)?.into_iter();
        let parsed = match statements.next() {
            Some(parsed) => parsed,
            None => clearway_planner::parse(";")?.into_iter().next().ok_or_else(|| {
                SqlError::internal("parsing an empty statement gave no statement")
            })?,
        };
        if statements.next().is_some() {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let statement = Rc::new(Prepared::new(parsed, types.clone(), catalog, env)?);
        if sql.len() <= MAX_TEXT_LEN && is_shared(env) {
            if self.by_types.len() >= MAX_TEXTS {
                self.by_types.clear();
            }
            let entries = self.by_types.entry(sql.into()).or_default();
            entries.push((types.into(), statement.clone()));
        }
        Ok(statement)
    }
}
