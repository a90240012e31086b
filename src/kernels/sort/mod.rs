//! Ops that sort, select, count and search.
//!
//! The building blocks serve other families too: [`scan`] (device-wide prefix sums, compaction), [`radix`] (the stable sort of
//! pairs), [`keys`] (elements of any type as sortable words) and [`buckets`] (positions grouped by a small number).

pub mod buckets;
pub mod keys;
mod nonzero;
mod partition;
pub mod radix;
pub mod scan;
mod top_k;
mod unique;

use super::op::OpContext;
use super::registry::Registry;
use crate::error::Result;
use crate::shader::Shader;

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    registry.op("Where").types("T", scan::SELECTED).kernel(|_| Ok(nonzero::nonzero as Compute));
    partition::register(registry);
    top_k::register(registry);
    unique::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [scan::shaders, radix::shaders, keys::shaders, buckets::shaders, top_k::shaders, unique::shaders]
        .into_iter()
        .flat_map(|f| f())
        .collect()
}
