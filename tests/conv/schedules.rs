//! Convolutions and their gradients by persistent workgroups and by stream-K.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::device::Schedule;
use tensorflow_wgpu::kernels::contract::tables;

use super::case::Case;
use super::numeric::bindings::scheduling;
use super::{check_under, plain};

/// Images whose positions, filters and channels are no multiple of a tile, with sums over kernel
/// positions that the shares cut at any place: channels last and first, strides, dilations, groups
/// and three dimensions.
#[test]
fn schedules() {
    let cases = [
        plain(11, 3, 20, 70),
        Case { last: false, ..plain(10, 3, 7, 33) },
        Case { stride: [1, 2, 2], ..plain(15, 3, 8, 66) },
        Case { dilation: [1, 2, 1], batch: 1, ..plain(12, 3, 5, 9) },
        Case { channels: 24, depth: 12, ..plain(9, 3, 12, 40) },
        plain(9, 1, 64, 68),
        Case {
            op: "Conv3D",
            spatial: 3,
            input: [3, 6, 5],
            kernel: [2, 3, 2],
            ..plain(6, 3, 8, 36)
        },
    ];
    let dtypes = [DType::F32, DType::F16, DType::BF16];
    let tile = tables::all().find(|t| t.steps(1).is_some() && t.m() == 64 && t.n() == 64);
    let tile = tile.expect("a tile of 64 rows and columns").id();
    for (i, case) in cases.iter().enumerate() {
        let stream_k = scheduling(Schedule::StreamK, tile, 3 + i % 3);
        let persistent = scheduling(Schedule::Persistent, tile, 2);
        let (seed, misalign) = (i as u64, usize::from(i == 4));
        assert!(check_under(&[stream_k], case, dtypes[i % 3], seed, misalign), "{case:?}");
        assert!(check_under(&[stream_k, persistent], case, dtypes[(i + 1) % 3], seed, 0));
    }
}
