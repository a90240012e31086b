// One pass of a Stockham transform like pass.wgsl, two complex numbers at a time, for whole lines
// of x[outer, p.n, p.inner]. Grid: one invocation for each two butterflies, p.count = outer * (p.n
// / RADIX) * p.inner / 2 in one dimension spread over x and y. Offsets count pairs.
//
// ACROSS: the pair is the same butterfly of two neighbouring lines (p.inner is even). Else p.inner
// is 1 and the pair is two neighbouring butterflies of a line, which has an even number of them;
// p.span is even too or, in a first pass, 1: then the results of a butterfly are neighbours.

alias Real = f32;
alias Complex = vec2<f32>;
alias Pair = vec4<f32>;

const RADIX = {{RADIX}}u;

fn product(a: Pair, b: Pair) -> Pair {
    return a.xxzz * b + Pair(-a.y, a.y, -a.w, a.w) * b.yxwz;
}

fn turned(z: Pair, c: f32, s: f32) -> Pair {
    return z * c + Pair(-z.y, z.x, -z.w, z.z) * s;
}

// Times exp(-2 pi i / 4), and below / 8 and 3 / 8 of a turn.
fn quarter(z: Pair) -> Pair {
    return Pair(z.y, -z.x, z.w, -z.z);
}

fn eighth(z: Pair) -> Pair {
    return (z + quarter(z)) * 0.7071067811865476;
}

fn three_eighths(z: Pair) -> Pair {
    return (quarter(z) - z) * 0.7071067811865476;
}

// The pair at a place, conjugated for an inverse transform.
fn element(i: u32) -> Pair {
    return x[p.off_x + i] * vec2(1.0, f32(p.sign)).xyxy;
}

fn keep(i: u32, v: Pair) {
    y[p.off_y + i] = v * (1.0 / f32(p.divisor)) * vec2(1.0, f32(p.sign)).xyxy;
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
{{PLACES}}
{{BUTTERFLY}}}
