//! Prepared statements and portals.

use super::cursor::Declared;
use clearway_coordinator::{Suspended, Tag};
use clearway_ir::search_path::SearchPath;
use clearway_ir::{Catalog, Env, OutColumn, Plan, SessionEnv, Statement};
use clearway_planner::ParsedStatement;
use clearway_types::{RowBatch, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::frontend::Formats;
use clearway_wire::{ColumnFormat, Format};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A statement that has been parsed and planned, and can be planned again when the catalog has
/// changed.
pub struct Prepared {
    parsed: ParsedStatement,
    types: Vec<SqlType>,
    /// It came as PREPARE ... AS or DECLARE ... FOR: what is meant is the statement inside.
    inner: bool,
    plan: RefCell<Arc<Plan>>,
    /// The search path that the plan was made with.
    path: RefCell<SearchPath>,
}

impl Prepared {
    /// Plans a statement with the types that the client declared for its parameters.
    pub fn new(
        parsed: ParsedStatement,
        types: Vec<SqlType>,
        catalog: &Catalog,
        env: &SessionEnv,
    ) -> SqlResult<Self> {
        let plan = RefCell::new(Arc::new(clearway_planner::plan(&parsed, catalog, &types, env)?));
        Ok(Self { parsed, types, inner: false, plan, path: RefCell::new(env.path.clone()) })
    }

    /// The statement inside a planned PREPARE or DECLARE.
    pub fn inner(&self, plan: Arc<Plan>) -> Self {
        Self {
            parsed: self.parsed.clone(),
            types: self.types.clone(),
            inner: true,
            plan: RefCell::new(plan),
            path: self.path.clone(),
        }
    }

    /// The statement, if it has no parameters: nobody could give them values.
    pub fn without_parameters(self) -> SqlResult<Self> {
        if self.plan.borrow().params.is_empty() {
            Ok(self)
        } else {
            Err(self.parsed.no_parameter())
        }
    }

    /// Its text, with that of the other statements of the same message.
    pub fn text(&self) -> &Arc<str> {
        self.parsed.text()
    }

    /// The plan, as it is now.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.borrow().clone()
    }

    /// Whether the plan was made with this catalog, or needs none, and with the session's search
    /// path.
    pub fn is_fresh(&self, catalog: &Catalog, env: &SessionEnv) -> bool {
        self.plan.borrow().catalog.is_none_or(|v| v == catalog.version)
            && *self.path.borrow() == env.path
    }

    /// Plans again. `fixed`: the client has seen the columns, and they must stay what they were.
    pub fn replan(&self, catalog: &Catalog, env: &SessionEnv, fixed: bool) -> SqlResult<()> {
        let mut plan = Arc::new(clearway_planner::plan(&self.parsed, catalog, &self.types, env)?);
        if self.inner
            && let Statement::Prepare { plan: inside, .. } | Statement::Declare { plan: inside, .. } =
                &plan.statement
        {
            plan = inside.clone();
        }
        let old = self.plan.borrow().clone();
        let same = old.columns.len() == plan.columns.len()
            && old.columns.iter().zip(&plan.columns).all(|(old, new)| old.reads_as(new));
        if fixed && !(same && old.params == plan.params) {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            ));
        }
        self.plan.replace(plan);
        self.path.replace(env.path.clone());
        Ok(())
    }
}

/// The formats of a result's columns.
#[derive(Clone, Debug)]
pub enum ResultFormats {
    /// All the same.
    All(Format),
    /// One each.
    Each(Box<[Format]>),
}

impl ResultFormats {
    /// As a Bind message says, for so many columns.
    pub fn new(codes: Formats<'_>, columns: usize) -> SqlResult<Self> {
        match codes.len() {
            0 => Ok(Self::All(Format::Text)),
            1 => Ok(Self::All(codes.get(0)?)),
            n if n == columns => {
                Ok(Self::Each((0..n).map(|i| codes.get(i)).collect::<SqlResult<_>>()?))
            }
            n => Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!("bind message has {n} result formats but query has {columns} columns"),
            )),
        }
    }
    /// Column `i`.
    pub fn get(&self, i: usize) -> Format {
        match self {
            Self::All(f) => *f,
            Self::Each(f) => f.get(i).copied().unwrap_or(Format::Text),
        }
    }
    /// These columns with their formats.
    pub fn apply<'a>(
        &'a self,
        columns: &'a [OutColumn],
    ) -> impl ExactSizeIterator<Item = (&'a OutColumn, ColumnFormat)> {
        columns.iter().enumerate().map(|(i, c)| (c, ColumnFormat { ty: c.ty, format: self.get(i) }))
    }
}

/// What follows the rows of a portal.
pub enum Rest {
    /// Nothing. Its tag, whose count will be that of the last Execute.
    End(Tag),
    /// Rows that its statement has not read yet.
    Suspended(Suspended),
}

/// What has become of a portal.
pub enum PortalState {
    /// It has not run.
    New,
    /// It has run, and hands its rows out in parts.
    Rows {
        /// Those that are here.
        rows: RowBatch,
        /// How many of them have been handed out.
        pos: usize,
        /// What follows them.
        rest: Rest,
    },
    /// It has been made, but its Bind has failed: it has no statement, and no columns.
    Undefined,
    /// Nothing is left.
    Done {
        /// What another Execute says, if that can be said again.
        tag: Option<Tag>,
    },
}

/// A statement bound to parameters.
pub struct Portal {
    /// Its statement, if it can be run.
    pub statement: Option<Rc<Prepared>>,
    /// The plan that it was bound to.
    pub plan: Arc<Plan>,
    /// Parameters and the session's part.
    pub env: Arc<Env>,
    /// How its columns travel.
    pub formats: ResultFormats,
    /// How far it is.
    pub state: PortalState,
    /// How many savepoints there were when it was made.
    pub depth: usize,
    /// What DECLARE adds, if it is a cursor of SQL's.
    pub declared: Option<Declared>,
}

impl Portal {
    /// The columns that it is described with.
    pub fn columns(&self) -> &[OutColumn] {
        if matches!(self.state, PortalState::Undefined) { &[] } else { &self.plan.columns }
    }
}
