//! Cooperative matrices that are not square, which WGSL cannot name.
//!
//! naga's WGSL knows only `coop_mat8x8` and `coop_mat16x16`, while its modules, its validator and
//! its writers know the rows and the columns of each matrix. So a text names square matrices in
//! place of others, and its module gets the right ones.

use naga::{CooperativeRole, CooperativeSize, Expression, Module, TypeInner};

/// The columns and rows of the matrix of a role in a product of `m` by `k` times `k` by `n`.
fn extents(
    [m, n, k]: [CooperativeSize; 3],
    role: CooperativeRole,
) -> (CooperativeSize, CooperativeSize) {
    match role {
        CooperativeRole::A => (k, m),
        CooperativeRole::B => (n, k),
        CooperativeRole::C => (n, m),
    }
}

/// Gives all matrices of `module` the sizes that they have in a product with these extents: m, n,
/// k.
pub(super) fn resize(module: &mut Module, size: [u32; 3]) {
    let size =
        size.map(|n| if n == 16 { CooperativeSize::Sixteen } else { CooperativeSize::Eight });
    let changed: Vec<_> = module
        .types
        .iter()
        .filter_map(|(handle, ty)| {
            let TypeInner::CooperativeMatrix { columns, rows, scalar, role } = ty.inner else {
                return None;
            };
            let (own_columns, own_rows) = extents(size, role);
            let inner =
                TypeInner::CooperativeMatrix { columns: own_columns, rows: own_rows, scalar, role };
            let is_new = (columns, rows) != (own_columns, own_rows);
            is_new.then(|| (handle, naga::Type { name: ty.name.clone(), inner }))
        })
        .collect();
    for (handle, ty) in changed {
        module.types.replace(handle, ty);
    }
    let functions = module
        .functions
        .iter_mut()
        .map(|(_, function)| function)
        .chain(module.entry_points.iter_mut().map(|entry| &mut entry.function));
    for function in functions {
        for (_, expression) in function.expressions.iter_mut() {
            if let Expression::CooperativeLoad { columns, rows, role, .. } = expression {
                (*columns, *rows) = extents(size, *role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::shader::Shader;

    const BODY: &str = "
alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;

var<workgroup> halves: array<f16, 512>;
var<workgroup> sums: array<f32, 256>;

{{ENTRY}} {
    let a = coopLoadT<MatrixA>(&halves[0], 16u);
    let b = coopLoadT<MatrixB>(&halves[256], 16u);
    var c = coopLoadT<MatrixC>(&sums[0], 16u);
    c = coopMultiplyAdd(a, b, c);
    coopStoreT(c, &sums[0], 16u);
}
";

    /// Rows, columns and use of each matrix type in SPIR-V, sorted.
    fn spirv_types(size: [u32; 3]) -> Vec<[u32; 3]> {
        use naga::back::spv;
        use naga::valid::{Capabilities, ShaderStages, ValidationFlags, Validator};
        let shader = Shader::new("matrices")
            .enable("f16")
            .enable("wgpu_cooperative_matrix")
            .matrices(size)
            .u32s(&["count"])
            .body(BODY);
        let module = shader.module(128).unwrap();
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        validator.subgroup_stages(ShaderStages::COMPUTE);
        let info = validator.validate(&module).unwrap();
        let options = spv::Options { lang_version: (1, 3), ..Default::default() };
        let words = spv::write_vec(&module, &info, &options, None).unwrap();
        let (mut constants, mut types) = (std::collections::HashMap::new(), Vec::new());
        let mut at = 5;
        while at < words.len() {
            let operands = &words[at + 1..at + (words[at] >> 16) as usize];
            match words[at] & 0xffff {
                // OpConstant, OpTypeCooperativeMatrixKHR.
                43 => drop(constants.insert(operands[1], operands[2])),
                4456 => types.push([3, 4, 5].map(|i| operands[i])),
                _ => {}
            }
            at += 1 + operands.len();
        }
        let mut types: Vec<_> = types.into_iter().map(|t| t.map(|id| constants[&id])).collect();
        types.sort_by_key(|t| t[2]);
        types.dedup();
        types
    }

    #[test]
    fn drivers_see_matrices_of_all_sizes() {
        for m in [8, 16] {
            for n in [8, 16] {
                for k in [8, 16] {
                    let want = [[m, k, 0], [k, n, 1], [m, n, 2]];
                    assert_eq!(spirv_types([m, n, k]), want, "{m}x{n}x{k}");
                }
            }
        }
    }
}
