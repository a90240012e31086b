// Standard normal numbers with those of magnitude 2 and above drawn again, as
// `truncated_normal.wgsl` has them, for software adapters: where neighbouring invocations wait for
// each other, one group each would wait for the one that rejects most. So an invocation has GROUPS
// groups, and begins the next one as soon as it has four numbers of the last. Grid: one invocation
// per GROUPS groups, which are a workgroup apart. p.words words are written, and the last group may
// be cut short. p.first_low and p.first_high: the number of 128-bit samples before the first group,
// 64 bits.

const GROUPS = 16u;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let workgroup = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    // Groups far past the end would wrap around; p.words is at most 2^30.
    if workgroup >= 0x40000000u / (GROUPS * WORKGROUP) {
        return;
    }
    var group = workgroup * GROUPS * WORKGROUP + local_index;
    let end = min(group + GROUPS * WORKGROUP, (p.words + {{WORDS}}u - 1u) / {{WORDS}}u);
    let g = generator();
    let start = philox_skip(g.counter, vec2<u32>(p.first_low, p.first_high));
    var kept = Kept();
    var sample = 0u;
    for (var step = 0u; step < GROUPS * 256u && group < end; step += 1u) {
        let before = vec2<u32>((group << {{SAMPLES_LOG2}}u) + sample, {{GROUP_HIGH}});
        let bits = philox(philox_skip(start, before), g.key);
        let a = box_muller(bits.xy);
        let b = box_muller(bits.zw);
        kept = keep(keep(keep(keep(kept, a.x), a.y), b.x), b.y);
        sample += 1u;
        if kept.count >= 4u || sample == 256u {
            store(group, encode(kept.values), p.words - group * {{WORDS}}u);
            kept = Kept();
            sample = 0u;
            group += WORKGROUP;
        }
    }
}
