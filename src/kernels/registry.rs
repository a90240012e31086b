//! The ops that the device offers: one list, which the kernel families fill and which registration,
//! docs and tests read.

use std::sync::Arc;

use crate::device::Capabilities;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::items::{Held, Items};
use crate::kernels::op::{Attrs, Kernel};
use crate::kernels::reference::Reference;

/// Note of a kernel whose output's size depends on values.
pub const WAITS_FOR_SIZE: &str = "waits for the device to learn its output's size";
/// Note of a kernel that refuses bad values by an error.
pub const WAITS_TO_CHECK: &str = "waits for the device to check its input";
/// Note of a kernel for tensors that TensorFlow keeps in host memory.
pub const ON_HOST: &str = "int32 runs on the host, where TensorFlow keeps it";
/// Note of a kernel that only moves values that TensorFlow keeps as C++ objects: TensorFlow's own
/// kernel does it, and its copies and fills run on the device.
pub const TENSORFLOWS: &str = "runs TensorFlow's own kernel; copies run on the device";

/// Makes the kernel of a node from its attributes.
pub type CreateKernel = Arc<dyn Fn(&dyn Attrs) -> Result<Box<dyn Kernel>> + Send + Sync>;

/// One kernel as TensorFlow registers it: an op with one type for each constrained attribute.
#[derive(Clone)]
pub struct Registration {
    /// The op's name, as in `"MatMul"`.
    pub op: &'static str,
    /// Type attributes, each with its type.
    pub types: Vec<(&'static str, DType)>,
    /// Arguments (inputs and outputs) that live in host memory.
    pub host_memory: &'static [&'static str],
    /// The feature of TensorFlow beyond its kernel API that the kernel needs.
    pub need: Option<Need>,
    /// Makes the kernel.
    pub create: CreateKernel,
    /// The family that offers it, for the docs: the name of its file.
    pub family: &'static str,
    /// A note for users on the host's part in it; empty if the host has none.
    pub note: &'static str,
}

/// A feature of the running TensorFlow beyond its kernel API that a kernel needs. Not every release
/// offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Reading and making values of type variant ([`crate::kernels::op::OpContext::add_variants`]
    /// and similar functions).
    Variants,
    /// A kernel of TensorFlow's own ([`Attrs::tensorflow_kernel`]).
    TensorFlowKernel,
    /// Changing reference variables ([`crate::kernels::op::OpContext::pass_reference`]).
    References,
}

/// Types of reference variables on a device: those for which TensorFlow has kernels of VariableV2
/// on pluggable devices.
const REFERENCED: [DType; 9] = [
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::I64,
    DType::U32,
    DType::Bool,
    DType::C64,
    DType::C128,
];

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} host {:?}", self.op, self.types, self.host_memory)
    }
}

/// The list, as the families fill it.
pub struct Registry {
    capabilities: Capabilities,
    family: &'static str,
    rows: Vec<Registration>,
}

impl Registry {
    /// All registrations for an adapter with `capabilities`.
    pub fn new(capabilities: Capabilities) -> Self {
        let mut registry = Self { capabilities, family: "", rows: Vec::new() };
        for family in super::FAMILIES {
            registry.family = family.name;
            (family.register)(&mut registry);
        }
        registry
    }

    /// Starts the description of one op; [`OpBuilder::kernel`] ends it.
    pub fn op(&mut self, op: &'static str) -> OpBuilder<'_> {
        OpBuilder {
            registry: self,
            op,
            types: Vec::new(),
            host_memory: &[],
            need: None,
            note: "",
            unsupported_too: false,
            reference: false,
            items: &[],
        }
    }

    /// The capabilities that the kernels are registered for.
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The registrations, in order.
    pub fn rows(&self) -> &[Registration] {
        &self.rows
    }

    /// The registration that serves `op` with these types, if any.
    pub fn find(
        &self,
        op: &str,
        dtype_of: impl Fn(&str) -> Option<DType>,
    ) -> Option<&Registration> {
        self.rows
            .iter()
            .find(|r| r.op == op && r.types.iter().all(|(n, t)| dtype_of(n) == Some(*t)))
    }
}

/// One op on its way into the [`Registry`].
pub struct OpBuilder<'r> {
    registry: &'r mut Registry,
    op: &'static str,
    types: Vec<(&'static str, &'static [DType])>,
    host_memory: &'static [&'static str],
    need: Option<Need>,
    note: &'static str,
    unsupported_too: bool,
    reference: bool,
    items: Held,
}

impl OpBuilder<'_> {
    /// The types that attribute `attr` may have. Types that the adapter lacks are left out.
    #[must_use]
    pub fn types(mut self, attr: &'static str, types: &'static [DType]) -> Self {
        self.types.push((attr, types));
        self
    }

    /// Names of the arguments in host memory.
    #[must_use]
    pub fn host(mut self, arguments: &'static [&'static str]) -> Self {
        self.host_memory = arguments;
        self
    }

    /// A note for the docs on the host's part, such as a kernel that waits for the device to learn
    /// its output's size.
    #[must_use]
    pub const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    /// The feature of TensorFlow that the kernel needs; without it the op is not registered.
    #[must_use]
    pub const fn need(mut self, need: Need) -> Self {
        self.need = Some(need);
        self
    }

    /// An op on reference variables that does the same as the kernel, and has the variable at input
    /// 0 as its output. Types for which TensorFlow makes no reference variables on a device are
    /// left out.
    #[must_use]
    pub const fn reference(mut self) -> Self {
        self.reference = true;
        self.need(Need::References)
    }

    /// The inputs that hold items that do not see each other, with an item's rank in each: where
    /// tensors exceed a binding, the kernel runs for some items at a time (see [`super::items`]).
    #[must_use]
    pub const fn items(mut self, held: Held) -> Self {
        self.items = held;
        self
    }

    /// Also registers types that the adapter lacks. For the few ops where TensorFlow would
    /// otherwise run a kernel that crashes; this kernel must refuse such types with an error.
    #[must_use]
    pub const fn unsupported_too(mut self) -> Self {
        self.unsupported_too = true;
        self
    }

    /// Registers the cross product of the types with this constructor.
    pub fn kernel<K, F>(self, create: F)
    where
        K: Kernel + 'static,
        F: Fn(&dyn Attrs) -> Result<K> + Send + Sync + 'static,
    {
        let (held, reference) = (self.items, self.reference);
        let create: CreateKernel = Arc::new(move |attrs| {
            let kernel = create(attrs)?;
            Ok(match (reference, held.is_empty()) {
                (true, _) => Box::new(Reference(kernel)),
                (false, true) => Box::new(kernel),
                (false, false) => Box::new(Items { kernel, held }),
            })
        });
        let mut rows = vec![Vec::new()];
        for (attr, types) in self.types {
            rows = rows
                .into_iter()
                .flat_map(|row: Vec<_>| {
                    types
                        .iter()
                        .map(move |t| row.iter().copied().chain([(attr, *t)]).collect::<Vec<_>>())
                })
                .collect();
        }
        let capabilities = self.registry.capabilities;
        if self.need == Some(Need::References) {
            rows.retain(|types| REFERENCED.contains(&types[0].1));
        }
        for types in rows {
            if self.unsupported_too || types.iter().all(|(_, t)| capabilities.supports(*t)) {
                self.registry.rows.push(Registration {
                    op: self.op,
                    types,
                    host_memory: self.host_memory,
                    need: self.need,
                    create: create.clone(),
                    family: self.registry.family,
                    note: self.note,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_kernel_is_registered_twice() {
        let registry = Registry::new(Capabilities::FULL);
        let mut seen = HashSet::new();
        for row in registry.rows() {
            let mut types = row.types.clone();
            types.sort_unstable();
            assert!(seen.insert((row.op, types)), "{row:?} is registered twice");
        }
    }
}
