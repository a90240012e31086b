// c -= a b for complex matrices, as update.wgsl for real ones. With p.lower, for updates of a
// Hermitian matrix, it is c -= a conj(b), and tiles above the diagonal are left unchanged. Grid:
// one invocation for each tile of 4 x 4 elements, t = (matrix * p.tiles_m + row tile) * p.tiles_n +
// column tile below p.count. Sums are kept as real and imaginary parts of four columns.

{{NUMBERS}}

fn subtract(at: u32, i: u32, j: u32, re: vec4<real>, im: vec4<real>) {
    if i < p.m {
        for (var c = 0u; c < 4u && j + c < p.n; c += 1u) {
            store_c(at + c, load_c(at + c) - number(re[c], im[c]));
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
    let sign = select(real(1.0), real(-1.0), p.lower != 0u);
    // Rows and columns past the end repeat the last one and are not stored.
    let rows = p.a_at + matrix * p.a_matrix + min(i + vec4<u32>(0u, 1u, 2u, 3u),
        vec4<u32>(p.m - 1u)) * p.a_row;
    let columns = p.b_at + matrix * p.b_matrix + min(j + vec4<u32>(0u, 1u, 2u, 3u),
        vec4<u32>(p.n - 1u)) * p.b_col;
    var re0 = vec4<real>(real(0.0));
    var re1 = re0;
    var re2 = re0;
    var re3 = re0;
    var im0 = re0;
    var im1 = re0;
    var im2 = re0;
    var im3 = re0;
    for (var k = 0u; k < p.k; k += 1u) {
        let a = rows + k * p.a_col;
        let at = columns + k * p.b_row;
        let b0 = load_b(at.x);
        let b1 = load_b(at.y);
        let b2 = load_b(at.z);
        let b3 = load_b(at.w);
        let re = vec4<real>(b0.x, b1.x, b2.x, b3.x);
        let im = vec4<real>(b0.y, b1.y, b2.y, b3.y) * sign;
        let a0 = load_a(a.x);
        re0 += a0.x * re - a0.y * im;
        im0 += a0.x * im + a0.y * re;
        let a1 = load_a(a.y);
        re1 += a1.x * re - a1.y * im;
        im1 += a1.x * im + a1.y * re;
        let a2 = load_a(a.z);
        re2 += a2.x * re - a2.y * im;
        im2 += a2.x * im + a2.y * re;
        let a3 = load_a(a.w);
        re3 += a3.x * re - a3.y * im;
        im3 += a3.x * im + a3.y * re;
    }
    let at = p.c_at + matrix * p.c_matrix + i * p.c_row + j;
    subtract(at, i, j, re0, im0);
    subtract(at + p.c_row, i + 1u, j, re1, im1);
    subtract(at + 2u * p.c_row, i + 2u, j, re2, im2);
    subtract(at + 3u * p.c_row, i + 3u, j, re3, im3);
}
