// The probabilities of the ends of all paths, from the last step to the first. Leaves in `alpha`
// the probabilities of the paths through each position. Two rows of each sequence in `beta` hold
// the step that was computed last and the one behind it, each with its own step's probability.
// Grid: a workgroup for each sequence.

{{ENTRY}} {
    let own = linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    let sequence = p.first_sequence + own;
    let exists = sequence < p.end_sequence;
    let plan_at = select(0u, sequence, exists) * SEQUENCE_WORDS;
    let steps = select(0u, load_plan(plan_at), exists);
    let positions = load_plan(plan_at + 1u);
    let rows_at = load_plan(plan_at + 2u);
    let labels_at = load_plan(plan_at + 3u);
    for (var done = 0u; done < p.steps; done += 1u) {
        let step = p.first_step + (p.steps - 1u - done);
        if step < steps {
            let here_at = (own * 2u + (step & 1u)) * p.most_positions;
            let behind_at = (own * 2u + (~step & 1u)) * p.most_positions;
            for (var at = local_index; at < positions; at += WORKGROUP) {
                var sum = LOG_NOTHING;
                if step + 1u == steps {
                    if at + 2u >= positions {
                        sum = {{ZERO}};
                    }
                } else {
                    if p.merge != 0u || !is_label(at) {
                        sum = load_beta(behind_at + at);
                    }
                    if at + 1u < positions {
                        sum = {{LOG_SUM_EXP}}(sum, load_beta(behind_at + at + 1u));
                    }
                    if at + 2u < positions && skips(labels_at, at + 2u) {
                        sum = {{LOG_SUM_EXP}}(sum, load_beta(behind_at + at + 2u));
                    }
                }
                sum = floored(sum);
                let here = load_y(classes_at(sequence, step) + class_of(labels_at, at));
                store_beta(here_at + at, floored(sum + floored(here)));
                let place = rows_at + step * positions + at;
                store_alpha(place, load_alpha(place) + sum);
            }
        }
        storageBarrier();
    }
}
