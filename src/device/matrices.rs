//! The cooperative matrices of an adapter: the sizes and element types that its driver lists and
//! that programs are written for. This module does not know whether their results are right or
//! whether they are faster: see [`super::matrix_units`].

use std::fmt;

use crate::dtype::DType;

/// The means by which cooperative matrices are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// By the adapter.
    Adapter,
    /// By the invocations themselves: for tests.
    Emulation,
    /// Like [`Means::Emulation`], but as if a workgroup had two subgroups, fewer than there are
    /// blocks: for tests.
    TwoSubgroups,
    /// An emulation that omits the products of one step: for tests of the check that finds this.
    WrongEmulation,
    /// By text that does not compile: for tests.
    Nonsense,
}

/// The sizes of one multiplication: `m` by `k` times `k` by `n`. Each is 8 or 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixSize {
    /// Rows of the left matrix and of the sums.
    pub m: u32,
    /// Columns of the right matrix and of the sums.
    pub n: u32,
    /// Columns of the left matrix, rows of the right one.
    pub k: u32,
}

impl MatrixSize {
    /// A size that programs are written for.
    pub const fn new(m: u32, n: u32, k: u32) -> Self {
        Self { m, n, k }
    }

    /// All sizes that wgpu can express.
    pub const ALL: [Self; 8] = [
        Self::new(16, 16, 16),
        Self::new(16, 16, 8),
        Self::new(16, 8, 16),
        Self::new(8, 16, 16),
        Self::new(16, 8, 8),
        Self::new(8, 16, 8),
        Self::new(8, 8, 16),
        Self::new(8, 8, 8),
    ];

    /// Whether programs of this size are worth their registers. The size of Intel's Alchemist is
    /// not: wgpu cannot ask for the subgroups of 8 that its units need, so the driver uses 32, and
    /// its compiler (dg2, Mesa 25.0.7) spills 30 to 1,524 registers of every tile, down to 128 sums
    /// for a subgroup.
    const fn is_worth_it(self) -> bool {
        !(self.m == 8 && self.n == 8 && self.k == 16)
    }

    /// A number below 8, different for each size.
    pub const fn id(self) -> u32 {
        (self.m / 16) | (self.n / 16) << 1 | (self.k / 16) << 2
    }

    /// Whether all three matrices are square.
    pub const fn is_square(self) -> bool {
        self.m == self.n && self.n == self.k
    }

    /// The number of elements of the sums.
    pub const fn sums(self) -> u32 {
        self.m * self.n
    }
}

/// Prints it like `16x8x16`.
impl fmt::Display for MatrixSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}

/// Cooperative matrices of one element type, summed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooperative {
    /// The sizes of one multiplication.
    pub size: MatrixSize,
    /// The type of the operands: f16 or f32.
    pub element: DType,
    /// The number of invocations in a subgroup for which a program is cut. The program is correct
    /// with others, too.
    pub lanes: u32,
    /// The smallest number of invocations of a subgroup.
    pub fewest_lanes: u32,
    /// How they are multiplied.
    pub means: Means,
}

impl Cooperative {
    /// Matrices of f16 as on most GPUs, for documentation and checks.
    pub const F16: Self = Self {
        size: MatrixSize::new(16, 16, 16),
        element: DType::F16,
        lanes: 32,
        fewest_lanes: 32,
        means: Means::Adapter,
    };

    /// A number. Values with the same number have programs with the same text.
    pub const fn id(self) -> u32 {
        let wide = if matches!(self.element, DType::F32) { 1 << 3 } else { 0 };
        self.size.id() | wide | self.lanes << 8 | (self.means as u32) << 24
    }
}

/// The cooperative matrices of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrices {
    /// The matrices of f16.
    pub f16: Option<Cooperative>,
    /// The matrices of f32.
    pub f32: Option<Cooperative>,
}

/// Most invocations of a subgroup that are enough for blocks of matrices to be few.
const ENOUGH_LANES: u32 = 8;

impl Matrices {
    /// No matrices.
    pub const NONE: Self = Self { f16: None, f32: None };

    /// The features of wgpu that they need, besides f16 for matrices of f16.
    pub(crate) const FEATURES: wgpu::Features =
        wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SUBGROUP);

    /// The matrices that an adapter lists.
    pub(crate) fn of(adapter: &wgpu::Adapter) -> Self {
        if !adapter.features().contains(Self::FEATURES) {
            return Self::NONE;
        }
        let listed = Self::listed(&adapter.cooperative_matrix_properties(), &adapter.get_info());
        // A shader that names f16 needs a feature of its own.
        let has_f16 = adapter.features().contains(wgpu::Features::SHADER_F16);
        Self { f16: listed.f16.filter(|_| has_f16), ..listed }
    }

    /// For each element type, the largest matrices whose sums are f32. Saturation is for integers
    /// only.
    fn listed(properties: &[wgpu::CooperativeMatrixProperties], info: &wgpu::AdapterInfo) -> Self {
        use wgpu::CooperativeScalarType::{F16, F32};
        let of = |element, scalar| {
            let has = |size: &MatrixSize| {
                properties.iter().any(|p| {
                    [p.m_size, p.n_size, p.k_size] == [size.m, size.n, size.k]
                        && (p.ab_type, p.cr_type) == (scalar, F32)
                })
            };
            let size = MatrixSize::ALL.into_iter().filter(|s| s.is_worth_it()).find(has)?;
            Some(Cooperative {
                size,
                element,
                lanes: info.subgroup_max_size,
                fewest_lanes: info.subgroup_min_size.max(1),
                means: Means::Adapter,
            })
        };
        let enough = info.subgroup_max_size >= ENOUGH_LANES;
        let listed = Self { f16: of(DType::F16, F16), f32: of(DType::F32, F32) };
        if enough { listed } else { Self::NONE }
    }

    /// The matrices that multiply elements of `dtype` without rounding them.
    pub const fn get(&self, dtype: DType) -> Option<Cooperative> {
        match dtype {
            DType::F16 => self.f16,
            // A bf16 is an f32 with zeros at its end. wgpu knows no matrices of bf16.
            DType::F32 | DType::BF16 => self.f32,
            _ => None,
        }
    }

    /// All matrices.
    pub fn iter(&self) -> impl Iterator<Item = Cooperative> {
        [self.f16, self.f32].into_iter().flatten()
    }

    /// Whether the adapter itself multiplies any of them.
    pub fn are_real(&self) -> bool {
        self.iter().any(|c| c.means == Means::Adapter)
    }

    /// The matrices that both have.
    #[must_use]
    pub(crate) fn common(self, other: Self) -> Self {
        Self {
            f16: self.f16.filter(|own| other.f16 == Some(*own)),
            f32: self.f32.filter(|own| other.f32 == Some(*own)),
        }
    }

    /// The matrices of a preset with these on an adapter with `own`: real ones are replaced by the
    /// adapter's.
    #[must_use]
    pub(crate) fn on(self, own: Self) -> Self {
        if self.are_real() { own } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::CooperativeScalarType::{self, F16, F32};

    fn listed(sizes: &[([u32; 3], [CooperativeScalarType; 2])]) -> Matrices {
        let properties: Vec<_> = sizes
            .iter()
            .map(|([m_size, n_size, k_size], [ab_type, cr_type])| {
                wgpu::CooperativeMatrixProperties {
                    m_size: *m_size,
                    n_size: *n_size,
                    k_size: *k_size,
                    ab_type: *ab_type,
                    cr_type: *cr_type,
                    saturating_accumulation: false,
                }
            })
            .collect();
        let info = wgpu::AdapterInfo {
            subgroup_min_size: 8,
            subgroup_max_size: 32,
            ..wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan)
        };
        Matrices::listed(&properties, &info)
    }

    #[test]
    fn the_largest_matrices_that_are_summed_in_f32_count() {
        let sizes = |m: Matrices| [m.f16, m.f32].map(|c| c.map(|c| c.size.to_string()));
        let size = |text: &str| Some(text.to_owned());
        assert_eq!(sizes(listed(&[])), [None, None]);
        assert_eq!(sizes(listed(&[([16, 16, 16], [F16, F16])])), [None, None]);
        // NVIDIA, Intel's Alchemist and Battlemage, Apple.
        let half = [F16, F32];
        let nvidia = listed(&[([16, 8, 8], half), ([16, 8, 16], half), ([16, 16, 16], half)]);
        assert_eq!(sizes(nvidia), [size("16x16x16"), None]);
        assert_eq!(sizes(listed(&[([8, 8, 16], half)])), [None, None]);
        assert_eq!(sizes(listed(&[([8, 16, 16], half)])), [size("8x16x16"), None]);
        let apple = [([8, 8, 8], [F32, F32]), ([8, 8, 8], [F16, F16]), ([8, 8, 8], [F16, F32])];
        assert_eq!(sizes(listed(&apple)), [size("8x8x8"), size("8x8x8")]);
    }

    #[test]
    fn elements_are_multiplied_without_rounding_them() {
        let both = listed(&[([8, 8, 8], [F32, F32]), ([16, 16, 16], [F16, F32])]);
        let element = |dtype| both.get(dtype).map(|c| c.element);
        assert_eq!(element(DType::F16), Some(DType::F16));
        assert_eq!([DType::F32, DType::BF16].map(element), [Some(DType::F32); 2]);
        assert_eq!([DType::F64, DType::I32, DType::C64].map(element), [None; 3]);
    }

    #[test]
    fn sizes_and_offers_have_their_own_ids() {
        let mut ids = std::collections::HashSet::new();
        for size in MatrixSize::ALL {
            for element in [DType::F16, DType::F32] {
                for lanes in [8, 16, 32, 64, 128] {
                    for means in [Means::Adapter, Means::Emulation, Means::TwoSubgroups] {
                        let own = Cooperative { size, element, lanes, fewest_lanes: 8, means };
                        assert!(ids.insert(own.id()), "{own:?}");
                    }
                }
            }
        }
        assert!(MatrixSize::ALL.is_sorted_by_key(|s| std::cmp::Reverse(s.m * s.n * s.k)));
    }
}
