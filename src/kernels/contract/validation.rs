//! When cooperative matrices are used: for f16, where the adapter lists them, and after products
//! with known results came out right. A driver whose programs do not compile, or that computes
//! something else, gets the other tiles from then on.

use super::choice::Choice;
use super::tile::Tile;
use super::{Contraction, Lines, Rows, Store, chosen, tables};
use crate::device::{Cooperative, Means};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::layout::Iteration;
use crate::tensor::HostTensor;

/// What `device` may use for operands of these types. The first call tries it.
pub(super) fn usable(ctx: &mut dyn OpContext, a: DType, b: DType) -> Option<Cooperative> {
    if [a, b] != [DType::F16; 2] {
        return None;
    }
    let offered = ctx.device().capabilities().cooperative?;
    let verdict = ctx.device().cooperative_matrices().verdict();
    // What went wrong before is not what is tried.
    if let (None, Err(e)) = (verdict, ctx.device().check()) {
        ctx.device().raise(e);
        return None;
    }
    let trusted = verdict.unwrap_or_else(|| {
        match check(ctx, offered) {
            Ok(()) => ctx.device().cooperative_matrices().confirm(),
            Err(e) => chosen::refuse(ctx.device(), &e),
        }
        ctx.device().cooperative_matrices().verdict() == Some(true)
    });
    trusted.then_some(offered)
}

/// Products whose sums are whole numbers, with each tile, in two orientations and with edges in all
/// directions.
fn check(ctx: &mut dyn OpContext, offered: Cooperative) -> Result<()> {
    let memory = ctx.device().capabilities().workgroup_memory;
    // Emulated operands are f32, which takes more memory than the largest tile may.
    let fits = |t: &&Tile| {
        t.workgroup_memory() <= memory && (offered.means == Means::Adapter || t.m() <= 64)
    };
    let tiles: Vec<_> = tables::cooperative(offered.edge).filter(fits).collect();
    if tiles.is_empty() {
        return Err(Error::Unimplemented(format!(
            "{memory} bytes of workgroup memory are too few for any tile"
        )));
    }
    for tile in tiles {
        for by_rows in [false, true] {
            check_tile(ctx, offered, tile, by_rows)?;
        }
    }
    Ok(())
}

/// One product of a[m][k] and b[k][n], or of a[k][m] and b[n][k].
fn check_tile(
    ctx: &mut dyn OpContext,
    offered: Cooperative,
    tile: &'static Tile,
    turned: bool,
) -> Result<()> {
    let [m, k, n] = [tile.m() + 4, 76, tile.n() + 4];
    let (a_at, b_at) =
        (|i: usize, l: usize| (i * 5 + l * 3) % 9, |l: usize, j: usize| (l * 7 + j * 2) % 11);
    let value = |x: usize| x as f64 - 4.0;
    let pick = |rows: usize, columns: usize, f: &dyn Fn(usize, usize) -> usize| -> Vec<f64> {
        (0..rows * columns).map(|i| value(f(i / columns, i % columns))).collect()
    };
    let (a, b) = if turned {
        (pick(k, m, &|l, i| a_at(i, l)), pick(n, k, &|j, l| b_at(l, j)))
    } else {
        (pick(m, k, &a_at), pick(k, n, &b_at))
    };
    let mut upload = |values: &[f64]| -> Result<_> {
        let tensor = ctx.temp(DType::F16, &[values.len()])?;
        ctx.device().upload(
            tensor.address,
            &HostTensor::floats(DType::F16, &[values.len()], values).bytes,
        )?;
        Ok(tensor)
    };
    let (a, b) = (upload(&a)?, upload(&b)?);
    let c = ctx.temp(DType::F32, &[m, n])?;
    let (rows, a_step) = if turned { (1, m) } else { (k, 1) };
    let (b_step, b_column) = if turned { (1, k) } else { (n, 1) };
    let contraction = Contraction {
        m,
        n,
        outer: 1,
        inner: k,
        batch: Iteration::over(&[1]).broadcast(&[1]).broadcast(&[1]).broadcast(&[1]),
        a,
        rows: Rows::Dense { stride: rows },
        a_step,
        a_matrix: 0,
        b,
        lines: Lines::Dense,
        b_step,
        b_column,
        b_matrix: 0,
        c: c.clone(),
        store: Store::Rows(n),
        c_matrix: 0,
        conjugated: [false; 2],
    };
    let choice = Choice { tile, split_k: 1 };
    chosen::enqueue(&contraction, ctx, choice, Some(offered), None)?;
    let mut bytes = vec![0; m * n * 4];
    ctx.device().download(c.address, &mut bytes)?;
    let got: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|l| value(a_at(i, l)) * value(b_at(l, j))).sum();
            let got = f64::from(got[i * n + j]);
            let near = (got - want).abs() < 0.5;
            // NaN is near nothing.
            if !near {
                return Err(Error::Internal(format!(
                    "an element of a test product is {got}, not {want}"
                )));
            }
        }
    }
    Ok(())
}
