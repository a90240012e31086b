// Flags and limits that the programs of attention share. p.lowest is minus infinity, which cannot
// be a constant of WGSL.

const LOWEST_FINITE = -3.40282346e38;

// Bits of p.flags.
const CAUSAL = 1u;
const SKIP = 2u;
const KEEP = 4u;
const PENALTY = 8u;
const ZERO_MASKED = 16u;
const HEADS_LAST = 32u;

fn not_a_number() -> f32 {
    return bitcast<f32>(bitcast<u32>(p.lowest) | 0x400000u);
}
