// Determinants from LU decompositions of p.count matrices of p.n rows: one invocation for each.
// The product is kept as mantissa (0.5 <= |mantissa| < 1) times a power of two, so no partial product overflows or underflows.
// state[2 * matrix + 1] is the number of row swaps.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let matrix = linear_id(workgroup_id, num_workgroups, local_index);
    if matrix >= p.count {
        return;
    }
    var mantissa = select(1.0, -1.0, (load_state(2u * matrix + 1u) & 1) != 0);
    var exponent = 0;
    // Infinities and NaNs multiply as they are.
    var special = 1.0;
    var is_special = false;
    for (var i = 0u; i < p.n; i += 1u) {
        let pivot = load_a((matrix * p.n + i) * p.n + i);
        let bits = bitcast<u32>(pivot) & 0x7fffffffu;
        if bits >= 0x7f800000u {
            special *= pivot;
            is_special = true;
        } else if bits < 0x00800000u {
            // Zero or subnormal; where subnormals are flushed the product is zero.
            let scaled = frexp(pivot * 16777216.0);
            mantissa *= scaled.fract;
            exponent += scaled.exp - 24;
        } else {
            let parts = frexp(pivot);
            mantissa *= parts.fract;
            exponent += parts.exp;
        }
        let normal = frexp(mantissa);
        mantissa = normal.fract;
        exponent += normal.exp;
    }
{{STORE}}
}

// 2^e for -126 <= e <= 127.
fn power_of_two(e: i32) -> f32 {
    return bitcast<f32>(u32(e + 127) << 23u);
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
