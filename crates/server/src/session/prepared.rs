//! Prepared statements and portals.

use super::cursor::Declared;
use clearway_coordinator::{Suspended, Tag};
use clearway_ir::search_path::SearchPath;
use clearway_ir::{Catalog, Env, OutColumn, Plan, SessionEnv};
use clearway_planner::ParsedStatement;
use clearway_types::{RowBatch, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::frontend::Formats;
use clearway_wire::{ColumnFormat, Format};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// A parsed and planned statement, which can be planned again after a change of the catalog. As in
/// PostgreSQL, its parameters keep their types.
pub struct Prepared {
    parsed: ParsedStatement,
    /// It came from PREPARE ... AS or DECLARE ... FOR: only the inner statement counts.
    inner: bool,
    plan: RefCell<Arc<Plan>>,
    /// The search path used for the plan.
    path: RefCell<SearchPath>,
    /// It has been planned again.
    is_replanned: Cell<bool>,
}

impl Prepared {
    /// Plans a statement with the parameter types that the client declared.
    pub fn new(
        parsed: ParsedStatement,
        types: &[SqlType],
        catalog: &Catalog,
        env: &SessionEnv,
    ) -> SqlResult<Self> {
        let plan = RefCell::new(Arc::new(clearway_planner::plan(&parsed, catalog, types, env)?));
        let path = RefCell::new(env.path.clone());
        Ok(Self { parsed, inner: false, plan, path, is_replanned: Cell::new(false) })
    }

    /// Returns the statement inside a planned PREPARE or DECLARE.
    pub fn inner(&self, plan: Arc<Plan>) -> Self {
        Self {
            parsed: self.parsed.clone(),
            inner: true,
            plan: RefCell::new(plan),
            path: self.path.clone(),
            is_replanned: Cell::new(false),
        }
    }

    /// Returns the statement if it has no parameters: a simple query cannot supply values.
    pub fn without_parameters(self) -> SqlResult<Self> {
        if self.plan.borrow().params.is_empty() {
            Ok(self)
        } else {
            Err(self.parsed.no_parameter())
        }
    }

    /// Returns the text of its message, including other statements.
    pub fn text(&self) -> &Arc<str> {
        self.parsed.text()
    }

    /// Returns the notices about its text.
    pub fn notices(&self) -> &[(SqlState, String)] {
        self.parsed.notices()
    }

    /// Returns the current plan.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.borrow().clone()
    }

    /// Returns true if the plan fits the catalog with this version, or needs none, and fits the
    /// session's search path.
    pub fn is_fresh(&self, catalog: u64, env: &SessionEnv) -> bool {
        self.plan.borrow().catalog.is_none_or(|v| v == catalog) && *self.path.borrow() == env.path
    }

    /// Returns true if the types of its parameters may differ from those that a Parse would infer
    /// now.
    pub fn is_replanned(&self) -> bool {
        self.is_replanned.get()
    }

    /// Plans again.
    pub fn replan(
        &self,
        catalog: &Catalog,
        env: &SessionEnv,
        columns: ResultColumns,
    ) -> SqlResult<()> {
        let old = self.plan();
        let plan = if self.inner { clearway_planner::plan_inner } else { clearway_planner::plan };
        let plan = plan(&self.parsed, catalog, &old.params, env)?;
        if columns == ResultColumns::Fixed {
            check_columns(&old.columns, &plan.columns)?;
        }
        self.is_replanned.set(true);
        self.plan.replace(Arc::new(plan));
        self.path.replace(env.path.clone());
        Ok(())
    }
}

/// Returns an error if a client that knows the `old` columns of a result cannot read the `new`
/// ones.
pub(super) fn check_columns(old: &[OutColumn], new: &[OutColumn]) -> SqlResult<()> {
    if old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.reads_as(new)) {
        return Ok(());
    }
    let text = "cached plan must not change result type";
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text))
}

/// Whether a statement that is planned again must keep its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultColumns {
    /// The client knows them, so they must not change.
    Fixed,
    /// They may change.
    Free,
}

/// The formats of a result's columns.
#[derive(Clone, Debug)]
pub enum ResultFormats {
    /// One format for all columns.
    All(Format),
    /// One format per column.
    Each(Box<[Format]>),
}

impl ResultFormats {
    /// Interprets the format codes of a Bind message for this number of columns. As in PostgreSQL,
    /// a statement without columns ignores them.
    pub fn new(codes: Formats<'_>, columns: usize) -> SqlResult<Self> {
        match codes.len() {
            _ if columns == 0 => Ok(Self::All(Format::Text)),
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
    /// Returns the format of column `i`.
    pub fn get(&self, i: usize) -> Format {
        match self {
            Self::All(f) => *f,
            Self::Each(f) => f.get(i).copied().unwrap_or(Format::Text),
        }
    }
    /// Pairs these columns with their formats.
    pub fn apply<'a>(
        &'a self,
        columns: &'a [OutColumn],
    ) -> impl ExactSizeIterator<Item = (&'a OutColumn, ColumnFormat)> {
        columns.iter().enumerate().map(|(i, c)| (c, ColumnFormat { ty: c.ty, format: self.get(i) }))
    }
}

/// What follows the buffered rows of a portal.
pub enum Rest {
    /// Nothing. Holds the command tag; its count will be that of the last Execute.
    End(Tag),
    /// Rows that the suspended statement has not produced yet.
    Suspended(Suspended),
}

/// The execution state of a portal.
pub enum PortalState {
    /// Not executed yet.
    New,
    /// Executed; returns its rows in parts.
    Rows {
        /// The buffered rows.
        rows: RowBatch,
        /// Number of buffered rows already returned.
        pos: usize,
        /// What follows the buffered rows.
        rest: Rest,
    },
    /// Its Bind failed: it has no statement and no columns.
    Undefined,
    /// All rows returned.
    Done {
        /// The tag for a repeated Execute, if it can be repeated.
        tag: Option<Tag>,
    },
}

/// A statement bound to parameters.
pub struct Portal {
    /// Its statement; `None` if it cannot be run.
    pub statement: Option<Rc<Prepared>>,
    /// The plan it was bound to.
    pub plan: Arc<Plan>,
    /// The environment: parameters and the session's part.
    pub env: Arc<Env>,
    /// Formats of the result columns.
    pub formats: ResultFormats,
    /// The execution state.
    pub state: PortalState,
    /// Number of savepoints when it was created.
    pub depth: usize,
    /// Set by DECLARE, if it is an SQL cursor.
    pub declared: Option<Declared>,
}

impl Portal {
    /// Returns the columns for Describe.
    pub fn columns(&self) -> &[OutColumn] {
        if matches!(self.state, PortalState::Undefined) { &[] } else { &self.plan.columns }
    }
}
