//! Plans that the sessions of one worker share: by text for simple queries, by text and declared
//! types for Parse.
//!
//! Invariants
//! 1. A plan that is handed out was made with the catalog that it was asked for with, or needs
//!    none.
//! 2. Only sessions whose search path is the default one take part.
//! 3. There are at most [`MOST`] texts of Parse messages; when one more comes, all go. The planner
//!    bounds its own cache.
//!
//! Locking: none; one a worker. A crash leaves nothing.

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

/// Entries at most.
const MOST: usize = 1000;
/// Longer texts are not kept.
const LONGEST: usize = 16 << 10;

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

/// Whether the session's plans are those of most others: a plan depends on the search path.
fn is_shared(env: &SessionEnv) -> bool {
    env.path == SearchPath::default()
}

impl Plans {
    /// A plan for the text of a simple query, with the values of its literals; `None` if it has to
    /// be parsed.
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

    /// The statement of a Parse message.
    pub fn prepared(
        &mut self,
        sql: &str,
        oids: Oids<'_>,
        catalog: &Catalog,
        env: &SessionEnv,
    ) -> SqlResult<Rc<Prepared>> {
        let types = types_of(oids)?;
        if !is_shared(env) {
            // Nothing is found, and nothing kept.
        } else if let Some(entries) = self.by_types.get_mut(sql) {
            entries.retain(|(_, statement)| statement.is_fresh(catalog, env));
            if let Some((_, statement)) = entries.iter().find(|(t, _)| **t == *types) {
                return Ok(statement.clone());
            }
        }
        let mut statements = clearway_planner::parse(sql)?.into_iter();
        let parsed = match statements.next() {
            Some(parsed) => parsed,
            None => clearway_planner::parse(";")?
                .into_iter()
                .next()
                .ok_or_else(|| SqlError::internal("an empty statement is none"))?,
        };
        if statements.next().is_some() {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let statement = Rc::new(Prepared::new(parsed, types.clone(), catalog, env)?);
        if sql.len() <= LONGEST && is_shared(env) {
            if self.by_types.len() >= MOST {
                self.by_types.clear();
            }
            let entries = self.by_types.entry(sql.into()).or_default();
            entries.push((types.into(), statement.clone()));
        }
        Ok(statement)
    }
}
