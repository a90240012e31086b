//! Results of few columns: an invocation computes four, of which a narrow result leaves most
//! without work. The transpose is wide: `c^T = b^T a^T`, where operands and result change places
//! and nothing is moved.

use super::{Contraction, Lines, Rows, Store};

/// Columns of an invocation.
const WIDE: usize = 4;

/// The transposed contraction, where its lanes have more to do.
pub(super) fn transposed<'a>(c: &Contraction<'a>) -> Option<Contraction<'a>> {
    let (Rows::Dense { stride }, Lines::Dense, Store::Rows(line)) = (c.rows, c.lines, c.store)
    else {
        return None;
    };
    if c.batch.len() != 1 || c.outer != 1 || c.n >= WIDE || c.m < WIDE {
        return None;
    }
    let mut turned = c.clone();
    (turned.m, turned.n) = (c.n, c.m);
    (turned.a, turned.b) = (c.b, c.a);
    (turned.rows, turned.a_step, turned.a_matrix) =
        (Rows::Dense { stride: c.b_column }, c.b_step, c.b_matrix);
    (turned.b_column, turned.b_step, turned.b_matrix) = (stride, c.a_step, c.a_matrix);
    turned.store = Store::Columns(line);
    turned.conjugated = [c.conjugated[1], c.conjugated[0]];
    Some(turned)
}
