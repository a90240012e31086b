// The scores that softmax sees for the products of a row of the query and four keys from 4c on. The
// row t counts within its head, and mask_at is where the row's mask starts, in vec4s.

// Which of the keys take part in row t: by the causal rule and by the mask.
fn are_kept(t: u32, c: u32, mask_at: u32) -> vec4<bool> {
    let s = vec4<u32>(c * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    return ((s <= vec4<u32>(t)) | vec4<bool>((p.flags & CAUSAL) == 0u)){{KEPT}};
}

fn scores_of(products: vec4<f32>, kept: vec4<bool>, c: u32, mask_at: u32) -> vec4<f32> {
    let x = products * p.scale;
    let y = {{CAPPED}}{{BIAS}};
    // This is not `vec4<f32>()`, which naga would define in HLSL both for this function and for the
    // entry point.
    let penalty = select(vec4<f32>(0.0), y, vec4<bool>((p.flags & PENALTY) != 0u));
    return select(vec4<f32>(p.fill) + penalty, y, kept);
}
