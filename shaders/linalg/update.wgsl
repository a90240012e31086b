// c -= a b for p.m x p.k and p.k x p.n matrices that lie anywhere in larger ones, with sums in the
// same type. Grid: one invocation for each tile of 4 x 4 elements, t = (matrix * p.tiles_m + row
// tile) * p.tiles_n + column tile below p.count. The tile stays in registers, and there are no
// barriers. With p.lower, tiles above the diagonal are left unchanged.
//
// Element (i, k) of a is a[p.a_at + matrix * p.a_matrix + i * p.a_row + k * p.a_col], b likewise;
// c's columns are next to each other.

{{NUMBERS}}

fn subtract(at: u32, i: u32, j: u32, sums: vec4<real>) {
    if i < p.m {
        for (var c = 0u; c < 4u && j + c < p.n; c += 1u) {
            store_c(at + c, load_c(at + c) - sums[c]);
        }
    }
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let j = t % p.tiles_n * 4u;
    let i = t / p.tiles_n % p.tiles_m * 4u;
    let matrix = t / p.tiles_n / p.tiles_m;
    if p.lower != 0u && j > i + 3u {
        return;
    }
    // Rows and columns past the end repeat the last one and are not stored.
    let rows = p.a_at + matrix * p.a_matrix + min(i + vec4<u32>(0u, 1u, 2u, 3u),
        vec4<u32>(p.m - 1u)) * p.a_row;
    let columns = p.b_at + matrix * p.b_matrix + min(j + vec4<u32>(0u, 1u, 2u, 3u),
        vec4<u32>(p.n - 1u)) * p.b_col;
    var sums0 = vec4<real>(real(0.0));
    var sums1 = sums0;
    var sums2 = sums0;
    var sums3 = sums0;
    for (var k = 0u; k < p.k; k += 1u) {
        let a = rows + k * p.a_col;
        let at = columns + k * p.b_row;
        let b = vec4<real>(load_b(at.x), load_b(at.y), load_b(at.z), load_b(at.w));
        sums0 += load_a(a.x) * b;
        sums1 += load_a(a.y) * b;
        sums2 += load_a(a.z) * b;
        sums3 += load_a(a.w) * b;
    }
    let at = p.c_at + matrix * p.c_matrix + i * p.c_row + j;
    subtract(at, i, j, sums0);
    subtract(at + p.c_row, i + 1u, j, sums1);
    subtract(at + 2u * p.c_row, i + 2u, j, sums2);
    subtract(at + 3u * p.c_row, i + 3u, j, sums3);
}
