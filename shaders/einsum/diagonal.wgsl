// y[i] = x[index_x(i)] on the diagonal of the repeated dimensions, else zero. `apart` sums the
// distances of coordinates that must agree, weighted so that no two of them cancel: it is 0 only on
// the diagonal. Weights and distances wrap modulo 2^32. Grid: one invocation per stored unit of y.
// Bindings: x, y.

fn value(i: u32) -> {{T}} {
    if index_apart(i) != 0u {
        return {{T}}();
    }
    return load_x(index_x(i));
}
