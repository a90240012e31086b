// The spectra y[outer, h + 1] of real lines of 2 h = p.n numbers, from the transforms x[outer, h]
// of neighbouring numbers paired as complex ones: their even and odd parts under k -> h - k are the
// transforms of the even and of the odd numbers. Grid: one invocation for each k <= h / 2 of each
// line, p.count of them, in one dimension spread over x and y. Offsets count elements.

alias Real = {{REAL}};
alias Complex = vec2<Real>;

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let h = p.n / 2u;
    let own = h / 2u + 1u;
    let o = t / own;
    let k = t - o * own;
    let a = load_x(o * h + k);
    let b = load_x(o * h + select(h - k, 0u, k == 0u));
    let even = Complex(a.x + b.x, a.y - b.y) * Real(0.5);
    let odd = Complex(a.y + b.y, b.x - a.x) * Real(0.5);
    let w = turn(k, p.n);
    let turned = Complex(odd.x * w.x - odd.y * w.y, odd.x * w.y + odd.y * w.x);
    store_y(o * (h + 1u) + k, even + turned);
    if k != h - k {
        let mirrored = even - turned;
        store_y(o * (h + 1u) + h - k, Complex(mirrored.x, -mirrored.y));
    }
}
