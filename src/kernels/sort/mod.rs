//! Ops that sort, select, count and search.
//!
//! The building blocks serve other families too: [`scan`] (device-wide prefix sums, compaction), [`radix`] (the stable sort of
//! pairs), [`keys`] (elements of any type as sortable words) and [`buckets`] (positions grouped by a small number).

pub mod buckets;
mod count;
mod in_top_k;
pub mod keys;
mod nonzero;
mod partition;
pub mod radix;
pub mod ragged;
pub mod scan;
mod search;
mod suppress;
mod top_k;
mod unique;

use super::op::OpContext;
use super::registry::{Registry, WAITS_FOR_SIZE};
use crate::error::Result;
use crate::shader::Shader;

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    registry.op("Where").types("T", scan::SELECTED).note(WAITS_FOR_SIZE).kernel(|_| Ok(nonzero::nonzero as Compute));
    count::register(registry);
    in_top_k::register(registry);
    partition::register(registry);
    ragged::register(registry);
    search::register(registry);
    suppress::register(registry);
    top_k::register(registry);
    unique::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let files: [fn() -> Vec<Shader>; 11] = [
        scan::shaders,
        radix::shaders,
        keys::shaders,
        buckets::shaders,
        count::shaders,
        in_top_k::shaders,
        ragged::shaders,
        search::shaders,
        suppress::shaders,
        top_k::shaders,
        unique::shaders,
    ];
    files.into_iter().flat_map(|shaders| shaders()).collect()
}
