// Determinants from LU decompositions of p.count matrices of p.n rows: one invocation for each. The
// product is kept as mantissa (0.5 <= |mantissa| < 1) times a power of two, so no partial product
// overflows or underflows. state[2 * matrix + 1] is the number of row swaps.

alias real = {{REAL}};

{{ENTRY}} {
    let matrix = linear_id(workgroup_id, num_workgroups, local_index);
    if matrix >= p.count {
        return;
    }
    var mantissa = select(real(1.0), real(-1.0), (load_state(2u * matrix + 1u) & 1) != 0);
    var exponent = 0;
    // Infinities and NaNs multiply as they are.
    var special = real(1.0);
    var is_special = false;
    for (var i = 0u; i < p.n; i += 1u) {
        let pivot = load_a((matrix * p.n + i) * p.n + i);
        let parts = split(pivot);
        if parts.is_special {
            special *= pivot;
            is_special = true;
        } else {
            mantissa *= parts.mantissa;
            exponent += parts.exponent;
        }
        let normal = split(mantissa);
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