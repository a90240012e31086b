// The probabilities of the beginnings of all paths, step by step. Grid: a workgroup for each
// sequence.

{{ENTRY}} {
    let sequence = p.first_sequence + linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    let exists = sequence < p.end_sequence;
    let plan_at = select(0u, sequence, exists) * SEQUENCE_WORDS;
    let steps = select(0u, load_plan(plan_at), exists);
    let positions = load_plan(plan_at + 1u);
    let rows_at = load_plan(plan_at + 2u);
    let labels_at = load_plan(plan_at + 3u);
    for (var done = 0u; done < p.steps; done += 1u) {
        let step = p.first_step + done;
        if step < steps {
            let row_at = rows_at + step * positions;
            for (var at = local_index; at < positions; at += WORKGROUP) {
                var sum = LOG_NOTHING;
                if step == 0u {
                    if at < 2u {
                        sum = {{ZERO}};
                    }
                } else {
                    let before = row_at - positions + at;
                    if p.merge != 0u || !is_label(at) {
                        sum = load_alpha(before);
                    }
                    if at > 0u {
                        sum = {{LOG_SUM_EXP}}(sum, load_alpha(before - 1u));
                    }
                    if skips(labels_at, at) {
                        sum = {{LOG_SUM_EXP}}(sum, load_alpha(before - 2u));
                    }
                }
                let here = load_y(classes_at(sequence, step) + class_of(labels_at, at));
                store_alpha(row_at + at, floored(sum + floored(here)));
            }
        }
        storageBarrier();
    }
}
