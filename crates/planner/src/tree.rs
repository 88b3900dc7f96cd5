//! Visits bound expressions.

use crate::error::too_deep;
use clearway_ir::Expr;
use clearway_types::SqlResult;

/// Visits the expression and all its descendants.
pub(crate) fn walk(e: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(e);
    children(e, &mut |child| walk(child, visit));
}

/// Visits the expression's children.
fn children(e: &Expr, visit: &mut dyn FnMut(&Expr)) {
    match e {
        Expr::Literal(_) | Expr::Param(_) | Expr::Column(_) => {}
        Expr::Unary(_, a) | Expr::IsNull(a) | Expr::Cast { expr: a, .. } => visit(a),
        Expr::Binary(_, a, b) | Expr::Like { expr: a, pattern: b, .. } => {
            visit(a);
            visit(b);
        }
        Expr::InList(a, list) => {
            visit(a);
            list.iter().for_each(visit);
        }
        Expr::Case(arms, last) => {
            for (when, then) in arms {
                visit(when);
                visit(then);
            }
            if let Some(e) = last {
                visit(e);
            }
        }
        Expr::Switch { operand, arms, otherwise } => {
            visit(operand);
            for arm in arms {
                visit(&arm.value);
                visit(&arm.then);
            }
            if let Some(e) = otherwise {
                visit(e);
            }
        }
        Expr::Func(_, args) => args.iter().for_each(visit),
    }
}

/// Maximum nesting of an expression's JSON. The reader of the catalog, `serde_json`, allows 127
/// levels for a table's definition, which contains the expression.
const MAX_LEVELS: usize = 120;

/// Returns an expression that the catalog can store; 54001 if it is nested too deeply.
pub(crate) fn storable(e: Expr) -> SqlResult<Expr> {
    fn levels(e: &Expr) -> usize {
        // The longest way to a child, such as `{"Func":["Abs",[child]]}`.
        let own = match e {
            Expr::Case(..) | Expr::Switch { .. } => 4,
            Expr::InList(..) | Expr::Func(..) => 3,
            _ => 2,
        };
        let mut inside = 0;
        children(e, &mut |child| inside = inside.max(levels(child)));
        own + inside
    }
    if levels(&e) <= MAX_LEVELS {
        return Ok(e);
    }
    Err(too_deep().hint("A CHECK condition or a default may have about 50 operators in a row."))
}
