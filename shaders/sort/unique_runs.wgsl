// Equal neighbours in the order of values. HEADS: heads[i] is 1 where position permutation[i]
// begins a run of equal values; NaN equals nothing, not even itself. Grid: one invocation per
// element.

fn is_nan(key: vec2<u32>) -> bool {
{{NAN}}
}

fn value(i: u32) -> u32 {
    if i == 0u {
        return 1u;
    }
    let key = order_key(load_permutation(i));
    return select(0u, 1u, is_nan(key) || any(key != order_key(load_permutation(i - 1u))));
}
