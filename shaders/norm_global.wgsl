// One expression for each element of [.., channel], in f32: c is its channel, j its place in a
// tensor of p.elements. Grid: one invocation per stored unit of result.

fn value(i: u32) -> f32 {
    let c = i % p.channels;
    let j = i % p.elements;
    return {{RESULT}};
}
