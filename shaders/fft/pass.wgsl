// One pass of a Stockham transform: after it, runs of p.span * RADIX elements are transformed; the
// last pass leaves them in order. Grid: one invocation for each butterfly, p.count = outer * (p.n /
// RADIX) * p.inner in one dimension spread over x and y. Offsets count elements. Numerics: one root
// of unity from exact integers for each butterfly, its powers by products.

const RADIX = {{RADIX}}u;

fn turned(z: Complex, c: Real, s: Real) -> Complex {
    return Complex(z.x * c - z.y * s, z.x * s + z.y * c);
}

// Times exp(-2 pi i / 4); the functions below turn by 1 / 8 and 3 / 8 of a turn.
fn quarter(z: Complex) -> Complex {
    return Complex(z.y, -z.x);
}

fn eighth(z: Complex) -> Complex {
    return Complex(z.x + z.y, z.y - z.x) * Real(0.7071067811865476);
}

fn three_eighths(z: Complex) -> Complex {
    return Complex(z.y - z.x, -z.x - z.y) * Real(0.7071067811865476);
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let step = p.n / RADIX;
    let c = t % p.inner;
    let j = (t / p.inner) % step;
    let o = t / (p.inner * step);
    let phase = j % p.span;
    let at = (j / p.span) * p.span * RADIX + phase;
{{BUTTERFLY}}}
