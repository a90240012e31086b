// The definitions that the programs of CTCLoss share. A sequence's path visits positions: a blank,
// then each label and a blank behind it. The values of a position at a step are logarithms of
// probabilities; the rows of a sequence lie one behind the other in `alpha`.
//
// The plan holds SEQUENCE_WORDS words for each sequence: its steps (0 where it is left out), its
// positions, where its rows begin in `alpha`, and where its labels begin in the plan. A label has
// its class, and a word with the number of the next label of that class, plus 1, and FIRST if no
// earlier label has that class.

alias real = {{REAL}};

const SEQUENCE_WORDS = 4u;
const FIRST = 0x80000000u;
// The logarithm of a zero probability. A sum of two is still a finite number.
const LOG_NOTHING = {{LOG_NOTHING}};

// x, or LOG_NOTHING if x is less.
fn floored(x: real) -> real {
    return select(x, LOG_NOTHING, x < LOG_NOTHING);
}

fn is_label(position: u32) -> bool {
    return (position & 1u) != 0u;
}

// The class of a position; labels_at is where the sequence's labels begin.
fn class_of(labels_at: u32, position: u32) -> u32 {
    if !is_label(position) {
        return p.blank;
    }
    return load_plan(labels_at + (position >> 1u) * 2u);
}

// Where the classes of a step of a sequence begin in the bound range.
fn classes_at(sequence: u32, step: u32) -> u32 {
    return ((step - p.first_step) * p.batch + sequence) * p.classes;
}

// Whether a path goes from position - 2 to this one, which is a label, without the blank between.
fn skips(labels_at: u32, position: u32) -> bool {
    return is_label(position) && position > 1u && (p.merge == 0u
        || class_of(labels_at, position) != class_of(labels_at, position - 2u));
}
