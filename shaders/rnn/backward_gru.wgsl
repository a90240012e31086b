fn retreat(
    sequence: u32,
    step: u32,
    unit: u32,
    row: u32,
    before: real,
    dy: real,
    carry: ptr<function, vec2<real>>,
) -> Gates {
    let at = gates_at(row, unit);
    let r = load_saved(at + RESET * p.units);
    let u = load_saved(at + UPDATE * p.units);
    let c = load_saved(at + 2u * p.units);
    let m = load_saved(at + 3u * p.units);
    let dc = dy * (real(1.0) - u) * (real(1.0) - c * c);
    *carry = vec2<real>(dy * u, real(0.0));
    var grads = Gates(real(0.0), real(0.0), dc, dc * r);
    grads[RESET] = dc * m * r * (real(1.0) - r);
    grads[UPDATE] = dy * (before - c) * u * (real(1.0) - u);
    return grads;
}
