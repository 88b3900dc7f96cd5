//! Plans that the sessions of one worker share: by text for simple queries, by text and declared
//! types for Parse.
//!
//! Invariants
//! 1. A returned plan was made with the catalog passed by the caller, or needs no catalog. The
//!    parameter types of a returned statement were inferred from that catalog, too.
//! 2. Only sessions with the default search path share plans.
//! 3. At most [`MAX_STATEMENTS`] statements of Parse messages are kept; one more clears them all.
//!    The planner bounds its own cache.
//!
//! Locking: none; each worker has its own. A crash leaves nothing.

use crate::session::Prepared;
use clearway_ir::search_path::SearchPath;
use clearway_ir::{Catalog, Plan, SessionEnv};
use clearway_planner::PlanCache;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::frontend::Oids;
use hashbrown::{Equivalent, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of cached statements of Parse messages.
const MAX_STATEMENTS: usize = 1000;
/// Maximum size of a cached statement's text and types, in bytes.
const MAX_LEN: usize = 16 << 10;

/// A statement's text and the parameter types that clients declared.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    text: Box<str>,
    types: Box<[SqlType]>,
}

/// A borrowed [`Key`], with the same hash.
#[derive(Hash)]
struct KeyRef<'a> {
    text: &'a str,
    types: &'a [SqlType],
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.text == *key.text && *self.types == *key.types
    }
}

/// Plans that the sessions of one worker share.
#[derive(Default)]
pub struct Plans {
    simple: PlanCache,
    prepared: HashMap<Key, Rc<Prepared>>,
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
        let is_shared = is_shared(env);
        if is_shared
            && let Some(statement) = self.prepared.get(&KeyRef { text: sql, types: &types })
            && statement.is_fresh(catalog.version, env)
            && !statement.is_replanned()
        {
            return Ok(statement.clone());
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
        let statement = Rc::new(Prepared::new(parsed, &types, catalog, env)?);
        if is_shared && sql.len() + size_of_val(&*types) <= MAX_LEN {
            // A statement that is stale or replanned is replaced.
            let key = Key { text: sql.into(), types: types.into() };
            if self.prepared.len() >= MAX_STATEMENTS && !self.prepared.contains_key(&key) {
                self.prepared.clear();
            }
            self.prepared.insert(key, statement.clone());
        }
        Ok(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_wire::frontend::Frontend;

    /// Handles a Parse message with these types.
    fn parse(plans: &mut Plans, types: [SqlType; 4]) -> Rc<Prepared> {
        let mut body = b"\0select $1, $2, $3, $4\0\0\x04".to_vec();
        types.iter().for_each(|ty| body.extend(ty.oid().to_be_bytes()));
        let Ok(Frontend::Parse { sql, types, .. }) = Frontend::decode(b'P', &body) else {
            panic!("this is no Parse message");
        };
        plans.prepared(sql, types, &Catalog::default(), &SessionEnv::default()).unwrap()
    }

    #[test]
    fn invariant_3_type_lists_of_one_text_are_bounded() {
        use SqlType::{Bool, Float8, Int2, Int4, Int8, Numeric, Text};
        let all = [Bool, Int2, Int4, Int8, Float8, Numeric, Text];
        let types = |i: usize| [i % 7, i / 7 % 7, i / 49 % 7, i / 343].map(|at| all[at]);
        let mut plans = Plans::default();
        for i in 0..MAX_STATEMENTS + 100 {
            let first = parse(&mut plans, types(i));
            assert!(Rc::ptr_eq(&first, &parse(&mut plans, types(i))));
            assert!(plans.prepared.len() <= MAX_STATEMENTS);
        }
        assert_eq!(plans.prepared.len(), 100);
    }
}
