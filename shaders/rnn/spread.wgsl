// The input of a layer that has no weights for it, added to each of the first p.gates gates. Grid:
// an invocation for each element of x.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let at = t / p.units * {{WIDTH}}u * p.units + t % p.units;
    let x = load_x(t);
    for (var gate = 0u; gate < {{INPUTS}}u; gate += 1u) {
        store_gates(at + gate * p.units, x);
    }
}
