// The phases of the steps of one dispatch: p.phases from p.first on, counted over all steps. At
// each, an invocation sums over all units of each of its sequences.
//
// Grid: a workgroup for every ROWS sequences (fastest), every UNITS units (next) and every
// direction. A workgroup that has all units takes any number of phases: the values that one phase
// leaves in workgroup memory serve the next one. A workgroup that has some of the units takes one
// phase.

{{ENTRY}} {
    let group = linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    let groups = p.tiles * p.slices;
    if group >= groups * p.directions {
        return;
    }
    place = group / groups;
    direction = p.first_direction + place;
    let first_sequence = p.first_sequence + group % p.tiles * ROWS;
    let unit = group / p.tiles % p.slices * UNITS + local_index;
    {{BEGIN}}
    for (var done = 0u; done < p.phases; done += 1u) {
        let step = {{STEP}};
        let phase = {{PHASE}};
        {{DECLARE}}
        for (var chunk = 0u; chunk < p.units; chunk += UNITS) {
            if done == 0u {
                for (var i = local_index; i < ROWS * UNITS; i += UNITS) {
                    let sequence = first_sequence + i / UNITS;
                    let other = chunk + i % UNITS;
                    var value = {{NOTHING}};
                    if sequence < p.sequences_end && other < p.units {
                        value = {{LOAD}};
                    }
                    shared_values[i] = value;
                }
            }
            workgroupBarrier();
            let others = min(UNITS, p.units - chunk);
            let weights_at = weights_of_direction() + (phase * p.units + chunk) * p.units;
            {{SUM}}
            workgroupBarrier();
        }
        if unit < p.units {
            {{FINISH_ROWS}}
        }
    }
    if unit < p.units {
        {{KEEP}}
    }
}
