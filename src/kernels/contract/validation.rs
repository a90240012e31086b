//! When cooperative matrices are used: for the element types that the adapter lists, after products
//! with known results came out right, and where a [`probe`] finds them faster than the vector
//! units. A driver whose programs do not compile, or that computes wrong results, gets the other
//! tiles from then on.

use std::time::Instant;

use super::apart::Apart;
use super::choice::{self, Choice};
use super::probe::{self, Trial};
use super::tile::Tile;
use super::{Contraction, tables};
use crate::device::{Cooperative, Device, Finding, Means, Policy, Schedule, Verdict};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, Tensor};

/// Tries matrices on a device of their own.
pub(super) fn try_out(user: &Device, offered: Cooperative, policy: Policy) -> Finding {
    let name = &user.info().name;
    let device = match user.beside() {
        Ok(device) => device,
        Err(e) => {
            log::info!("{name}: cooperative matrices are not tried out: {e}");
            return Finding::Nothing;
        }
    };
    // Work of the user's device would count in the times. Its errors are those of the next call.
    let _ = user.may_wait().and_then(|()| user.wait_idle());
    let timed = user.matrix_units().are_timed();
    let mut lanes = vec![offered.lanes, offered.fewest_lanes];
    lanes.dedup();
    let tiles = tiles(&device, &offered);
    let mut own = Own { apart: Apart::on(device), offered, tiles, operands: None };
    let (finding, reason) = probe::finding(&mut own, &lanes, policy, timed);
    let Cooperative { size, element, .. } = offered;
    match (finding, reason) {
        (Finding::Lost | Finding::Verdict(Verdict::Wrong), Some(e)) => {
            log::warn!("{name}: cooperative matrices {size} of {element} are not used, since {e}")
        }
        (_, reason) => log::info!(
            "{name}: cooperative matrices {size} of {element}: {finding:?}{}",
            reason.map_or(String::new(), |e| format!(" ({e})"))
        ),
    }
    finding
}

/// A device on which they are tried, with the tiles that fit it.
struct Own {
    apart: Apart,
    offered: Cooperative,
    tiles: Vec<&'static Tile>,
    /// The operands and the result of the product that was timed last.
    operands: Option<(usize, [Tensor; 3])>,
}

/// The tiles whose programs fit the adapter.
fn tiles(device: &Device, offered: &Cooperative) -> Vec<&'static Tile> {
    let memory = device.capabilities().workgroup_memory;
    // Emulated operands are f32, which takes more memory than the largest tile may.
    let fits = |t: &&Tile| {
        t.workgroup_memory() <= memory && (offered.means == Means::Adapter || t.m() <= 64)
    };
    tables::cooperative(Some(*offered)).filter(fits).collect()
}

impl Trial for Own {
    /// Products whose sums are whole numbers, with each tile, in two orientations and with edges in
    /// all directions.
    fn check(&mut self, lanes: u32, product: usize) -> Result<Option<u64>> {
        if self.tiles.is_empty() {
            return Err(Error::Unimplemented("no tile fits the workgroup memory".into()));
        }
        let Some(tile) = self.tiles.get(product / 2).copied() else { return Ok(None) };
        let offered = Cooperative { lanes, ..self.offered };
        check_tile(&mut self.apart, offered, tile, product % 2 == 1).map(Some)
    }

    fn time(&mut self, n: usize, lanes: Option<u32>) -> Result<u64> {
        let operands = match self.operands.take() {
            Some((size, operands)) if size == n => operands,
            _ => self.operands(n)?,
        };
        let [a, b, c] = self.operands.insert((n, operands)).1.clone();
        let product = Contraction::product([n; 3], [&a, &b, &c]);
        let offered = lanes.map(|lanes| Cooperative { lanes, ..self.offered });
        let profile = self.apart.device().profile();
        let mut demand = product.demand(profile, offered);
        // A tile that a test forces must not take part in the comparison.
        demand.profile.tile = 0;
        let choice = match offered {
            None => choice::choose(&demand),
            Some(_) => choice::choose_among(&demand, &self.tiles),
        };
        // The matrix units are compared, not schedules.
        let choice = Choice { schedule: Schedule::DataParallel, ..choice };
        self.apart.time(product.programs(choice, offered, None, &profile)?)
    }
}

impl Own {
    /// Two square matrices, and room for their product.
    fn operands(&mut self, n: usize) -> Result<[Tensor; 3]> {
        let mut tensor = || self.apart.ones(self.offered.element, &[n, n]);
        Ok([tensor()?, tensor()?, tensor()?])
    }
}

/// Multiplies matrices whose products and sums come out differently in a narrower type. Returns the
/// nanoseconds from the last upload to the result on the host, once the program is compiled.
///
/// With f16, products have more than 11 bits and sums up to 18; with f32, operands have 13 bits,
/// which an f16, a bf16 or NVIDIA's TF32 would round, and sums at most 24.
fn check_tile(
    apart: &mut Apart,
    offered: Cooperative,
    tile: &'static Tile,
    transposed: bool,
) -> Result<u64> {
    let [m, k, n] = [tile.m() + 4, 76, tile.n() + 4];
    let wide = offered.element == DType::F32;
    let a_at = |i: usize, l: usize| ((i * 25 + l * 31) % 99) as f64 - 49.0;
    let b_at = |l: usize, j: usize| {
        let step = (l * 7 + j * 12) % 111;
        if wide { 4097.0 + step as f64 } else { step as f64 - 55.0 }
    };
    // Signs that change along k keep sums of wide products small.
    let b_at = |l: usize, j: usize| if wide && l % 2 == 1 { -b_at(l, j) } else { b_at(l, j) };
    let pick = |rows: usize, columns: usize, f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..rows * columns).map(|i| f(i / columns, i % columns)).collect()
    };
    let (a, b) = if transposed {
        (pick(k, m, &|l, i| a_at(i, l)), pick(n, k, &|j, l| b_at(l, j)))
    } else {
        (pick(m, k, &a_at), pick(k, n, &b_at))
    };
    let mut upload = |values: &[f64]| -> Result<_> {
        let tensor = apart.tensor(offered.element, &[values.len()])?;
        let host = HostTensor::floats(offered.element, &[values.len()], values);
        apart.device().upload(tensor.address, &host.bytes)?;
        Ok(tensor)
    };
    let (a, b) = (upload(&a)?, upload(&b)?);
    let c = apart.tensor(DType::F32, &[m, n])?;
    let product = Contraction::product([m, k, n], [&a, &b, &c]).transposed([transposed; 2]);
    let choice = Choice::of_tiles(tile, 1);
    let programs = product.programs(choice, Some(offered), None, &apart.device().profile())?;
    programs.prepare(apart.device())?;
    apart.device().synchronize()?;
    let start = Instant::now();
    apart.run(programs)?;
    let mut bytes = vec![0; m * n * 4];
    apart.device().download(c.address, &mut bytes)?;
    let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let got: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|l| a_at(i, l) * b_at(l, j)).sum();
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
    Ok(nanoseconds)
}
