// Fills y with random numbers, two groups of outputs for each invocation: for software adapters,
// which wait for one group's products while they compute the other's, and store wider words. Bits
// are those of `fill.wgsl`. Grid: one invocation per pair of groups. p.words is a multiple of the
// {{WORDS}} words of a group, twice. Elsewhere: `fn store_pair(pair, first, second)`, and as in
// `fill.wgsl`.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let pair = linear_id(workgroup_id, num_workgroups, local_index);
    // Pairs far past the end would wrap around; p.words is at most 2^30.
    if pair >= 0x20000000u || pair * 2u * {{WORDS}}u >= p.words {
        return;
    }
    let g = generator();
    let start = philox_skip(g.counter, vec2<u32>(p.first_low, p.first_high));
    let first = draw(philox_skip(start, vec2<u32>(2u * pair, 0u)), g.key);
    let second = draw(philox_skip(start, vec2<u32>(2u * pair + 1u, 0u)), g.key);
    store_pair(pair, first, second);
}
