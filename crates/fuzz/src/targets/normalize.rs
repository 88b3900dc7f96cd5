//! The plan cache's normaliser. A normalised text with its literals put back has the plan of the
//! original text. A plan from the cache describes and returns the same as the text's own plan.

use super::common::{catalog, same, session, text};
use super::expr::{evaluate, plan};
use clearway_ir::Statement;
use clearway_planner::{Normalized, PlanCache, normalize};
use clearway_types::Datum;

pub(super) fn run(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Some(normalized) = normalize(text) else { return };
    let own = plan(text);
    let restored = restore(&normalized);
    match (&own, plan(&restored)) {
        (Ok(own), Ok(again)) => {
            assert_eq!(format!("{own:?}"), format!("{again:?}"), "{text:?} and {restored:?}")
        }
        (Err(own), Err(again)) => {
            assert_eq!(own.state(), again.state(), "{text:?} and {restored:?}")
        }
        (own, again) => panic!("{text:?} gives {own:?}, but {restored:?} gives {again:?}"),
    }
    let Some((cached, params)) = PlanCache::new().get_or_plan(text, catalog(), session()) else {
        return;
    };
    let own = own.unwrap_or_else(|error| {
        panic!("{text:?} has a plan in the cache, but by itself: {error:?}")
    });
    assert_eq!(cached.columns, own.columns, "{text:?}");
    let (Statement::Query(cached), Statement::Query(own)) = (&cached.statement, &own.statement)
    else {
        let kinds = [&cached.statement, &own.statement].map(std::mem::discriminant);
        assert_eq!(kinds[0], kinds[1], "{text:?}");
        return;
    };
    match (evaluate(cached, params), evaluate(own, Vec::new())) {
        (Some(Ok(a)), Some(Ok(b))) => {
            let equal = a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| same(a, b));
            assert!(equal && a.len() == b.len(), "{text:?}: cached {a:?}, by itself {b:?}");
        }
        (Some(Err(a)), Some(Err(b))) => assert_eq!(a.state(), b.state(), "{text:?}"),
        (None, None) => {}
        (a, b) => panic!("{text:?}: cached {a:?}, by itself {b:?}"),
    }
}

/// Returns the text with its literals in place of the parameters. A dollar sign in a name or
/// between quotes is not a parameter.
fn restore(n: &Normalized) -> String {
    let mut out = String::new();
    let mut rest = n.text();
    let (mut quote, mut before) = (None, ' ');
    while let Some(c) = rest.chars().next() {
        let digits = rest[c.len_utf8()..].bytes().take_while(u8::is_ascii_digit).count();
        let in_name = before.is_alphanumeric() || matches!(before, '_' | '$');
        let number = rest.get(1..=digits).and_then(|digits| digits.parse::<usize>().ok());
        if c == '$' && quote.is_none() && !in_name {
            let literal = number.and_then(|number| n.literals.get(number.wrapping_sub(1)));
            push(&mut out, literal.unwrap_or_else(|| panic!("{:?} has no such literal", n.key)));
            rest = &rest[1 + digits..];
            before = '0';
            continue;
        }
        match quote {
            Some(open) if open == c => quote = None,
            None if matches!(c, '\'' | '"') => quote = Some(c),
            _ => {}
        }
        out.push(c);
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    out
}

fn push(out: &mut String, literal: &Datum) {
    match literal {
        Datum::Text(text) => {
            out.push('\'');
            out.push_str(&text.replace('\'', "''"));
            out.push('\'');
        }
        Datum::Int4(v) => out.push_str(&v.to_string()),
        Datum::Int8(v) => out.push_str(&v.to_string()),
        Datum::Float8(v) => out.push_str(&format!("{v:e}")),
        // The decimal point makes it a numeric, not an integer.
        Datum::Numeric(v) if v.scale() == 0 => out.push_str(&format!("{v}.")),
        Datum::Numeric(v) => out.push_str(&v.to_string()),
        other => panic!("{other:?} is no literal"),
    }
}
