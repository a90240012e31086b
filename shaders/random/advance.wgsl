// Advances the 128-bit counter at the start of `state` by the 64-bit number p.samples.
// Grid: one invocation. `state` is bound as four words, the least significant first.

{{ENTRY}} {
    let at = p.off_state;
    let counter = vec4<u32>(state[at], state[at + 1u], state[at + 2u], state[at + 3u]);
    let next = philox_skip(counter, vec2<u32>(p.samples, p.samples_high));
    state[at] = next.x;
    state[at + 1u] = next.y;
    state[at + 2u] = next.z;
    state[at + 3u] = next.w;
}
