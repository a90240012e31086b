// Steps p.first .. p.first + p.steps of a cyclic Jacobi eigenvalue iteration, in place, on p.batch
// Hermitian matrices `a` of p.n rows; the rotations accumulate in `basis`. Grid: one workgroup for
// each matrix.
//
// A step rotates p.pairs disjoint pairs of rows and columns, those of one round of a round-robin
// tournament; 2 p.pairs - 1 rounds meet every pair. (Golub and Van Loan, Matrix Computations, 8.5.)
// An element below NEGLIGIBLE times the larger of its two diagonal elements counts as zero; once
// all elements of a round do, the round rotates nothing. table[2 * (matrix * p.pairs + i)] holds
// cosine and sine of pair i. Indices are computed without divisions, which would take longer than
// everything else where integers are divided one by one.

{{NUMBERS}}

// An unsigned integer of the width of `real`.
alias word = {{WORD}};

const NEGLIGIBLE = {{NEGLIGIBLE}};
// The bits of infinity, between those of numbers and those of NaNs.
const INFINITE = {{INFINITE}};

// Whether any pair of an even and of an odd step rotates: one is read while the other is cleared.
var<workgroup> rotating: array<atomic<u32>, 2>;

// Invocations side by side, and those on top of each other, for loops over two dimensions.
const ACROSS = {{ACROSS}};
const DOWN = WORKGROUP / ACROSS;

// a modulo b for a < 2 b.
fn wrapped(a: u32, b: u32) -> u32 {
    return select(a, a - b, a >= b);
}

// The i-th pair of a round, the smaller index first; an index of p.n is the bye of an odd number of
// rows.
fn pair(round: u32, i: u32) -> vec2<u32> {
    let others = 2u * p.pairs - 1u;
    let a = select(wrapped(round + i, others), others, i == 0u);
    let b = wrapped(round + others - i, others);
    return vec2<u32>(min(a, b), max(a, b));
}

fn element(base: u32, i: u32, j: u32) -> number {
    if i >= p.n || j >= p.n {
        return number_of(real(0.0));
    }
    return load_a(base + i * p.n + j);
}

fn put(base: u32, i: u32, j: u32, value: number) {
    if i < p.n && j < p.n {
        store_a(base + i * p.n + j, value);
        store_a(base + j * p.n + i, select(conjugate(value), number_of(real_of(value)), i == j));
    }
}

// The bits of the absolute value.
fn size_of(x: real) -> word {
    return bitcast<word>(x) & {{MAGNITUDE}};
}

{{ENTRY}} {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let base = matrix * p.n * p.n;
    let rotations = 2u * matrix * p.pairs;
    if local_index < 2u {
        atomicStore(&rotating[local_index], 0u);
    }
    workgroupBarrier();
    for (var s = 0u; s < p.steps; s += 1u) {
        let round = (p.first + s) % (2u * p.pairs - 1u);
        for (var i = local_index; i < p.pairs; i += WORKGROUP) {
            let pq = pair(round, i);
            let off = element(base, pq.x, pq.y);
            var cosine = real(1.0);
            var sine = number_of(real(0.0));
            let upper = real_of(element(base, pq.x, pq.x));
            let lower = real_of(element(base, pq.y, pq.y));
            // Tested on bits, which no driver assumes to be finite.
            let is_finite = size_of(upper) < INFINITE && size_of(lower) < INFINITE;
            let larger = max(abs(upper), abs(lower));
            let size_off = modulus(off);
            let is_zero = size_off == real(0.0)
                || (is_finite && size_off <= NEGLIGIBLE * larger);
            if pq.y < p.n && !is_zero {
                atomicStore(&rotating[s & 1u], 1u);
                let ratio = (lower - upper) / (real(2.0) * size_off);
                let size = real(1.0) / (abs(ratio) + sqrt(real(1.0) + ratio * ratio));
                let tangent = select(size, -size, ratio < real(0.0));
                cosine = real(1.0) / sqrt(real(1.0) + tangent * tangent);
                sine = (tangent * cosine) * (off / size_off);
            }
            store_table(rotations + 2u * i, number_of(cosine));
            store_table(rotations + 2u * i + 1u, sine);
        }
        storageBarrier();
        workgroupBarrier();
        if local_index == 0u {
            atomicStore(&rotating[(s + 1u) & 1u], 0u);
        }
        let is_rotating = atomicLoad(&rotating[s & 1u]) != 0u;
        // There is a block of 2 x 2 elements for each two pairs i <= j, from both sides. Rows i and
        // p.pairs - 1 - i have p.pairs + 1 blocks together.
        // - 1 - i have p.pairs + 1 blocks together.
        for (var folded = local_index / ACROSS; folded < select(0u, (p.pairs + 1u) / 2u,
            is_rotating); folded += DOWN) {
            // The middle row of an odd number of rows is alone.
            let places = select(p.pairs + 1u, folded + 1u, 2u * folded + 1u == p.pairs);
            for (var place = local_index % ACROSS; place < places; place += ACROSS) {
                let is_first = place < p.pairs - folded;
                let i = select(p.pairs - 1u - folded, folded, is_first);
                let j = select(place - 1u, place + folded, is_first);
                let rows = pair(round, i);
                let columns = pair(round, j);
                let row_cosine = real_of(load_table(rotations + 2u * i));
                let row_sine = load_table(rotations + 2u * i + 1u);
                let cosine = real_of(load_table(rotations + 2u * j));
                let sine = load_table(rotations + 2u * j + 1u);
                let pp = element(base, rows.x, columns.x);
                let pq = element(base, rows.x, columns.y);
                let qp = element(base, rows.y, columns.x);
                let qq = element(base, rows.y, columns.y);
                let top = row_cosine * pp - times(row_sine, qp);
                let top_right = row_cosine * pq - times(row_sine, qq);
                let bottom = times(conjugate(row_sine), pp) + row_cosine * qp;
                let bottom_right = times(conjugate(row_sine), pq) + row_cosine * qq;
                put(base, rows.x, columns.x, cosine * top - times(conjugate(sine), top_right));
                put(base, rows.y, columns.y, times(sine, bottom) + cosine * bottom_right);
                if i == j {
                    put(base, rows.x, columns.y, number_of(real(0.0)));
                } else {
                    put(base, rows.x, columns.y, times(sine, top) + cosine * top_right);
                    put(base, rows.y, columns.x, cosine * bottom
                        - times(conjugate(sine), bottom_right));
                }
            }
        }
        for (var i = local_index / ACROSS; i < select(0u, p.n, is_rotating); i += DOWN) {
            let row = base + i * p.n;
            for (var j = local_index % ACROSS; j < p.pairs; j += ACROSS) {
                let columns = pair(round, j);
                if columns.y < p.n {
                    let cosine = real_of(load_table(rotations + 2u * j));
                    let sine = load_table(rotations + 2u * j + 1u);
                    let left = load_basis(row + columns.x);
                    let right = load_basis(row + columns.y);
                    store_basis(row + columns.x, cosine * left - times(conjugate(sine), right));
                    store_basis(row + columns.y, times(sine, left) + cosine * right);
                }
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
}
