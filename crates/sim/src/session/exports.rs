//! Snapshots that sessions export and import. A transaction that imports one must see it in each
//! statement.

use super::{Session, Shared};
use crate::answers::datums;
use crate::model::Answer;
use crate::sql::Stmt;
use clearway_coordinator::{Client, Outcome};
use clearway_types::{Datum, Lsn};
use std::sync::{MutexGuard, PoisonError};

/// Maximum number of exported snapshots that sessions remember.
const EXPORTS: usize = 6;

/// An exported snapshot.
#[derive(Clone, Debug)]
pub struct Export {
    id: String,
    /// The snapshot of the statement that exported it.
    at: Lsn,
    /// The step at which the exporter's transaction began: an importer sees no more than a
    /// transaction that began then.
    began: u64,
}

impl Shared {
    fn exports(&self) -> MutexGuard<'_, Vec<Export>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ids of the most recently exported snapshots.
    pub(super) fn exported(&self) -> Vec<String> {
        self.exports().iter().map(|export| export.id.clone()).collect()
    }
}

impl Session {
    /// Remembers a snapshot that was exported or imported.
    pub(super) fn share(&mut self, stmt: &Stmt, outcome: &Outcome) -> Result<(), String> {
        match stmt {
            Stmt::Export => {
                let at = self
                    .client
                    .as_ref()
                    .and_then(Client::reads_at)
                    .ok_or("an export of no snapshot")?;
                let Some(Datum::Text(id)) = datums(&outcome.rows)?.into_iter().flatten().next()
                else {
                    return Err("an export without an id".into());
                };
                let mut exports = self.shared.exports();
                exports.push(Export { id: id.as_ref().into(), at, began: self.began });
                let old = exports.len().saturating_sub(EXPORTS);
                exports.drain(..old);
            }
            Stmt::Import(id) => {
                let export = self.shared.exports().iter().find(|export| export.id == *id).cloned();
                // Older exports are forgotten: then the transaction is judged by what it sees.
                self.imported = export.as_ref().map(|export| export.at);
                self.began = export.map_or(0, |export| export.began);
                self.imports += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Fails if a statement saw another snapshot than its transaction imported.
    pub(super) fn check_view(
        &self,
        stmt: &Stmt,
        answer: &Answer,
        saw: Option<Lsn>,
    ) -> Result<(), String> {
        let strays = self.imported.is_some() && saw != self.imported;
        let failed = matches!(answer, Answer::Refused(_) | Answer::Duplicate | Answer::Violated);
        if strays && stmt.finds() && !failed {
            let (name, imported) = (&self.name, self.imported);
            return Err(format!(
                "session {name}: {}: saw {saw:?}, but has imported {imported:?}",
                stmt.short()
            ));
        }
        Ok(())
    }

    /// Returns the session name for the serial order of sessions. A transaction that has imported a
    /// snapshot may precede earlier ones of its session.
    pub(super) fn name_of(&self, statements: &[(Stmt, Answer)]) -> String {
        let imported = |step: &(Stmt, Answer)| matches!(step, (Stmt::Import(_), Answer::Done));
        if statements.iter().any(imported) {
            return format!("{}, import {}", self.name, self.imports);
        }
        self.name.clone()
    }
}
