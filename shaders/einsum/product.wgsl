// y[i] = a[index_a(i)] * b[index_b(i)]: a product without a sum, or the terms of a sum. Grid: one
// invocation per stored unit of y. Bindings: a, b, y. 16-bit floats are multiplied in f32.

fn value(i: u32) -> {{T}} {
    let a = load_a(index_a(i));
    let b = load_b(index_b(i));
    return {{PRODUCT}};
}
