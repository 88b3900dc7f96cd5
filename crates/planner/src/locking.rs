//! Locking clauses: FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE, each with OF,
//! NOWAIT and SKIP LOCKED.
//!
//! sqlparser knows FOR UPDATE and FOR SHARE. The other two are passed to it as these, with a mark
//! as the first name after OF: a name that no text can contain.

use crate::cursor::Cursor;
use crate::tree::walk;
use clearway_ir::{Expr, LockWait, RowLock, RowLocking, TableDef};
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The mark's text.
const MARK: &str = "\0";

/// One clause.
pub(crate) struct Lock {
    /// The clause as written.
    pub(crate) name: &'static str,
    kind: RowLock,
    wait: LockWait,
    /// The name after OF.
    pub(crate) of: Option<ast::ObjectName>,
}

/// Returns a statement's tokens, with marks in place of the words that sqlparser does not know.
pub(crate) fn marked(statement: &Cursor<'_>) -> Vec<TokenWithSpan> {
    let (mut c, mut out) = (statement.clone(), Vec::with_capacity(statement.rest().len()));
    while let [token, others @ ..] = c.rest() {
        let (no_key, key) = (
            c.clone().accept(&["for", "no", "key", "update"]),
            c.clone().accept(&["for", "key", "share"]),
        );
        if !no_key && !key {
            out.push(token.clone());
            c.next();
            continue;
        }
        let words = if no_key { 4 } else { 3 };
        let Some(kind) = others.get(words - 2) else { break };
        for _ in 0..words {
            c.next();
        }
        let has_of = c.accept(&["of"]);
        let word = |value: &str, quote_style, keyword| {
            Token::Word(Word { value: value.to_owned(), quote_style, keyword })
        };
        out.push(token.clone());
        out.push(kind.clone());
        let mut add = |token| out.push(TokenWithSpan { token, span: kind.span });
        add(word("of", None, Keyword::OF));
        add(word(MARK, Some('"'), Keyword::NoKeyword));
        if has_of {
            add(Token::Period);
        }
    }
    out
}

/// Converts a clause parsed by sqlparser.
pub(crate) fn clause(lock: &ast::LockClause) -> Lock {
    let is_mark =
        |part: &ast::ObjectNamePart| part.as_ident().is_some_and(|name| name.value == MARK);
    let mut of = lock.of.clone();
    let is_marked = of.as_mut().is_some_and(|of| {
        let is_marked = of.0.first().is_some_and(is_mark);
        of.0.retain(|part| !is_mark(part));
        is_marked
    });
    let (name, kind) = match (&lock.lock_type, is_marked) {
        (ast::LockType::Update, false) => ("FOR UPDATE", RowLock::Update),
        (ast::LockType::Update, true) => ("FOR NO KEY UPDATE", RowLock::NoKeyUpdate),
        (ast::LockType::Share, false) => ("FOR SHARE", RowLock::Share),
        (ast::LockType::Share, true) => ("FOR KEY SHARE", RowLock::KeyShare),
    };
    let wait = match lock.nonblock {
        None => LockWait::Wait,
        Some(ast::NonBlock::SkipLocked) => LockWait::Skip,
        Some(ast::NonBlock::Nowait) => LockWait::Fail,
    };
    Lock { name, kind, wait, of: of.filter(|of| !of.0.is_empty()) }
}

/// Combines several clauses for one table.
///
/// Source: PostgreSQL's `applyLockingClause`.
pub(crate) fn combined(locks: &[Lock]) -> Option<RowLocking> {
    let kind = locks.iter().map(|lock| lock.kind).max()?;
    let wait = locks.iter().map(|lock| lock.wait).max()?;
    Some(RowLocking { wait, ..RowLocking::of(kind) })
}

/// Returns the lock for a query that reads these expressions. FOR KEY SHARE lets other transactions
/// change columns outside every key, so it is used only for queries that read no other columns.
pub(crate) fn taken<'e>(
    lock: RowLocking,
    table: &TableDef,
    read: impl Iterator<Item = &'e Expr>,
) -> RowLocking {
    let mut only_keys = true;
    read.for_each(|e| {
        walk(e, &mut |e| only_keys &= !matches!(e, Expr::Column(c) if !table.is_in_key(*c)))
    });
    let least = if only_keys { RowLock::KeyShare } else { RowLock::Share };
    RowLocking { taken: lock.asked.max(least), ..lock }
}
