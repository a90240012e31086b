// The definitions that the forward and backward steps of a recurrent layer share. A layer walks
// over the steps of each sequence: in direction 0 from its first to its last, in direction 1 from
// its last to its first. Tensors over all steps have a row for each step and sequence. A sequence
// that is shorter than the others has rows behind its end, which hold zeros and leave its state as
// it is.

alias real = {{REAL}};
// The gates of a unit in a phase of a step, side by side.
alias Gates = {{GATES}};

// Invocations of a workgroup, one for each unit, and its sequences. Each invocation handles all of
// these sequences, so all invocations read the same values of other units.
const UNITS = WORKGROUP;
const ROWS = {{ROWS}}u;
// Numbers of each unit in a row: of saved values, and of gradients.
const SAVED = {{SAVED}}u;
const GRADS = {{SLOTS}}u + 1u;
// Phases of a step.
const PHASES = {{PHASES}}u;
// Positions of a GRU's gates.
const RESET = {{RESET}}u;
const UPDATE = 1u - RESET;

// The values that the units of the workgroup's sequences need of each other, UNITS at a time.
var<workgroup> shared_values: array<{{SHARED}}, ROWS * UNITS>;

// The workgroup's direction, and its number among those that are bound: weights and the values that
// steps keep of their gates are bound direction by direction.
var<private> direction: u32;
var<private> place: u32;

// Where the weights of the direction begin.
fn weights_of_direction() -> u32 {
    return p.off_weights + place * p.direction_weights;
}

// Where a row's gates are, and their gradients.
fn gates_at(row: u32, unit: u32) -> u32 {
    return (row + place * p.direction_rows) * SAVED * p.units + unit;
}

fn grads_at(row: u32, unit: u32) -> u32 {
    return (row + place * p.direction_rows) * GRADS * p.units + unit;
}

// Where a row's outputs are.
fn y_at(row: u32, unit: u32) -> u32 {
    return row * p.y_width + direction * p.units + unit;
}

// Steps of a sequence.
fn length(sequence: u32) -> u32 {
    return {{LENGTH}};
}

// The row of step `step` of a sequence, counted from the first that is bound.
fn row_of(sequence: u32, step: u32) -> u32 {
    let steps = length(sequence);
    var time = step;
    if direction != 0u && step < steps {
        time = steps - 1u - step;
    }
    return time * p.step_rows + sequence * p.sequence_rows - p.first_row;
}

// Where a sequence's output before the first step is. Its cell's state is p.cell_part behind it.
fn state_of(sequence: u32, unit: u32) -> u32 {
    return p.state_at + direction * p.state_direction + sequence * p.state_stride + unit;
}

// Output of a unit in front of step `step`.
fn output_before(sequence: u32, step: u32, unit: u32) -> real {
    let done = min(step, length(sequence));
    if done == 0u {
        return load_state(state_of(sequence, unit));
    }
    return load_y(y_at(row_of(sequence, done - 1u), unit));
}
