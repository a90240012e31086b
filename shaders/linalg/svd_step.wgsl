// Round p.round of a one-sided Jacobi iteration (Hestenes; Golub and Van Loan, Matrix Computations,
// 8.6.3): rotates pairs of rows of `w`, p.k rows of p.r elements in each of p.batch matrices, until
// they are orthogonal, and the rows of `basis` with them. Grid: one workgroup for each of p.pairs
// pairs of each matrix, a round of a round-robin tournament.

alias real = {{REAL}};

var<workgroup> sums: array<real, 3 * WORKGROUP>;

{{ENTRY}} {
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if group >= p.batch * p.pairs {
        return;
    }
    let matrix = group / p.pairs;
    let i = group % p.pairs;
    let others = 2u * p.pairs - 1u;
    let a = select((p.round + i) % others, others, i == 0u);
    let b = (p.round + others - i) % others;
    // Skips the bye of an odd number of rows.
    if max(a, b) >= p.k {
        return;
    }
    let upper = (matrix * p.k + min(a, b)) * p.r;
    let lower = (matrix * p.k + max(a, b)) * p.r;
    var upper_square = real(0.0);
    var lower_square = real(0.0);
    var product = real(0.0);
    for (var t = local_index; t < p.r; t += WORKGROUP) {
        let x = load_w(upper + t);
        let y = load_w(lower + t);
        upper_square += x * x;
        lower_square += y * y;
        product += x * y;
    }
    sums[3u * local_index] = upper_square;
    sums[3u * local_index + 1u] = lower_square;
    sums[3u * local_index + 2u] = product;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local_index < step {
            for (var c = 0u; c < 3u; c += 1u) {
                sums[3u * local_index + c] += sums[3u * (local_index + step) + c];
            }
        }
    }
    workgroupBarrier();
    upper_square = sums[0];
    lower_square = sums[1];
    product = sums[2];
    if !(abs(product) > real({{EPSILON}}) * sqrt(upper_square) * sqrt(lower_square)) {
        return;
    }
    let ratio = (lower_square - upper_square) / (real(2.0) * product);
    let size = real(1.0) / (abs(ratio) + sqrt(real(1.0) + ratio * ratio));
    let tangent = select(size, -size, ratio < real(0.0));
    let cosine = real(1.0) / sqrt(real(1.0) + tangent * tangent);
    let sine = tangent * cosine;
    for (var t = local_index; t < p.r; t += WORKGROUP) {
        let x = load_w(upper + t);
        let y = load_w(lower + t);
        store_w(upper + t, cosine * x - sine * y);
        store_w(lower + t, sine * x + cosine * y);
    }
    let upper_v = (matrix * p.k + min(a, b)) * p.k;
    let lower_v = (matrix * p.k + max(a, b)) * p.k;
    for (var t = local_index; t < p.k; t += WORKGROUP) {
        let x = load_basis(upper_v + t);
        let y = load_basis(lower_v + t);
        store_basis(upper_v + t, cosine * x - sine * y);
        store_basis(lower_v + t, sine * x + cosine * y);
    }
}
