// y[i] = epilogue(sum over s of partial[s][i]), in the order of s; without an epilogue the sum
// itself. Grid: one invocation per stored unit of y. Bindings: partial (split_k x count), y
// (count), the epilogue's operands.

fn value(i: u32) -> {{T}} {
    var sum = load_partial(i);
    for (var s = 1u; s < p.split_k; s += 1u) {
        sum += load_partial(s * p.count + i);
    }
{{READS}}
    return {{RESULT}};
}
