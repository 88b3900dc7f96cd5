//! EXPLAIN: the plan as an indented tree, with the last step on top.

use clearway_ir::program::Group;
use clearway_ir::show::{Constants, Printer};
use clearway_ir::statement::{Finish, Insert, Query, Route, SortKey, Source};
use clearway_ir::{Access, Distribution, Expr, OnConflict, Path, Program, Statement, TableDef};
use clearway_types::{SqlError, SqlResult};

/// Returns the lines that EXPLAIN prints.
pub(crate) fn lines(s: &Statement) -> SqlResult<Vec<String>> {
    let mut out = Vec::new();
    match s {
        Statement::Query(q) => query(q, 0, &mut out),
        Statement::Insert(i) => insert(i, &mut out),
        Statement::Modify { program, route } => program_lines(program, route, 0, &mut out),
        _ => {
            return Err(SqlError::unsupported(
                "EXPLAIN of a statement other than SELECT, INSERT, UPDATE, DELETE or VALUES",
            ));
        }
    }
    Ok(out)
}

fn line(depth: usize, text: String, out: &mut Vec<String>) {
    out.push(if depth == 0 { text } else { format!("{}->  {text}", "  ".repeat(depth * 2 - 1)) });
}

fn note(depth: usize, text: String, out: &mut Vec<String>) {
    out.push(format!("{}{text}", "  ".repeat(depth * 2 + 1)));
}

fn insert(i: &Insert, out: &mut Vec<String>) {
    line(0, format!("Insert on {}", i.table.name), out);
    if let Program::Insert { on_conflict, .. } = &*i.program
        && *on_conflict != OnConflict::Fail
    {
        note(0, "Conflict Resolution: NOTHING".to_owned(), out);
        if let OnConflict::IgnoreKey(key) = on_conflict {
            note(0, format!("Conflict Arbiter Indexes: {}", i.table.unique_key(*key).0), out);
        }
    }
    global_indexes(&i.table, 0, out);
    query(&i.source, 1, out);
}

/// Adds the global indexes that the statement changes besides the rows.
fn global_indexes(table: &TableDef, depth: usize, out: &mut Vec<String>) {
    let names: Vec<&str> = table.global_indexes().map(|g| g.name).collect();
    if !names.is_empty() {
        note(depth, format!("Global indexes: {}", names.join(", ")), out);
    }
}

fn query(q: &Query, depth: usize, out: &mut Vec<String>) {
    let mut depth = depth;
    for step in q.finish.iter().rev() {
        let text = match step {
            Finish::Filter(e) => format!("Filter: {}", show(e, None)),
            Finish::Merge(g) => format!("Merge {}", group(g, None)),
            Finish::Aggregate { keys, aggregates } => {
                group(&Group { keys: keys.clone(), aggregates: aggregates.clone() }, None)
            }
            Finish::Project(_) => continue,
            Finish::Distinct => "Unique".to_owned(),
            Finish::Sort(keys) => format!("Sort: {}", list(keys, sort_key)),
            Finish::Limit { limit, offset } => {
                let part = |name: &str, e: &Option<Expr>| {
                    e.as_ref().map(|e| format!("{name} {}", show(e, None)))
                };
                let parts: Vec<String> =
                    [part("Limit", limit), part("Offset", offset)].into_iter().flatten().collect();
                parts.join(", ")
            }
        };
        line(depth, text, out);
        depth += 1;
    }
    if let Some(once) = &q.once {
        line(depth, format!("One-Time Filter: {}", show(once, None)), out);
        depth += 1;
    }
    match &q.source {
        Source::Rows(rows) if rows.len() == 1 => line(depth, "Result".to_owned(), out),
        Source::Rows(rows) => line(depth, format!("Values: {} rows", rows.len()), out),
        Source::Series { start, stop, .. } => {
            let text = format!(
                "Function Scan on generate_series from {} to {}",
                show(start, None),
                show(stop, None)
            );
            line(depth, text, out);
        }
        Source::View(view) => line(depth, format!("System View Scan on {}", view.name()), out),
        Source::ExportSnapshot => line(depth, "Result".to_owned(), out),
        Source::SetScheme { .. } => line(depth, "Call of clearway.set_scheme".to_owned(), out),
        Source::ResetContention => line(depth, "Call of clearway.reset_contention".to_owned(), out),
        Source::Table { program, route } => program_lines(program, route, depth, out),
    }
}

fn program_lines(p: &Program, route: &Route, depth: usize, out: &mut Vec<String>) {
    let (access, mut depth) = match p {
        Program::Scan { access, group: Some(g), .. } => {
            line(depth, format!("Partial {}", group(g, Some(&access.table))), out);
            (access, depth + 1)
        }
        Program::Scan { access, limit: Some(limit), .. } => {
            line(depth, format!("Limit {} in each partition", show(limit, None)), out);
            (access, depth + 1)
        }
        Program::Scan { access, .. } => (access, depth),
        Program::Update { access, set, moves, .. } => {
            let placed = |by: &[usize]| set.iter().any(|(c, _)| by.contains(c));
            let may_move =
                matches!(&access.table.distribution, Distribution::Hash(by) if placed(by));
            let how = if may_move { " (may move rows to other partitions)" } else { "" };
            line(depth, format!("Update on {}{how}", access.table.name), out);
            if *moves {
                global_indexes(&access.table, depth, out);
            }
            (access, depth + 1)
        }
        Program::Delete { access, .. } => {
            line(depth, format!("Delete on {}", access.table.name), out);
            global_indexes(&access.table, depth, out);
            (access, depth + 1)
        }
        Program::Insert { table, .. }
        | Program::BuildIndex { table, .. }
        | Program::GlobalIndex { table, .. } => {
            return line(depth, format!("Insert on {}", table.name), out);
        }
    };
    if access.lock.is_some() && matches!(p, Program::Scan { .. }) {
        line(depth, "Lock Rows".to_owned(), out);
        depth += 1;
    }
    access_lines(access, route, depth, out);
}

fn access_lines(a: &Access, route: &Route, depth: usize, out: &mut Vec<String>) {
    let table = &a.table;
    let name = &table.name;
    let pk = &table.primary_key_name;
    let how = match &a.path {
        Path::Full => format!("Seq Scan on {name}"),
        Path::Point(_) => format!("Point Lookup using {pk} on {name}"),
        Path::Points(_) => format!("Point Lookups using {pk} on {name}"),
        Path::Range { index, reverse, .. } => {
            let backward = if *reverse { " Backward" } else { "" };
            let of = index.map_or(pk, |i| &table.indexes[i].name);
            format!("Index Scan{backward} using {of} on {name}")
        }
    };
    line(depth, how, out);
    let key = printer(Some(table)).key(a);
    if !key.is_empty() {
        note(depth, format!("Key: {}", key.join(" AND ")), out);
    }
    if let Some(f) = &a.filter {
        note(depth, format!("Filter: {}", show(f, Some(table))), out);
    }
    match route {
        Route::All => note(depth, "Partitions: all".to_owned(), out),
        Route::GlobalIndex { table, key, values } => {
            let (name, _) = table.unique_key(*key);
            let values = printer(Some(table)).list(values);
            note(depth, format!("Partitions: one, by global index {name}({values})"), out);
        }
        Route::Hash(keys) => {
            note(
                depth,
                format!("Partitions: one, by hash({})", printer(Some(table)).list(keys)),
                out,
            );
        }
    }
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn sort_key(k: &SortKey) -> String {
    let direction = if k.descending { " DESC" } else { "" };
    let nulls = match (k.descending, k.nulls_first) {
        (true, false) => " NULLS LAST",
        (false, true) => " NULLS FIRST",
        _ => "",
    };
    format!("{}{direction}{nulls}", show(&k.expr, None))
}

fn group(g: &Group, table: Option<&TableDef>) -> String {
    let aggregates = list(&g.aggregates, |a| printer(table).aggregate(a));
    if g.keys.is_empty() {
        return format!("Aggregate: {aggregates}");
    }
    format!("Group by {}: {aggregates}", printer(table).list(&g.keys))
}

fn show(e: &Expr, table: Option<&TableDef>) -> String {
    printer(table).expr(e)
}

fn printer(table: Option<&TableDef>) -> Printer<'_> {
    Printer { table, constants: Constants::Shown }
}
