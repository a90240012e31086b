// Householder reflections p.first .. p.first + p.steps of p.m x p.n matrices, applied to the
// columns of `q`. Grid: p.groups workgroups for each of p.batch matrices; each handles every
// p.groups-th tile of 16 columns with LANES invocations for a column, which sum rows in a fixed
// order. More than one step in a dispatch needs p.groups = 1.
//
// FACTOR is true: q is `a` itself, and the step's reflection is computed first. It annihilates
// column k below the diagonal, but the column is left there: other workgroups read it. side[3 *
// (matrix * p.reflections + k)] receives the diagonal element of R, the scale that makes column k
// the reflection's vector (whose element k is 1), and tau of I - tau v v^H. FACTOR is false:
// reflections come from `a` and `side`, last one first, and are applied to p.cols columns of
// another matrix, from column k on: the columns before it are not affected when the matrix started
// as the identity.

{{NUMBERS}}

// An unsigned integer of the width of `real`.
alias word = {{WORD}};

const COLUMNS = 16u;
const LANES = WORKGROUP / COLUMNS;

var<workgroup> partial: array<number, WORKGROUP>;
var<workgroup> partial_bits: array<word, WORKGROUP>;

fn total(local: u32) -> number {
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            partial[local] += partial[local + step];
        }
    }
    workgroupBarrier();
    return partial[0];
}

// The bits of the absolute value.
fn bits_of(x: real) -> word {
    return bitcast<word>(x) & {{MAGNITUDE}};
}

fn larger(a: word, b: word) -> word {
    return select(a, b, b > a);
}

// SIZE defines bits_of the larger part, whether z is real, and the square of the absolute value.
{{SIZE}}

// The largest of sizes without sign, as bits: a NaN counts as the largest.
fn largest(local: u32) -> word {
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            partial_bits[local] = larger(partial_bits[local], partial_bits[local + step]);
        }
    }
    workgroupBarrier();
    return partial_bits[0];
}

struct Reflection {
    diagonal: number,
    scale: number,
    tau: number,
}

// The reflection that turns column k into (*, diagonal, 0, ...), with LAPACK's sign.
fn reflection(base: u32, k: u32, local: u32) -> Reflection {
    var size = word();
    for (var i = k + 1u + local; i < p.m; i += WORKGROUP) {
        size = larger(size, size_of(load_a(base + i * p.n + k)));
    }
    partial_bits[local] = size;
    let unit = largest(local);
    let head = load_a(base + k * p.n + k);
    if unit == word() && is_real(head) {
        return Reflection(head, number_of(real(0.0)), number_of(real(0.0)));
    }
    // Elements are scaled by the largest one, so that squares neither overflow nor vanish.
    let bound = bitcast<real>(larger(unit, size_of(head)));
    var sum = real(0.0);
    for (var i = k + local; i < p.m; i += WORKGROUP) {
        let v = load_a(base + i * p.n + k) / bound;
        sum += square(v);
    }
    partial[local] = number_of(sum);
    let norm = sqrt(real_of(total(local))) * bound;
    let diagonal = select(norm, -norm, real_of(head) >= real(0.0));
    let tail = head - number_of(diagonal);
    return Reflection(number_of(diagonal), over(number_of(real(1.0)), tail),
        conjugate(-tail / diagonal));
}

{{ENTRY}} {
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if group >= p.batch * p.groups {
        return;
    }
    let matrix = group / p.groups;
    let base = matrix * p.m * p.n;
    let q_base = matrix * p.m * p.cols;
    let lane = local_index / COLUMNS;
    for (var s = 0u; s < p.steps; s += 1u) {
{{STEP}}
        for (var tile = first_column / COLUMNS + group % p.groups; tile
            * COLUMNS < p.cols; tile += p.groups) {
            let j = tile * COLUMNS + local_index % COLUMNS;
            let is_mine = j >= first_column && j < p.cols;
            var sum = number_of(real(0.0));
            if is_mine {
                for (var i = k + 1u + lane; i < p.m; i += LANES) {
                    let v = times(load_a(base + i * p.n + k), h.scale);
                    sum += times(conjugate(v), load_q(q_base + i * p.cols + j));
                }
                if lane == 0u {
                    sum += load_q(q_base + k * p.cols + j);
                }
            }
            partial[local_index] = sum;
            workgroupBarrier();
            if is_mine {
                sum = number_of(real(0.0));
                for (var l = 0u; l < LANES; l += 1u) {
                    sum += partial[l * COLUMNS + local_index % COLUMNS];
                }
                sum = times(sum, h.tau);
                if lane == 0u {
                    let at = q_base + k * p.cols + j;
                    store_q(at, load_q(at) - sum);
                }
                for (var i = k + 1u + lane; i < p.m; i += LANES) {
                    let at = q_base + i * p.cols + j;
                    let v = times(load_a(base + i * p.n + k), h.scale);
                    store_q(at, load_q(at) - times(sum, v));
                }
            }
            workgroupBarrier();
        }
        storageBarrier();
        workgroupBarrier();
    }
}
