// c -= a b as in update.wgsl, where every four elements along a's and c's rows, and along b's rows
// or columns (PRODUCT), can be read at once. Grid: one invocation for each tile of 4 x 4 elements,
// t = (matrix * p.tiles_m + row tile) * p.tiles_n + column tile below p.count. Offsets, strides and
// p.k count vec4s, but for strides along columns (rows of a transposed b), which count elements
// there.

fn subtract(at: u32, i: u32, sums: vec4<f32>) {
    if i < p.m {
        c[at] -= sums;
    }
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let j = t % p.tiles_n;
    let i = t / p.tiles_n % p.tiles_m * 4u;
    let matrix = t / p.tiles_n / p.tiles_m;
    if p.lower != 0u && 4u * j > i + 3u {
        return;
    }
    // Rows past the end repeat the last one and are not stored.
    let rows = p.off_a + p.a_at + matrix * p.a_matrix + min(i + vec4<u32>(0u, 1u, 2u, 3u),
        vec4<u32>(p.m - 1u)) * p.a_row;
    var at_b = p.off_b + p.b_at + matrix * p.b_matrix + {{FIRST_B}};
    var sums0 = vec4<f32>();
    var sums1 = sums0;
    var sums2 = sums0;
    var sums3 = sums0;
    for (var k = 0u; k < p.k; k += 1u) {
        let b0 = b[at_b];
        let b1 = b[at_b + p.b_step];
        let b2 = b[at_b + 2u * p.b_step];
        let b3 = b[at_b + 3u * p.b_step];
        let a0 = a[rows.x + k];
        let a1 = a[rows.y + k];
        let a2 = a[rows.z + k];
        let a3 = a[rows.w + k];
        sums0 += {{PRODUCT_0}};
        sums1 += {{PRODUCT_1}};
        sums2 += {{PRODUCT_2}};
        sums3 += {{PRODUCT_3}};
        at_b += {{NEXT_B}};
    }
    let at = p.off_c + p.c_at + matrix * p.c_matrix + i * p.c_row + j;
    subtract(at, i, sums0);
    subtract(at + p.c_row, i + 1u, sums1);
    subtract(at + 2u * p.c_row, i + 2u, sums2);
    subtract(at + 3u * p.c_row, i + 3u, sums3);
}
