//! Ops that sort, select, count and search.
//!
//! The building blocks serve other families too: [`scan`] (device-wide prefix sums), [`radix`] (the
//! stable sort of pairs), [`keys`] (elements of any type as sortable words) and [`buckets`]
//! (positions grouped by a small number).

pub mod buckets;
mod in_top_k;
pub mod keys;
mod nonzero;
mod partition;
mod proposals;
pub mod radix;
pub mod scan;
pub(crate) mod search;
mod suppress;
mod suppress_classes;
mod top_k;
mod tournament;
mod unique;
mod unique_sorted;

use super::op::OpContext;
use super::registry::Registry;
use crate::error::Result;
use crate::shader::Shader;

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    in_top_k::register(registry);
    nonzero::register(registry);
    partition::register(registry);
    proposals::register(registry);
    search::register(registry);
    suppress::register(registry);
    suppress_classes::register(registry);
    top_k::register(registry);
    unique::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let files: [fn() -> Vec<Shader>; 14] = [
        scan::shaders,
        radix::shaders,
        keys::shaders,
        buckets::shaders,
        in_top_k::shaders,
        nonzero::shaders,
        proposals::shaders,
        search::shaders,
        suppress::shaders,
        suppress_classes::shaders,
        top_k::shaders,
        tournament::shaders,
        unique::shaders,
        unique_sorted::shaders,
    ];
    files.into_iter().flat_map(|shaders| shaders()).collect()
}
