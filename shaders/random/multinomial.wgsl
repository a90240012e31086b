// Draws classes with the probabilities softmax(logits) by the Gumbel-max trick, as TensorFlow's GPU
// kernel does: class c of row r gets the score logits[c] - ln(-ln u) with the uniform number u at
// index r * classes + c of the stream, and the largest score wins (of equal ones the last class). u
// = 0 counts as 2e-30. Grid: one workgroup per output. p.rows = batch * samples outputs; p.samples
// of them share a row of logits. `first_class`, `end_class` and `finish` come from
// `multinomial_whole`, or from `multinomial_cut`, where a dispatch takes some of the classes.

var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> classes: array<u32, WORKGROUP>;

// There is no class yet.
const NONE = 0xffffffffu;

fn gumbel(m: u32) -> f32 {
    var minus_log = 68.384406f;
    if m != 0u {
        minus_log = 0.5f * minus_two_log(m);
    }
    return -log(minus_log);
}

fn wins(score: f32, candidate: u32, best_score: f32, best_class: u32) -> bool {
    return candidate != NONE && (best_class == NONE || score > best_score || (score == best_score
        && candidate > best_class));
}

{{ENTRY}} {
    let lane = local_index;
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if row >= p.rows {
        return;
    }
    let logits_row = (row / p.samples) * p.classes;
    let first = row * p.classes;
    let low = first + first_class();
    let high = first + end_class();
    let start = p.counter[0];
    let key = p.key[0].xy;

    // Each invocation takes whole samples of four numbers; parts of the row's first and last
    // samples may belong to its neighbours.
    var best_score = 0.0f;
    var best_class = NONE;
    let last_group = (high - 1u) / 4u;
    for (var group = low / 4u + lane; group <= last_group; group += WORKGROUP) {
        let bits = philox(philox_skip(start, vec2<u32>(group, 0u)), key);
        for (var k = 0u; k < 4u; k += 1u) {
            let index = group * 4u + k;
            if index >= low && index < high {
                let score = f32(load_logits(logits_row + index - first))
                    + gumbel(bits[k] & 0x7fffffu);
                if wins(score, index - first, best_score, best_class) {
                    best_score = score;
                    best_class = index - first;
                }
            }
        }
    }

    scores[lane] = best_score;
    classes[lane] = best_class;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half && wins(scores[lane + half], classes[lane + half], scores[lane],
            classes[lane]) {
            scores[lane] = scores[lane + half];
            classes[lane] = classes[lane + half];
        }
    }
    if lane == 0u {
        finish(row, scores[0], classes[0]);
    }
}
