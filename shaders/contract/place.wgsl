// The part of a contraction that a workgroup computes: one tile, split and matrix. m runs fastest,
// so that neighbouring workgroups share a panel of b.

struct Place {
    // The tile's first row and column.
    m: u32,
    n: u32,
    // The split's steps.
    k_first: u32,
    k_end: u32,
    // Where the matrices begin; c's is that of the split.
    a: u32,
    b: u32,
    c: u32,
}

// The workgroup's number. A workgroup past the last one computes the last one's sums again and
// stores the same values.
fn repeated(workgroup_id: vec3<u32>, num_workgroups: vec3<u32>) -> u32 {
    return min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
}

fn place_of(workgroup: u32) -> Place {
    let tiles_m = (p.m + {{TILE_M}} - 1u) / {{TILE_M}};
    let tiles_n = (p.n + {{TILE_N}} - 1u) / {{TILE_N}};
    let column_tile = workgroup / tiles_m;
    let matrix = {{MATRIX}};
    let z = matrix / p.split_k;
    let split = matrix % p.split_k;
    let k_first = split * p.chunk;
    return Place(
        workgroup % tiles_m * {{TILE_M}},
        column_tile % tiles_n * {{TILE_N}},
        k_first,
        min(k_first + p.chunk, p.depth),
        a_start(z),
        b_start(z),
        c_start(z) + split * p.c_split,
    );
}
