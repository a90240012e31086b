// Adds the products of each of four factors with a vector of its own.
fn sum_of_products(factors: vec4<f32>, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>,
    sum: vec4<f32>) -> vec4<f32> {
    let first = fma(vec4<f32>(factors.y), b, fma(vec4<f32>(factors.x), a, sum));
    return fma(vec4<f32>(factors.w), d, fma(vec4<f32>(factors.z), c, first));
}
