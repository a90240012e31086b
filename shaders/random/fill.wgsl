// Fills y with random numbers: 128 random bits for each group of outputs (the outputs that
// {{WORDS}} words of the type hold), so that every output depends only on its index. Grid: one
// invocation per group. p.words words are written, and the last group may be cut short. p.first_low
// and p.first_high: the number of 128-bit samples before the first group, 64 bits. Elsewhere: `fn
// store(group, words, n)`, which stores the first n of a group's words; `struct Generator`, `fn
// generator() -> Generator`; `fn draw(counter, key) -> vec4<u32>`, one group's words; SAMPLES, the
// samples reserved for each group, a power of two not above 256.

{{ENTRY}} {
    let group = linear_id(workgroup_id, num_workgroups, local_index);
    let first = group * {{WORDS}}u;
    // Groups far past the end would wrap around; p.words is at most 2^30.
    if group >= 0x40000000u || first >= p.words {
        return;
    }
    let g = generator();
    let before = vec2<u32>(group << {{SAMPLES_LOG2}}u, {{GROUP_HIGH}});
    let counter = philox_skip(philox_skip(g.counter, vec2<u32>(p.first, p.first_high)), before);
    let words = draw(counter, g.key);
    store(group, words, p.words - first);
}
