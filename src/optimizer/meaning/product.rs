//! Products and convolutions, and the ops that add an epilogue to them.

use crate::kernels::fused::contraction::INT8;

/// An op and its fused op.
const FUSED: &[(&str, &str)] = &[
    ("BatchMatMulV2", "_WgpuFusedBatchMatMulV2"),
    ("BatchMatMulV3", INT8),
    ("Conv2D", "_WgpuFusedConv2D"),
    ("Conv3D", "_WgpuFusedConv3D"),
    ("DepthwiseConv2dNative", "_WgpuFusedDepthwiseConv2dNative"),
    ("MatMul", "_WgpuFusedMatMul"),
];

/// The fused op for `op`, which may be a fused op already.
pub fn fused_product(op: &str) -> Option<&'static str> {
    FUSED.iter().find(|(plain, fused)| *plain == op || *fused == op).map(|(_, fused)| *fused)
}
