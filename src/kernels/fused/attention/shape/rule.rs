//! How scores become weights: the attributes that the op and its gradient share, and which form of
//! the kernels runs.

use super::super::register_tile::vec4s_of;
use super::super::text::Scoring;
use super::{Geometry, Layout, is_choice};
use crate::device::{Device, Params};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::Attrs;
use crate::kernels::reduce::program::window_bytes;
use crate::tensor::Tensor;
use crate::{invalid, require};

/// A causal rule whose masked scores are at most this value hides keys altogether.
const HIDDEN: f32 = -1e8;

/// The effect of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// There is none.
    None,
    /// It is added to the scores.
    Bias,
    /// It chooses between scores and a constant.
    Choice,
    /// It tells where a constant is added.
    Penalty,
}

/// The attributes.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Where the heads are.
    pub layout: Layout,
    /// The effect of the mask.
    pub mask: Mask,
    /// The factor of products.
    pub scale: f32,
    /// The score of a masked key, or the value that is added to it.
    pub fill: f32,
    /// The bound c of scores x, which are c tanh(x) instead, or 0.
    soft_cap: f32,
    keep: bool,
    causal: bool,
    zero_masked: bool,
}

impl Rule {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self {
            layout: Layout::parse(&attrs.string("layout")?)?,
            mask: match attrs.string("mask")?.as_str() {
                "none" => Mask::None,
                "bias" => Mask::Bias,
                "choice" => Mask::Choice,
                "penalty" => Mask::Penalty,
                other => invalid!("mask must be none, bias, choice or penalty, not {other}"),
            },
            scale: attrs.float("scale")?,
            fill: attrs.float("fill")?,
            // Nodes without a cap lack it.
            soft_cap: attrs.float("soft_cap").unwrap_or(0.0),
            keep: attrs.bool("keep")?,
            causal: attrs.bool("causal")?,
            zero_masked: attrs.bool("zero_masked")?,
        })
    }

    /// The kind of scores, for a mask of type `mask`.
    pub fn scoring(&self, mask: Option<DType>) -> Scoring {
        Scoring { mask, is_capped: self.soft_cap != 0.0 }
    }

    /// Whether weights of masked keys are zero although their scores have a gradient: none of our
    /// formulas holds then.
    pub fn zeroes_what_counts(&self) -> bool {
        self.zero_masked && self.mask == Mask::Penalty
    }

    /// Fails if the rule has no use for a mask of this type.
    pub fn check_mask(&self, extra: Option<&Tensor>) -> Result<()> {
        if let Some(extra) = extra {
            require!(
                is_choice(extra.dtype) == (self.mask != Mask::Bias),
                "the mask {:?} cannot be of type {}",
                self.mask,
                extra.dtype
            );
        }
        Ok(())
    }

    /// Whether keys beyond a row's own position have no weight. That holds only where every row
    /// sees a key whose score no mask lowers.
    pub fn hides(&self) -> bool {
        self.causal && self.mask == Mask::None && self.fill <= HIDDEN
    }

    /// The flags of `attention_flags.wgsl`.
    pub fn flags(&self) -> u32 {
        let flags = [
            self.causal,
            self.hides(),
            self.keep,
            self.mask == Mask::Penalty,
            self.zero_masked,
            self.layout == Layout::HeadsLast,
        ];
        flags.iter().enumerate().map(|(bit, flag)| u32::from(*flag) << bit).sum()
    }

    /// The parameters of `attention_flags.wgsl` from `flags` on.
    pub fn params(&self, params: Params) -> Params {
        let params = params.u32(self.flags()).f32(self.scale).f32(self.fill).f32(f32::NEG_INFINITY);
        if self.soft_cap == 0.0 { params } else { params.f32(self.soft_cap) }
    }
}

/// Which form of the kernels runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Scores go through memory, with this many batches at once.
    Staged(usize),
    /// Tiles in registers or in workgroup memory, for rows of this many groups of four elements.
    Tiled(u32),
}

/// Whether scores belong in memory even where rows fit a tile: tiles save a GPU the memory traffic,
/// but cost a software adapter barriers.
pub fn prefers_staged(device: &Device) -> bool {
    device.profile().is_software()
}

impl Method {
    /// Rows too wide for a tile have their scores in memory on every adapter. Each batch of a
    /// `packed` tensor must start on a whole word: `packed` has its elements for each batch, and a
    /// word holds `lanes` of them.
    pub fn new(device: &Device, g: &Geometry, packed: &[usize], lanes: u32) -> Self {
        let scores = (g.heads * g.queries * g.keys * 4) as u64;
        let at_once = usize::try_from(window_bytes(device) / scores.max(1))
            .unwrap_or(usize::MAX)
            .min(g.batch);
        let whole = at_once == g.batch || packed.iter().all(|n| n.is_multiple_of(lanes as usize));
        let at_once = (at_once > 0 && whole).then_some(at_once);
        match (vec4s_of(g.depth.max(g.width)), at_once) {
            (Some(vec4s), None) => Self::Tiled(vec4s),
            (Some(vec4s), _) if !prefers_staged(device) => Self::Tiled(vec4s),
            (_, at_once) => Self::Staged(at_once.unwrap_or(1)),
        }
    }
}
