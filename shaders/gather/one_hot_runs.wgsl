// dst[a, d] = on where indices[a] is d, else off, 16 bytes at a time: none of these units reaches
// from one vector into the next. Grid: one invocation per unit.

const LANES = {{LANES}}u;

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let a = t / p.runs;
    // The element of the unit that is on; beyond the unit, often by wrapping, if none is.
    let hit = row_of(a) - (t - a * p.runs) * p.per_run;
    let word = hit / LANES;
    let mask = select(vec4(0u), vec4({{MASK}}u << ((hit % LANES) * {{BITS}}u)),
        {{WORDS}} == vec4(word));
    dst[p.off_dst + t] = ({{OFF}} & ~mask) | ({{ON}} & mask);
}
