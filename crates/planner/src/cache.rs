//! The plan cache of the simple protocol: one per worker, keyed by the text without its literals.
//!
//! Invariants:
//! 1. A plan of another catalog version is never returned: the whole cache is dropped when the
//!    version differs.
//! 2. At most [`CAPACITY`] entries. A full cache is cleared, since its statements do not repeat.
//!
//! Locking: none, it belongs to one thread. A crash leaves nothing.

use crate::normalize::{Normalized, normalize_into};
use crate::parse::parse;
use crate::statement::plan_with_literals;
use clearway_ir::{Catalog, Plan, SessionEnv, Zone, cast};
use clearway_types::{Datum, SqlResult, SqlType};
use hashbrown::HashMap;
use std::sync::Arc;

/// Maximum number of cached plans.
const CAPACITY: usize = 4096;

/// Plans by normalised text.
#[derive(Default)]
pub struct PlanCache {
    version: u64,
    plans: HashMap<Box<str>, Option<Arc<Plan>>>,
    /// The text being looked up; kept to reuse its allocation.
    scratch: Normalized,
}

impl PlanCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of plans.
    pub fn len(&self) -> usize {
        self.plans.len()
    }
    /// Returns true if there are no plans.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Returns the plan of a simple query and the parameters that replace its literals. `None`: the
    /// cache does not serve this text. Parse and plan it as it is, which also gives errors their
    /// positions.
    pub fn get_or_plan(
        &mut self,
        sql: &str,
        catalog: &Catalog,
        session: &SessionEnv,
    ) -> Option<(Arc<Plan>, Vec<Datum>)> {
        if self.version != catalog.version {
            self.plans.clear();
            self.version = catalog.version;
        }
        let mut n = std::mem::take(&mut self.scratch);
        let found =
            if normalize_into(sql, &mut n) { self.find(&n, catalog, session) } else { None };
        let found = found.and_then(|plan| {
            let params = params(&plan, &mut n.literals, &session.zone).ok()?;
            Some((plan, params))
        });
        self.scratch = n;
        found
    }

    fn find(
        &mut self,
        n: &Normalized,
        catalog: &Catalog,
        session: &SessionEnv,
    ) -> Option<Arc<Plan>> {
        if let Some(plan) = self.plans.get(n.key.as_str()) {
            return plan.clone();
        }
        if self.plans.len() >= CAPACITY {
            self.plans.clear();
        }
        // A text that cannot be planned without its literals is cached as such.
        let made = made(n, catalog, session).ok().flatten().map(Arc::new);
        self.plans.insert(n.key.as_str().into(), made.clone());
        made
    }
}

fn made(n: &Normalized, catalog: &Catalog, session: &SessionEnv) -> SqlResult<Option<Plan>> {
    let parsed = parse(n.text())?;
    let [stmt] = &parsed[..] else { return Ok(None) };
    let made = plan_with_literals(stmt, catalog, &n.types(), &session.path)?;
    Ok((made.params.len() == n.literals.len()).then_some(made))
}

/// Converts the literals to the plan's parameter types.
fn params(plan: &Plan, literals: &mut Vec<Datum>, zone: &Zone) -> SqlResult<Vec<Datum>> {
    let mut out = std::mem::take(literals);
    for (d, ty) in out.iter_mut().zip(&plan.params) {
        if matches!(d, Datum::Text(_)) && !matches!(ty, SqlType::Text | SqlType::Varchar(None)) {
            *d = cast::cast(d.as_ref(), *ty, false, zone)?;
        }
    }
    Ok(out)
}
