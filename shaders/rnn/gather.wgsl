// The gradient of the input of a layer that has no weights for it: the sum of the gradients of the
// gates that it is added to. Grid: an invocation for each element of dx.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let at = t / p.units * {{WIDTH}}u * p.units + t % p.units;
    var sum = load_grads(at);
    for (var gate = 1u; gate < {{INPUTS}}u; gate += 1u) {
        sum += load_grads(at + gate * p.units);
    }
    store_dx(t, sum);
}
