//! Results of few columns: an invocation computes four columns, and most of them do no work for a
//! narrow result. The transpose is wide: `c^T = b^T a^T`, where the operands change places and no
//! data is moved.

use super::{Contraction, Lines, Rows, Store};

/// Columns of an invocation.
const WIDE: usize = 4;

/// The contraction, or its transpose if that gives lanes more to do.
pub(super) fn widened(mut c: Contraction) -> Contraction {
    let (Rows::Dense { stride }, Lines::Dense, Store::Rows(line)) = (&c.rows, c.lines, c.store)
    else {
        return c;
    };
    if c.batch.len() != 1 || c.outer != 1 || c.n >= WIDE || c.m < WIDE {
        return c;
    }
    let a_row = *stride;
    c.rows = Rows::Dense { stride: c.b_column };
    c.b_column = a_row;
    std::mem::swap(&mut c.m, &mut c.n);
    std::mem::swap(&mut c.a, &mut c.b);
    std::mem::swap(&mut c.a_step, &mut c.b_step);
    std::mem::swap(&mut c.a_matrix, &mut c.b_matrix);
    c.store = Store::Columns(line);
    c.conjugated.reverse();
    c
}
