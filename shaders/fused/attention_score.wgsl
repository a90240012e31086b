// What softmax sees of the product of a row of the query and a key. The row t counts within its head, s is the key, and mask_at is
// where the row's mask starts. p.lowest is minus infinity, which cannot be a constant of WGSL.

const LOWEST_FINITE = -3.40282346e38;

// Bits of p.flags.
const CAUSAL = 1u;
const SKIP = 2u;
const KEEP = 4u;
const PENALTY = 8u;
const ZERO_MASKED = 16u;
const HEADS_LAST = 32u;

// Whether key s takes part in row t: by the causal rule and by the mask.
fn is_kept(t: u32, s: u32, mask_at: u32) -> bool {
    return ((s <= t) | ((p.flags & CAUSAL) == 0u)){{KEPT}};
}

fn score(product: f32, kept: bool, s: u32, mask_at: u32) -> f32 {
    let x = product * p.scale{{BIAS}};
    return select(p.fill + select(0.0, x, (p.flags & PENALTY) != 0u), x, kept);
}

fn not_a_number() -> f32 {
    return bitcast<f32>(bitcast<u32>(p.lowest) | 0x400000u);
}
