// Columns p.first .. p.end of orthonormal bases `u` (p.r rows, p.cols columns, one base for each of
// p.batch matrices), where a singular value gives none: beyond the p.k singular values s, and where
// those vanish against the first. Grid: one workgroup for each matrix.
//
// Where a flag in workgroup memory may not decide a branch with barriers in it, columns that are
// there already are computed as well, and not stored.
//
// A column starts as the unit vector that is farthest from the span of the columns before it, and
// is made orthogonal to them, twice. An invocation owns every WORKGROUP-th row, so that only sums
// cross invocations.

alias real = {{REAL}};

var<workgroup> sums: array<real, WORKGROUP>;
var<workgroup> best: array<u32, WORKGROUP>;

fn total(local: u32, own: real) -> real {
    workgroupBarrier();
    sums[local] = own;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            sums[local] += sums[local + step];
        }
    }
    workgroupBarrier();
    return sums[0];
}

{{ENTRY}} {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let base = matrix * p.r * p.cols;
    for (var c = p.first; c < p.end; c += 1u) {
        // The same for the whole workgroup; where it is false the column is there already.
        var vanishes = c >= p.k;
        if !vanishes {
            let largest = load_s(matrix * p.k);
            vanishes = load_s(matrix * p.k + c) <= largest * real({{EPSILON}}) * real(p.r);
        }
        {{BRANCH}} {
            var least = real(2.0);
            var row = 0u;
            for (var i = local_index; i < p.r; i += WORKGROUP) {
                var spanned = real(0.0);
                for (var d = 0u; d < c; d += 1u) {
                    let x = load_u(base + i * p.cols + d);
                    spanned += x * x;
                }
                if spanned < least {
                    least = spanned;
                    row = i;
                }
            }
            sums[local_index] = least;
            best[local_index] = row;
            for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
                workgroupBarrier();
                if local_index < step {
                    let other = sums[local_index + step];
                    let is_before = best[local_index + step] < best[local_index];
                    let tie = other == sums[local_index] && is_before;
                    if other < sums[local_index] || tie {
                        sums[local_index] = other;
                        best[local_index] = best[local_index + step];
                    }
                }
            }
            workgroupBarrier();
            let start = best[0];
            for (var i = local_index; i < p.r; i += WORKGROUP) {
                if vanishes {
                    store_u(base + i * p.cols + c, select(real(0.0), real(1.0), i == start));
                }
            }
            for (var d = 0u; d < 2u * c; d += 1u) {
                var dot = real(0.0);
                for (var i = local_index; i < p.r; i += WORKGROUP) {
                    dot += load_u(base + i * p.cols + d % c) * load_u(base + i * p.cols + c);
                }
                let part = total(local_index, dot);
                for (var i = local_index; i < p.r; i += WORKGROUP) {
                    let at = base + i * p.cols + c;
                    if vanishes {
                        store_u(at, load_u(at) - part * load_u(base + i * p.cols + d % c));
                    }
                }
            }
            var square = real(0.0);
            for (var i = local_index; i < p.r; i += WORKGROUP) {
                let x = load_u(base + i * p.cols + c);
                square += x * x;
            }
            let length = sqrt(total(local_index, square));
            for (var i = local_index; i < p.r; i += WORKGROUP) {
                let at = base + i * p.cols + c;
                if vanishes {
                    store_u(at, load_u(at) / length);
                }
            }
        }
        workgroupBarrier();
    }
}

var<workgroup> flag: u32;

// The first invocation's flag, so that control flow is uniform for the compiler, too.
fn workgroup_flag(local_index: u32, own: bool) -> bool {
    if local_index == 0u {
        flag = select(0u, 1u, own);
    }
    return workgroupUniformLoad(&flag) != 0u;
}
