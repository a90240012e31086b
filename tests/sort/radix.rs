//! The radix sort that other kernels build upon.

use tensorflow_wgpu::kernels::op::OpContext;
use tensorflow_wgpu::kernels::sort::radix::sort;
use tensorflow_wgpu::{Error, Tensor};

use super::*;

/// Sorted keys and the values that travelled with them, or positions.
fn sorted(keys: &[u32], values: Option<&[u32]>, bits: u32) -> [Vec<u32>; 2] {
    let kernel = move |ctx: &mut dyn OpContext| -> Result<(), Error> {
        let keys = ctx.input(0)?;
        let values: Option<Tensor> = if ctx.num_inputs() > 1 { Some(ctx.input(1)?) } else { None };
        let pairs = sort(ctx, &keys, values.as_ref(), bits)?;
        for (i, from) in [&pairs.keys, &pairs.values].into_iter().enumerate() {
            let to = ctx.output(i, DType::U32, &keys.dims)?;
            ctx.device().copy(to.address, from.address, to.bytes())?;
        }
        Ok(())
    };
    let tensor = |v: &[u32]| Input::from(HostTensor::of(DType::U32, &[v.len()], v));
    let inputs: Vec<Input> = std::iter::once(keys).chain(values).map(tensor).collect();
    let out = Session::shared().unwrap().run_kernel(&kernel, &inputs).unwrap();
    [out[0].values(), out[1].values()]
}

#[test]
fn radix_sort_is_stable() {
    // Lengths: parts of a block, a block, blocks with a rest; bits: a digit, an
    // odd number of digits, all.
    for n in [1, 7, 272, 2047, 2048, 2049, 70_001] {
        for bits in [1, 4, 9, 17, 32] {
            let mask = u32::MAX >> (32 - bits);
            let keys: Vec<u32> =
                (0..n).map(|i| number(i, bits as usize, 1 << 31) as u32 & mask).collect();
            let mut want: Vec<u32> = (0..n as u32).collect();
            want.sort_by_key(|i| keys[*i as usize]);
            let want_keys: Vec<u32> = want.iter().map(|i| keys[*i as usize]).collect();
            let values: Vec<u32> = (0..n as u32).map(|i| !i).collect();
            let inverted: Vec<u32> = want.iter().map(|i| !i).collect();
            assert_eq!(
                sorted(&keys, None, bits),
                [want_keys.clone(), want],
                "{n} keys of {bits} bits"
            );
            assert_eq!(
                sorted(&keys, Some(&values), bits),
                [want_keys, inverted],
                "{n} pairs of {bits} bits"
            );
        }
    }
}

#[test]
fn nothing_is_sorted() {
    assert!(sorted(&[], None, 32).iter().all(Vec::is_empty));
}
