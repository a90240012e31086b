//! The numbers are TensorFlow's, for streams of any length.

use super::*;

#[test]
fn key_and_counter_are_tensorflows() {
    let mut s = session();
    let out = s.run(&Node::new("StatelessRandomGetKeyCounterAlg"), &[seeds()]).unwrap();
    assert_eq!(
        (out[0].dtype, &out[0].dims[..], bits(&out[0])),
        (U64, &[1][..], vec![0xa8dd_c117_4ce0_a76b])
    );
    assert_eq!((&out[1].dims[..], bits(&out[1])), (&[2][..], vec![0, 0xc85e_4c39_9afd_75b5]));
    assert_eq!(out[2], HostTensor::i32(&[], &[1]));
    assert_eq!(s.run(&Node::new("StatelessRandomGetKeyCounter"), &[seeds()]).unwrap(), out[..2]);
    assert_eq!(s.run(&Node::new("StatelessRandomGetAlg"), &[]).unwrap(), out[2..]);
    // int32 seeds are the same numbers.
    let small = |t: HostTensor| {
        run(&mut session(), &Node::new("StatelessRandomGetKeyCounter"), &[t.into()])
    };
    assert_eq!(small(HostTensor::i32(&[2], &[-3, -4])), small(HostTensor::i64(&[2], &[-3, -4])));
    assert_eq!(bits(&small(HostTensor::i32(&[2], &[-3, -4]))), [13_066_606_938_343_528_177]);
}

#[test]
fn uniform_floats_are_tensorflows() {
    let mut s = session();
    let recorded: [(DType, [u64; 9]); 3] = [
        (
            F32,
            [
                0x3f67096e, 0x3f0b30fa, 0x3f20f90e, 0x3c172980, 0x3e9d60e8, 0x3f4cb266, 0x3de74ff0,
                0x3e2968d0, 0x3ca2bf40,
            ],
        ),
        (F16, [0x31b8, 0x2fd0, 0x3038, 0x38a6, 0x2b40, 0x34cc, 0x33f8, 0x3468, 0x39fa]),
        (BF16, [0x3edc, 0x3f7a, 0x3d60, 0x3f26, 0x3ee8, 0x3ecc, 0x3f7e, 0x3e50, 0x3f7a]),
    ];
    for (dtype, expected) in recorded {
        let got = seeded(&mut s, "StatelessRandomUniform", dtype, &[3, 3]);
        assert_eq!((&got.dims[..], got.dtype), (&[3, 3][..], dtype));
        assert_eq!(bits(&got), expected, "{dtype}");
    }
}

#[test]
fn normal_floats_are_tensorflows() {
    let mut s = session();
    let normal: [u32; 9] = [
        0xbdfba1b9, 0xbedf3ca3, 0x3d649840, 0x3f762e9f, 0xbfbb23ec, 0x3ef1210b, 0x3fe678ab,
        0x3f8771a6, 0x3fe50168,
    ];
    let truncated: [u32; 9] = [
        0xbdfba1b9, 0xbedf3ca3, 0x3d649840, 0x3f762e9f, 0x3e976689, 0x3fe49882, 0x3eadbbb9,
        0x3db033d3, 0xbdd166c8,
    ];
    for (op, recorded) in
        [("StatelessRandomNormal", normal), ("StatelessTruncatedNormal", truncated)]
    {
        for (dtype, limit) in [(F32, 4.0), (F16, 0.51), (BF16, 0.51)] {
            let got = seeded(&mut s, op, dtype, &[9]).to_f64();
            for (i, (got, expected)) in got.iter().zip(recorded).enumerate() {
                let expected = f64::from(f32::from_bits(expected));
                assert_ulps(
                    *got,
                    expected,
                    ulp(dtype, expected),
                    limit,
                    &format!("{op} {dtype} {i}"),
                );
            }
        }
    }
}

#[test]
fn integers_are_tensorflows() {
    let mut s = session();
    let full: [u64; 9] = [
        0x42c5987da3f384b7,
        0xe2812e53cad07c87,
        0x58665933e3a7583a,
        0x4b152d1a370e74ff,
        0xc60e1fa36a028afd,
        0xae598bf38d851a1b,
        0x586bd81a089687ad,
        0xe9a3ae8aa56e60cf,
        0xab58126059bbcada,
    ];
    for dtype in [I64, U64] {
        assert_eq!(bits(&seeded(&mut s, "StatelessRandomUniformFullInt", dtype, &[9])), full);
    }
    let halves: Vec<u64> = full.iter().flat_map(|v| [v & 0xffff_ffff, v >> 32]).take(9).collect();
    for dtype in [I32, U32] {
        assert_eq!(bits(&seeded(&mut s, "StatelessRandomUniformFullInt", dtype, &[9])), halves);
    }
    let mut bounded = |dtype, low, high| {
        let node = Node::new("StatelessRandomUniformInt").attr("dtype", dtype);
        bits(&run(&mut s, &node, &[shape(&[9]), seeds(), scalar(dtype, low), scalar(dtype, high)]))
    };
    let int32 = [
        0x23f384b7, 0xc2c5987d, 0x8ad07c87, 0xa2812e53, 0xa3a7583a, 0xd8665933, 0xb70e74ff,
        0xcb152d1a, 0xea028afd,
    ];
    assert_eq!(bounded(I32, i64::from(i32::MIN), 1 << 30), int32);
    let int64 = [
        0xc2c5987da3f384b7,
        0xa2812e53cad07c87,
        0xd8665933e3a7583a,
        0xcb152d1a370e74ff,
        0x860e1fa36a028afd,
        0x2e598bf38d851a1b,
        0xd86bd81a089687ad,
        0xa9a3ae8aa56e60cf,
        0x2b58126059bbcada,
    ];
    assert_eq!(bounded(I64, i64::MIN, 1 << 62), int64);
    let small: Vec<u64> = full.iter().map(|v| ((v % 1000) as i64 - 500).cast_unsigned()).collect();
    assert_eq!(bounded(I64, -500, 500), small);
    let small: Vec<u64> =
        halves.iter().map(|v| u64::from(((v % 7) as u32).wrapping_sub(3))).collect();
    assert_eq!(bounded(I32, -3, 4), small);
}

/// Sizes around the group of a sample, of each width, from a counter that overflows into its upper
/// half within the first samples.
#[test]
fn streams_of_any_length_follow_the_counter() {
    let mut s = session();
    for misalign in [0, 1] {
        s.misalign = misalign;
        for generator in [
            Generator { counter: [u32::MAX - 1, u32::MAX, u32::MAX, 5], key: [9, 8] },
            Generator { counter: [u32::MAX - 1, 3, 1, 2], key: [0xdead_beef, 0xffff_ffff] },
        ] {
            for n in [0, 1, 2, 3, 4, 5, 7, 8, 1027] {
                let words: Vec<u32> = (0..2 * n).map(|i| word(&generator, i)).collect();
                let got = keyed(&mut s, "StatelessRandomUniformFullIntV2", U32, n, &generator);
                assert_eq!(got.values::<u32>(), words[..n]);
                let got = keyed(&mut s, "StatelessRandomUniformFullIntV2", U64, n, &generator);
                let pairs: Vec<u64> =
                    words.chunks(2).map(|p| u64::from(p[0]) | u64::from(p[1]) << 32).collect();
                assert_eq!(got.values::<u64>(), pairs);
                for (dtype, bits) in [(F32, 23), (F16, 10), (BF16, 7)] {
                    let got =
                        keyed(&mut s, "StatelessRandomUniformV2", dtype, n, &generator).to_f64();
                    let scale = f64::from(1 << bits);
                    let expected: Vec<f64> = words[..n]
                        .iter()
                        .map(|w| f64::from(w & ((1 << bits) - 1)) / scale)
                        .collect();
                    assert_eq!(got, expected, "{dtype} {n}");
                }
            }
        }
    }
}

/// Numbers depend on their index alone, not on where a tensor lies.
#[test]
fn every_way_to_draw_gives_the_same_bits() {
    let mut s = session();
    let generator = Generator { counter: [u32::MAX - 300, u32::MAX, 1, 2], key: [3, 4] };
    for op in ["StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"]
    {
        for dtype in s.supported([F32, F16, BF16, DType::F64]) {
            let mut draw = |misalign, n| {
                s.misalign = misalign;
                keyed(&mut s, op, dtype, n, &generator).bytes
            };
            let whole = draw(0, 20_000);
            assert_eq!(draw(1, 20_000), whole, "{op} {dtype}, misaligned");
            let more = draw(0, 20_003);
            assert_eq!(more[..whole.len()], whole, "{op} {dtype}, with a cut group");
        }
    }
}

/// More groups than one dimension of the grid has workgroups for, and more bytes than lavapipe
/// binds at once.
#[test]
fn large_tensors() {
    let mut s = session();
    let generator = Generator { counter: [1, 2, 3, 4], key: [5, 6] };
    let n = (1 << 26) + 1_000_005;
    let got = keyed(&mut s, "StatelessRandomUniformV2", BF16, n, &generator).values::<half::bf16>();
    assert_eq!(got.len(), n);
    let window = 1 << 26;
    let probes = [0, 4 * 256 * 65_535, n - 1]
        .into_iter()
        .chain(window - 3..window + 9)
        .chain((0..n).step_by(65_521));
    for i in probes {
        assert_eq!(got[i].to_f32(), (word(&generator, i) & 0x7f) as f32 / 128.0, "element {i}");
    }
}
