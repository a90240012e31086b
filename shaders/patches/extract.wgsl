// dst[image, o0, o1, o2, k0, k1, k2, channel] = src[image, o * stride + k * rate - pad, channel],
// zero beyond src. Grid: one invocation per stored unit of dst. Bindings: src, dst. Missing spatial
// dimensions have extent 1.

fn value(i: u32) -> {{ELEMENT}} {
    let channel = i % p.channels;
    var rest = i / p.channels;
    let k2 = rest % p.kernel2;
    rest /= p.kernel2;
    let k1 = rest % p.kernel1;
    rest /= p.kernel1;
    let k0 = rest % p.kernel0;
    rest /= p.kernel0;
    let o2 = rest % p.output2;
    rest /= p.output2;
    let o1 = rest % p.output1;
    rest /= p.output1;
    let o0 = rest % p.output0;
    let image = rest / p.output0;
    // Positions before the start wrap around, and so are beyond the end.
    let x0 = o0 * p.stride0 + k0 * p.rate0 - p.pad0;
    let x1 = o1 * p.stride1 + k1 * p.rate1 - p.pad1;
    let x2 = o2 * p.stride2 + k2 * p.rate2 - p.pad2;
    if x0 >= p.input0 || x1 >= p.input1 || x2 >= p.input2 {
        return {{ELEMENT}}();
    }
    let position = ((image * p.input0 + x0) * p.input1 + x1) * p.input2 + x2;
    return load_src(position * p.channels + channel);
}
