// Determinants from LU decompositions of p.count matrices of p.n rows: one invocation for each. The
// product is kept as mantissa (the larger part's size is from 0.5 to 1) times a power of two, so no
// partial product overflows or underflows. state[2 * matrix + 1] is the number of row swaps.
//
// PARTS is `parts_of`, which splits numbers by the `split` of real ones; STORE computes the
// results.

{{NUMBERS}}

struct Parts {
    mantissa: number,
    exponent: i32,
    is_special: bool,
}

{{ENTRY}} {
    let matrix = linear_id(workgroup_id, num_workgroups, local_index);
    if matrix >= p.count {
        return;
    }
    let is_odd = (load_state(2u * matrix + 1u) & 1) != 0;
    var mantissa = number_of(select(real(1.0), real(-1.0), is_odd));
    var exponent = 0;
    // Infinities and NaNs are multiplied as they are.
    var special = number_of(real(1.0));
    var is_special = false;
    for (var i = 0u; i < p.n; i += 1u) {
        let pivot = load_a((matrix * p.n + i) * p.n + i);
        let parts = parts_of(pivot);
        if parts.is_special {
            special = times(special, pivot);
            is_special = true;
        } else {
            mantissa = times(mantissa, parts.mantissa);
            exponent += parts.exponent;
        }
        let normal = parts_of(mantissa);
        mantissa = normal.mantissa;
        exponent += normal.exponent;
    }
{{STORE}}
}

struct Split {
    mantissa: real,
    exponent: i32,
    is_special: bool,
}

{{SPLIT}}
{{PARTS}}
