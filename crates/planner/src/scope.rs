//! Names that an expression may use: the columns of one table, of a system view, or of
//! generate_series.

use clearway_ir::TableDef;
use clearway_ir::search_path::PUBLIC;
use clearway_ir::statement::Origin;
use clearway_ir::system::{SCHEMA, SystemView};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType, TableId};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

/// The visible columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The table's name or alias. Empty without one.
    pub(crate) relation: String,
    pub(crate) columns: Vec<(String, SqlType)>,
    /// The table, if it is one.
    pub(crate) table: Option<TableId>,
    /// The table's name, if an alias hides it.
    pub(crate) hidden: Option<String>,
}

impl Scope {
    pub(crate) fn of_table(table: &TableDef, alias: Option<String>) -> Self {
        Self {
            hidden: alias.is_some().then(|| table.name.clone()),
            relation: alias.unwrap_or_else(|| table.name.clone()),
            columns: table.columns.iter().map(|c| (c.name.clone(), c.ty)).collect(),
            table: Some(table.id),
        }
    }
    pub(crate) fn of_view(view: SystemView, alias: Option<String>) -> Self {
        Self {
            relation: alias.unwrap_or_else(|| view.short_name().to_owned()),
            columns: view.columns().iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect(),
            ..Self::default()
        }
    }
    /// Returns the table's column at this position.
    pub(crate) fn origin(&self, column: usize) -> Option<Origin> {
        let table = self.table.filter(|_| column < self.columns.len())?;
        Some(Origin { table, column })
    }
    /// Returns 42P01 if FROM does not name this table of this schema.
    pub(crate) fn of_schema(&self, schema: &str, relation: &str) -> SqlResult<()> {
        let own = if self.table.is_some() { PUBLIC } else { SCHEMA };
        if self.hidden.is_none() && schema == own {
            return Ok(());
        }
        let known = self.hidden.as_deref().unwrap_or(&self.relation) == relation;
        let what = if known {
            "invalid reference to FROM-clause entry"
        } else {
            "missing FROM-clause entry"
        };
        Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("{what} for table \"{relation}\"")))
    }
    /// Returns 42P01: no item in FROM has this name.
    pub(crate) fn no_relation(&self, name: &str) -> SqlError {
        let what = match &self.hidden {
            Some(hidden) if hidden == name => "invalid reference to FROM-clause entry",
            _ => "missing FROM-clause entry",
        };
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("{what} for table \"{name}\""))
    }
    /// Renames the first columns. 42P10 if there are not that many.
    pub(crate) fn rename(&mut self, names: &[String]) -> SqlResult<()> {
        if names.len() > self.columns.len() {
            let text = format!(
                "table \"{}\" has {} columns available but {} columns specified",
                self.relation,
                self.columns.len(),
                names.len()
            );
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, text));
        }
        self.columns.iter_mut().zip(names).for_each(|(column, new)| column.0.clone_from(new));
        Ok(())
    }
    /// Returns the column's position, or 42703 with PostgreSQL's message.
    pub(crate) fn find(&self, qualifier: Option<&str>, name: &str) -> SqlResult<usize> {
        if let Some(q) = qualifier.filter(|q| *q != self.relation) {
            return Err(self.no_relation(q));
        }
        if let Some(at) = self.columns.iter().position(|c| c.0 == name) {
            return Ok(at);
        }
        let shown = match qualifier {
            Some(q) => format!("column {q}.{name} does not exist"),
            None => format!("column \"{name}\" does not exist"),
        };
        let e = SqlError::new(SqlState::UNDEFINED_COLUMN, shown);
        let near = self.columns.iter().map(|c| (distance(name, &c.0), &c.0)).min();
        Err(match near {
            Some((d, column)) if d <= 3 && d <= name.chars().count() / 2 => e.hint(format!(
                "Perhaps you meant to reference the column \"{}.{column}\".",
                self.relation
            )),
            _ => e,
        })
    }
}

/// Returns the Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = cost.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Folds an identifier.
pub(crate) fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// Folds an alias. The parser also accepts a string, which is a syntax error.
pub(crate) fn alias(ident: &Ident) -> SqlResult<String> {
    not_a_string(ident).map(fold)
}

/// Returns an error for a string: the parser accepts one as a name.
fn not_a_string(ident: &Ident) -> SqlResult<&Ident> {
    match ident.quote_style {
        Some('\'') => Err(SqlError::new(
            SqlState::SYNTAX,
            format!("syntax error at or near \"'{}'\"", ident.value),
        )),
        _ => Ok(ident),
    }
}

/// Returns the parts of a name.
pub(crate) fn parts(name: &ObjectName) -> SqlResult<Vec<&Ident>> {
    name.0
        .iter()
        .map(|p| match p {
            ObjectNamePart::Identifier(i) => not_a_string(i),
            ObjectNamePart::Function(_) => Err(SqlError::unsupported("a function as a name")),
        })
        .collect()
}

/// Returns the position of a table's column, for DDL and column lists.
pub(crate) fn column(table: &TableDef, name: &str) -> SqlResult<usize> {
    table.column(name).ok_or_else(|| {
        let text = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, text)
    })
}
