// The gradient, and the loss: the classes' probabilities, less their share of the paths. `y` holds
// logarithms and becomes the gradient. Grid: a workgroup for each step and sequence.

var<workgroup> sums: array<real, WORKGROUP>;

// The share of the paths that go through a position.
fn share(place: u32, total: real) -> real {
    let distance = load_alpha(place) - total;
    if distance < {{FAR}} {
        return {{ZERO}};
    }
    return {{EXP}}(distance);
}

{{ENTRY}} {
    let row = linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    let sequences = p.end_sequence - p.first_sequence;
    let exists = row < p.steps * sequences;
    let sequence = p.first_sequence + row % sequences;
    let step = p.first_step + row / sequences;
    let plan_at = sequence * SEQUENCE_WORDS;
    let steps = load_plan(plan_at);
    let positions = load_plan(plan_at + 1u);
    let rows_at = load_plan(plan_at + 2u);
    let labels_at = load_plan(plan_at + 3u);
    let lives = exists && step < steps;
    let y_at = classes_at(sequence, step);
    let row_at = rows_at + step * positions;
    var total = LOG_NOTHING;
    if lives {
        let last = rows_at + steps * positions - 1u;
        total = load_alpha(last);
        if positions > 1u {
            total = {{LOG_SUM_EXP}}(total, load_alpha(last - 1u));
        }
    }
    // Where no path exists, nothing is subtracted.
    let none = total <= LOG_NOTHING;
    if exists && step == 0u && local_index == 0u {
        var loss = -total;
        if steps == 0u {
            loss = {{ZERO}};
        } else if none {
            loss = {{INFINITY}};
        }
        store_loss(sequence, loss);
    }
    if exists {
        for (var c = local_index; c < p.classes; c += WORKGROUP) {
            var value = {{ZERO}};
            if lives {
                value = {{EXP}}(load_y(y_at + c));
            }
            store_y(y_at + c, value);
        }
    }
    var blanks = {{ZERO}};
    if lives && !none {
        for (var at = local_index * 2u; at < positions; at += WORKGROUP * 2u) {
            blanks += share(row_at + at, total);
        }
    }
    sums[local_index] = blanks;
    storageBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local_index < half {
            sums[local_index] += sums[local_index + half];
        }
    }
    if !lives || none {
        return;
    }
    if local_index == 0u {
        let blank = y_at + p.blank;
        store_y(blank, load_y(blank) - sums[0]);
    }
    let labels = positions / 2u;
    for (var first = local_index; first < labels; first += WORKGROUP) {
        var next = load_plan(labels_at + first * 2u + 1u);
        if (next & FIRST) != 0u {
            var sum = share(row_at + first * 2u + 1u, total);
            next &= ~FIRST;
            for (var more = 1u; more < labels && next != 0u; more += 1u) {
                sum += share(row_at + (next - 1u) * 2u + 1u, total);
                next = load_plan(labels_at + (next - 1u) * 2u + 1u) & ~FIRST;
            }
            let place = y_at + load_plan(labels_at + first * 2u);
            store_y(place, load_y(place) - sum);
        }
    }
}
