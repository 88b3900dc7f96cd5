//! A client's stream of messages: framed, decoded, and executed as far as possible without an
//! engine. Parse is planned. Values of Bind have the types of the last parsed statement, those of
//! COPY the types of one table.

use super::common::{catalog, check_wire_forms, session};
use clearway_ir::Plan;
use clearway_types::{SqlResult, SqlType};
use clearway_wire::frontend::{Bind, Frontend, Oids, expected_len, frame, is_known};
use clearway_wire::row::parameter;

/// Maximum length of a message in the stream.
const MAX: usize = 1 << 20;

pub(super) fn run(data: &[u8]) {
    let mut rest = data;
    let mut plan = None;
    while let Ok(Some(found)) = frame(rest, MAX) {
        assert!((5..=rest.len()).contains(&found.len) && expected_len(rest) == found.len);
        assert_eq!(frame(&rest[..found.len], MAX).expect("the same frame"), Some(found));
        assert_eq!(frame(&rest[..found.len - 1], MAX).expect("not an error either"), None);
        let (message, tail) = rest.split_at(found.len);
        if let Ok(decoded) = Frontend::decode(found.tag, &message[5..]) {
            assert!(is_known(found.tag));
            look(&decoded, &mut plan);
        }
        rest = tail;
    }
}

fn look(message: &Frontend<'_>, plan: &mut Option<Plan>) {
    match message {
        Frontend::Query(sql) => {
            let _ = parse(sql, Oids::default());
        }
        Frontend::Parse { sql, types, .. } => *plan = parse(sql, *types).ok().flatten(),
        Frontend::Bind(bind) => {
            let _ = check_bind(bind, plan.as_ref());
        }
        _ => {}
    }
}

fn parse(sql: &str, types: Oids<'_>) -> SqlResult<Option<Plan>> {
    let types: Vec<SqlType> =
        types.iter().map(|oid| SqlType::from_oid(oid).unwrap_or(SqlType::Unknown)).collect();
    let statements = clearway_planner::parse(sql)?;
    let [statement] = &statements[..] else { return Ok(None) };
    clearway_planner::plan(statement, catalog(), &types, session()).map(Some)
}

fn check_bind(bind: &Bind<'_>, plan: Option<&Plan>) -> SqlResult<()> {
    let mut bind = *bind;
    let (formats, count) = (bind.formats()?, bind.count()?);
    for i in 0..count {
        let ty = plan.and_then(|plan| plan.params.get(i)).copied().unwrap_or(SqlType::Text);
        if let Ok(value) = parameter(ty, formats.get(i)?, bind.value()?, &session().zone, i + 1) {
            check_wire_forms(ty, &value);
        }
    }
    let results = bind.formats()?;
    let _ = (results.len(), results.get(0), results.get(usize::MAX));
    bind.end()
}
