//! Relation names, with or without a schema, and their resolution.
//!
//! As in PostgreSQL, a query that names a missing relation gets 42P01 with the name as written, and
//! a command on a table in a missing schema gets 3F000.

use crate::scope::{fold, parts};
use clearway_ir::search_path::{PG_CATALOG, PUBLIC, SearchPath, schema};
use clearway_ir::system::{SCHEMA, SystemView};
use clearway_ir::{Catalog, TableDef};
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::ObjectName;
use std::fmt;
use std::sync::Arc;

/// A relation's name as written, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelationName {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl fmt::Display for RelationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl RelationName {
    /// Returns 0A000 if the name has more than two parts.
    pub(crate) fn of(name: &ObjectName) -> SqlResult<Self> {
        let parts: Vec<String> = parts(name)?.into_iter().map(fold).collect();
        match parts.as_slice() {
            [name] => Ok(Self { schema: None, name: name.clone() }),
            [schema, name] => Ok(Self { schema: Some(schema.clone()), name: name.clone() }),
            _ => Err(cross_database(&parts.join("."))),
        }
    }

    /// Returns the system view with this name.
    pub(crate) fn view(&self) -> Option<SystemView> {
        self.schema
            .as_deref()
            .filter(|s| *s == SCHEMA)
            .and_then(|_| SystemView::by_name(&self.to_string()))
    }

    /// Returns true if it may name a table: all tables are in one schema.
    fn may_be_table(&self, path: &SearchPath) -> bool {
        self.schema.as_deref().map_or_else(|| path.sees_tables(), |schema| schema == PUBLIC)
    }

    fn find<'c>(&self, catalog: &'c Catalog, path: &SearchPath) -> Option<&'c Arc<TableDef>> {
        catalog.table(&self.name).filter(|_| self.may_be_table(path))
    }

    /// Returns a query's table: 42P01 if there is none, 42809 if it is a system view or an index.
    pub(crate) fn table<'c>(
        &self,
        catalog: &'c Catalog,
        path: &SearchPath,
    ) -> SqlResult<&'c Arc<TableDef>> {
        self.find(catalog, path).ok_or_else(|| match self.is_index(catalog, path) {
            true => SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{self}\" is an index")),
            false => self.missing(),
        })
    }

    /// Returns true if it names an index or a primary key.
    pub(crate) fn is_index(&self, catalog: &Catalog, path: &SearchPath) -> bool {
        self.may_be_table(path)
            && catalog.table(&self.name).is_none()
            && catalog.has_relation(&self.name)
    }

    /// Returns COPY's table: like [`RelationName::table`], but 3F000 if the schema does not exist.
    pub(crate) fn opened<'c>(
        &self,
        catalog: &'c Catalog,
        path: &SearchPath,
    ) -> SqlResult<&'c Arc<TableDef>> {
        self.known_schema()?;
        self.table(catalog, path)
    }

    /// Returns the table of a command that changes or maintains it: like [`RelationName::opened`],
    /// with another message for an index.
    pub(crate) fn target<'c>(
        &self,
        catalog: &'c Catalog,
        path: &SearchPath,
    ) -> SqlResult<&'c Arc<TableDef>> {
        self.known_schema()?;
        if self.is_index(catalog, path) {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{self}\" is not a table"),
            ));
        }
        self.table(catalog, path)
    }

    fn missing(&self) -> SqlError {
        match self.view() {
            None if self.schema.as_deref() != Some(SCHEMA) => SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{self}\" does not exist"),
            ),
            _ => not_a_table(&self.to_string()),
        }
    }

    fn known_schema(&self) -> SqlResult<()> {
        match &self.schema {
            Some(name) if schema(name).is_none() => Err(no_schema(name)),
            _ => Ok(()),
        }
    }

    /// Returns the name of a table to create.
    pub(crate) fn created(&self, path: &SearchPath) -> SqlResult<String> {
        let Some(schema) = self.schema.as_deref().or(path.first()) else {
            let text = "no schema has been selected to create in";
            return Err(SqlError::new(SqlState::UNDEFINED_SCHEMA, text));
        };
        self.known_schema()?;
        match schema {
            PUBLIC => Ok(self.name.clone()),
            SCHEMA => {
                let text = format!("permission denied to create \"{SCHEMA}.{}\"", self.name);
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, text).hint(format!(
                    "Schema {SCHEMA} is for the server's own views. Use a name without a schema."
                )))
            }
            PG_CATALOG => {
                let text = format!("permission denied to create \"{PG_CATALOG}.{}\"", self.name);
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, text)
                    .detail("System catalog modifications are currently disallowed."))
            }
            other => Err(SqlError::unsupported(format!("a table in schema {other}"))),
        }
    }

    /// Returns the name that DROP should look for; `Err` gives the reason why it cannot exist.
    pub(crate) fn dropped(&self, path: &SearchPath, what: &str) -> Result<String, SqlError> {
        if self.view().is_some() {
            return Err(self.missing());
        }
        self.known_schema()?;
        if !self.may_be_table(path) {
            let state = if what == "index" {
                SqlState::UNDEFINED_OBJECT
            } else {
                SqlState::UNDEFINED_TABLE
            };
            return Err(SqlError::new(state, format!("{what} \"{}\" does not exist", self.name)));
        }
        Ok(self.name.clone())
    }
}

/// Returns 3F000.
pub(crate) fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_SCHEMA, format!("schema \"{name}\" does not exist"))
}

/// Returns 0A000 for a name of three parts or more.
pub(crate) fn cross_database(name: &str) -> SqlError {
    let text = format!("cross-database references are not implemented: \"{name}\"");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text)
}

/// Returns true if the name, qualified if it has a schema, is in schema `clearway`.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(SCHEMA).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns why a relation is not a table: it is a view (42809), or does not exist (42P01).
fn not_a_table(name: &str) -> SqlError {
    if SystemView::by_name(name).is_some() {
        return SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{name}\" is a system view, not a table"),
        )
        .hint(format!("It can only be read: SELECT * FROM {name}."));
    }
    let error =
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
    if is_ours(name) {
        let views: Vec<&str> = SystemView::ALL.into_iter().map(SystemView::short_name).collect();
        return error.hint(format!("The views of schema {SCHEMA} are {}.", views.join(", ")));
    }
    error
}
