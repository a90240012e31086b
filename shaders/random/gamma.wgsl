// Samples of gamma distributions by Marsaglia and Tsang's method ("A simple method for generating
// gamma variables", 2000), with the numbers that TensorFlow takes: output i of alpha a has 256
// samples of 128 bits of the stream for itself; each sample gives two normal or uniform numbers,
// the second one first. Grid: map. Samples of one alpha are p.alphas apart; p.per_alpha of them.
// Computed in {{F}}.

struct Stream {
    start: vec4<u32>,
    key: vec2<u32>,
    taken: u32,
    normals: vec2<{{F}}>,
    normals_left: u32,
    uniforms: vec4<u32>,
    uniforms_left: u32,
}

fn next_sample(stream: ptr<function, Stream>) -> vec4<u32> {
    let counter = philox_skip((*stream).start, vec2<u32>((*stream).taken, 0u));
    (*stream).taken += 1u;
    return philox(counter, (*stream).key);
}

fn next_normal(stream: ptr<function, Stream>) -> {{F}} {
    if (*stream).normals_left == 0u {
        (*stream).normals = wide_normal_{{F}}(next_sample(stream));
        (*stream).normals_left = 2u;
    }
    (*stream).normals_left -= 1u;
    return select((*stream).normals.x, (*stream).normals.y, (*stream).normals_left == 1u);
}

fn next_uniform(stream: ptr<function, Stream>) -> vec2<u32> {
    if (*stream).uniforms_left == 0u {
        (*stream).uniforms = next_sample(stream);
        (*stream).uniforms_left = 2u;
    }
    (*stream).uniforms_left -= 1u;
    return select((*stream).uniforms.xy, (*stream).uniforms.zw, (*stream).uniforms_left == 1u);
}

fn value(i: u32) -> {{F}} {
    let which = i % p.alphas;
    let index = which * p.per_alpha + i / p.alphas;
    let alpha = load_alpha(which);
    let g = generator();
    var stream: Stream;
    stream.start = philox_skip(g.counter, vec2<u32>(index << 8u, index >> 24u));
    stream.key = g.key;
    if alpha == {{F}}(1) {
        return -wide_log_rest_{{F}}(next_sample(&stream).zw);
    }
    let below_one = alpha < {{F}}(1);
    let d = alpha + select(-{{THIRD}}, {{THIRD}} + {{THIRD}}, below_one);
    let c = {{THIRD}} / sqrt(d);
    // At worst one try in twenty fails.
    for (var attempt = 0u; attempt < 100u; attempt += 1u) {
        let x = next_normal(&stream);
        var v = {{F}}(1) + c * x;
        if v <= {{F}}(0) {
            continue;
        }
        v = v * v * v;
        let u = next_uniform(&stream);
        let square = x * x;
        if wide_unit_{{F}}(u) < {{F}}(1) - {{SQUEEZE}} * square * square
            || wide_log_{{F}}(u) < {{HALF}} * square + d * ({{F}}(1) - v + log_{{F}}(v)) {
            if below_one {
                return d * v * exp_{{F}}(wide_log_{{F}}(next_uniform(&stream)) / alpha);
            }
            return d * v;
        }
    }
    return nan_like_{{F}}(alpha);
}
