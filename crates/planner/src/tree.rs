//! Visits and rebuilds bound expressions.

use crate::error::too_deep;
use clearway_ir::Expr;
use clearway_ir::expr::SwitchArm;
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

/// Rebuilds the expression. `change` may replace a node; its children are then not visited.
pub(crate) fn rewrite(
    e: &Expr,
    change: &mut dyn FnMut(&Expr) -> SqlResult<Option<Expr>>,
) -> SqlResult<Expr> {
    if let Some(new) = change(e)? {
        return Ok(new);
    }
    let mut sub = |e: &Expr| rewrite(e, change);
    Ok(match e {
        Expr::Literal(_) | Expr::Param(_) | Expr::Column(_) => e.clone(),
        Expr::Unary(op, a) => Expr::Unary(*op, Box::new(sub(a)?)),
        Expr::IsNull(a) => Expr::IsNull(Box::new(sub(a)?)),
        Expr::Cast { expr, to, explicit } => {
            Expr::Cast { expr: Box::new(sub(expr)?), to: *to, explicit: *explicit }
        }
        Expr::Binary(op, a, b) => Expr::Binary(*op, Box::new(sub(a)?), Box::new(sub(b)?)),
        Expr::Like { expr, pattern, insensitive } => Expr::Like {
            expr: Box::new(sub(expr)?),
            pattern: Box::new(sub(pattern)?),
            insensitive: *insensitive,
        },
        Expr::InList(a, list) => {
            Expr::InList(Box::new(sub(a)?), list.iter().map(&mut sub).collect::<SqlResult<_>>()?)
        }
        Expr::Case(arms, last) => {
            let arms =
                arms.iter().map(|(w, t)| Ok((sub(w)?, sub(t)?))).collect::<SqlResult<_>>()?;
            Expr::Case(arms, last.as_ref().map(|e| sub(e).map(Box::new)).transpose()?)
        }
        Expr::Switch { operand, arms, otherwise } => {
            let operand = Box::new(sub(operand)?);
            let mut arm = |arm: &SwitchArm| -> SqlResult<SwitchArm> {
                Ok(SwitchArm { to: arm.to, value: sub(&arm.value)?, then: sub(&arm.then)? })
            };
            let arms = arms.iter().map(&mut arm).collect::<SqlResult<_>>()?;
            let otherwise = otherwise.as_ref().map(|e| sub(e).map(Box::new)).transpose()?;
            Expr::Switch { operand, arms, otherwise }
        }
        Expr::Func(f, args) => Expr::Func(*f, args.iter().map(&mut sub).collect::<SqlResult<_>>()?),
    })
}
