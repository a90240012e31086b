// The key and the counter of a stateless op's two seeds, scrambled by one sample, so that seeds
// that differ little give unrelated streams. Grid: one invocation. All are bound as words, the
// least significant first.

{{ENTRY}} {
    let s = p.off_seed;
    let seeds = {{SEEDS}};
    let mix = philox(seeds, vec2<u32>(0x3ec8f720u, 0x02461e29u));
    let k = p.off_key;
    key[k] = mix.x;
    key[k + 1u] = mix.y;
    let c = p.off_counter;
    counter[c] = 0u;
    counter[c + 1u] = 0u;
    counter[c + 2u] = mix.z;
    counter[c + 3u] = mix.w;
}
