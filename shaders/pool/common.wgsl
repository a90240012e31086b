// Windows of pooling with three spatial dimensions; missing ones have extent 1. All indices are in
// elements.

struct Place {
    image: u32,
    channel: u32,
    x: vec3<u32>,
}

struct Range {
    first: vec3<u32>,
    end: vec3<u32>,
}

fn in_extent() -> vec3<u32> {
    return vec3<u32>(p.input0, p.input1, p.input2);
}

fn out_extent() -> vec3<u32> {
    return vec3<u32>(p.output0, p.output1, p.output2);
}

fn kernel() -> vec3<u32> {
    return vec3<u32>(p.kernel0, p.kernel1, p.kernel2);
}

fn stride() -> vec3<u32> {
    return vec3<u32>(p.stride0, p.stride1, p.stride2);
}

fn pad() -> vec3<u32> {
    return vec3<u32>(p.pad0, p.pad1, p.pad2);
}

// Input positions under window `o`, without padding.
fn elements_of(o: vec3<u32>) -> Range {
    let start = o * stride();
    let end = min(start + kernel(), pad() + in_extent()) - pad();
    return Range(max(start, pad()) - pad(), end);
}

// Windows that contain input position `x`.
fn windows_of(x: vec3<u32>) -> Range {
    let at = x + pad();
    // A window starts at most kernel - 1 before.
    let first = {{QUOTIENTS}}(max(at + 1u, kernel()) - kernel() + stride() - 1u, stride());
    return Range(first, min({{QUOTIENTS}}(at, stride()) + 1u, out_extent()));
}
