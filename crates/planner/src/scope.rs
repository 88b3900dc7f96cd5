//! Names that an expression may use: the columns of one table, of a system view or of generate_series.

use crate::system;
use clearway_plan::system::SystemView;
use clearway_plan::{Catalog, TableDef};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use std::sync::Arc;

/// The columns in sight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The table's name or alias; empty if there is none.
    pub(crate) relation: String,
    pub(crate) columns: Vec<(String, SqlType)>,
}

impl Scope {
    pub(crate) fn of_table(table: &TableDef, alias: Option<String>) -> Self {
        Self {
            relation: alias.unwrap_or_else(|| table.name.clone()),
            columns: table.columns.iter().map(|c| (c.name.clone(), c.ty)).collect(),
        }
    }
    pub(crate) fn of_view(view: SystemView, alias: Option<String>) -> Self {
        Self {
            relation: alias.unwrap_or_else(|| view.short_name().to_owned()),
            columns: view.columns().iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect(),
        }
    }
    /// The column's position; 42703 as PostgreSQL words it.
    pub(crate) fn find(&self, qualifier: Option<&str>, name: &str) -> SqlResult<usize> {
        if let Some(q) = qualifier.filter(|q| *q != self.relation) {
            return Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{q}\""),
            ));
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
            Some((d, column)) if d <= 3 && d <= name.chars().count() / 2 => {
                e.hint(format!("Perhaps you meant to reference the column \"{}.{column}\".", self.relation))
            }
            _ => e,
        })
    }
}

/// Levenshtein distance.
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

/// An identifier, folded.
pub(crate) fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// An alias, folded: the parser also takes a string, which is a syntax error.
pub(crate) fn alias(ident: &Ident) -> SqlResult<String> {
    match ident.quote_style {
        Some('\'') => Err(SqlError::new(SqlState::SYNTAX, format!("syntax error at or near \"'{}'\"", ident.value))),
        _ => Ok(fold(ident)),
    }
}

/// The folded parts of a name.
pub(crate) fn parts(name: &ObjectName) -> SqlResult<Vec<&Ident>> {
    name.0
        .iter()
        .map(|p| match p {
            ObjectNamePart::Identifier(i) => Ok(i),
            ObjectNamePart::Function(_) => Err(SqlError::unsupported("a function as a name")),
        })
        .collect()
}

/// A table's name; `public.` may stand before it.
pub(crate) fn table_name(name: &ObjectName) -> SqlResult<String> {
    let names: Vec<String> = parts(name)?.into_iter().map(fold).collect();
    Ok(match names.as_slice() {
        [schema, table] if schema == "public" => table.clone(),
        _ => names.join("."),
    })
}

/// The table; 42P01 if there is none, 42809 if it is a system view.
pub(crate) fn table<'c>(catalog: &'c Catalog, name: &str) -> SqlResult<&'c Arc<TableDef>> {
    catalog.table(name).ok_or_else(|| system::not_a_table(name))
}

/// The position of a table's column, for DDL and column lists.
pub(crate) fn column(table: &TableDef, name: &str) -> SqlResult<usize> {
    table.column(name).ok_or_else(|| {
        let text = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, text)
    })
}
