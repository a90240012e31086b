// One component of a function of vectors of three; y[i] belongs to the vector that holds element i.
// Grid: one invocation per stored unit of y. Bindings: x, second if there is one, y.

fn value(i: u32) -> Number {
    let first = i - i % 3u;
    let a = Triple(load_x(first), load_x(first + 1u), load_x(first + 2u));
    {{SECOND}}
    var all = {{RESULT}};
    return all[i % 3u];
}
