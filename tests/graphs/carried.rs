//! Stacks that loops carry.

use super::{after, refuse};

/// A loop that carries the stack of `k` and `v`. A step takes both out, adds `d` to each and stacks
/// them again.
fn looped(replaced: &[(&str, &str)]) -> String {
    let text = "preserve out
         k = Placeholder -> float32[4, 8]
         v = Placeholder -> float32[4, 8]
         d = Placeholder -> float32[]
         stack = Pack(k, v) {N: 2, T: float32, axis: 1} -> float32[4, 2, 8]
         more = LoopCond(test) -> bool[]
         test = Custom(n) -> bool[]
         i = Enter(d) {T: float32, frame_name: \"f\", is_constant: false, parallel_iterations: 10} \
         -> float32[]
         n = Merge(i, o) {N: 2, T: float32} -> float32[], int32[]
         w = Switch(n, more) {T: float32} -> float32[], float32[]
         o = NextIteration(w:1) {T: float32} -> float32[]
         e = Enter(stack) {T: float32, frame_name: \"f\", is_constant: false, \
         parallel_iterations: 10} -> float32[4, 2, 8]
         m = Merge(e, next) {N: 2, T: float32} -> float32[4, 2, 8], int32[]
         s = Switch(m, more) {T: float32} -> float32[4, 2, 8], float32[4, 2, 8]
         pivot = Identity(w:1) {T: float32} -> float32[]
         zero = Const(^pivot) {dtype: int32, value: tensor int32[2] [0, 0]} -> int32[2]
         one = Const(^pivot) {dtype: int32, value: tensor int32[2] [0, 1]} -> int32[2]
         two = Const(^pivot) {dtype: int32, value: tensor int32[2] [0, 2]} -> int32[2]
         ones = Const(^pivot) {dtype: int32, value: tensor int32[2] [1, 1]} -> int32[2]
         a = StridedSlice(s:1, zero, one, ones) {Index: int32, T: float32, begin_mask: 1, \
         ellipsis_mask: 0, end_mask: 1, new_axis_mask: 0, shrink_axis_mask: 2} -> float32[4, 8]
         b = StridedSlice(s:1, one, two, ones) {Index: int32, T: float32, begin_mask: 1, \
         ellipsis_mask: 0, end_mask: 1, new_axis_mask: 0, shrink_axis_mask: 2} -> float32[4, 8]
         x = AddV2(a, w:1) {T: float32} -> float32[4, 8]
         y = AddV2(b, w:1) {T: float32} -> float32[4, 8]
         again = Pack(x, y) {N: 2, T: float32, axis: 1} -> float32[4, 2, 8]
         next = NextIteration(again) {T: float32} -> float32[4, 2, 8]
         last = Exit(s) {T: float32} -> float32[4, 2, 8]
         out = Identity(last) {T: float32}";
    replaced.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn check(text: &str, lines: &[&str]) {
    let after = after("carried", text);
    for line in lines {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
    for op in ["StridedSlice", "\nagain = ", "\nnext = ", "\ns = "] {
        assert!(!after.contains(op), "{op} is in\n{after}");
    }
}

#[test]
fn their_tensors_are_carried_one_by_one() {
    check(
        &looped(&[]),
        &[
            "e/part = Enter(k)",
            "m/part = Merge(e/part, next/part)",
            "s/part = Switch(m/part, more)",
            "x = AddV2(s/part:1, w:1)",
            "next/part = NextIteration(x)",
            "y = AddV2(s/part_1:1, w:1)",
            "next/part_1 = NextIteration(y)",
            "last/stack = Pack(last/part, last/part_1) {N: 2, T: float32, axis: 1}",
            "out = Identity(last/stack)",
        ],
    );
}

#[test]
fn a_step_may_leave_a_tensor_as_it_is_or_exchange_two() {
    check(
        &looped(&[(
            "Pack(x, y) {N: 2, T: float32, axis: 1}",
            "Pack(b, x) {N: 2, T: float32, axis: -2}",
        )]),
        &["next/part = NextIteration(s/part_1:1)", "next/part_1 = NextIteration(x)"],
    );
}

/// TensorFlow's copy of the stack in the body of the loop, which `a` and `b` read. It waits for
/// `control`.
fn copied(control: &str) -> [(&'static str, String); 3] {
    let copy = format!(
        "copy = Identity(s:1, ^{control}) {{T: float32}} -> float32[4, 2, 8]\n\
         x = AddV2(a, w:1)"
    );
    let read = |slice: &str| slice.replace("s:1", "copy");
    [
        ("x = AddV2(a, w:1)", copy),
        ("(s:1, zero, one, ones)", read("(s:1, zero, one, ones)")),
        ("(s:1, one, two, ones)", read("(s:1, one, two, ones)")),
    ]
}

#[test]
fn a_copy_in_the_body_is_passed() {
    let replaced = copied("pivot");
    let mut replaced: Vec<(&str, &str)> = replaced.iter().map(|(a, b)| (*a, &**b)).collect();
    let lines = ["x = AddV2(s/part:1, w:1)", "y = AddV2(s/part_1:1, w:1)"];
    check(&looped(&replaced), &lines);
    replaced.push(("y = AddV2(b, w:1)", "y = AddV2(b, w:1, ^copy)"));
    check(&looped(&replaced), &["y = AddV2(s/part_1:1, w:1, ^s/part/"]);
    let replaced = copied("d");
    let replaced: Vec<(&str, &str)> = replaced.iter().map(|(a, b)| (*a, &**b)).collect();
    refuse("carried", &looped(&replaced));
}

#[test]
fn a_stack_that_another_op_makes_is_taken_apart_in_front_of_the_loop() {
    let made = &[
        ("stack = Pack(k, v) {N: 2, T: float32, axis: 1}", "stack = Placeholder"),
        ("out = Identity(last) {T: float32}", "out = NoOp(^last)"),
    ];
    check(
        &looped(made),
        &[
            "e/unstack = Unpack(stack) {T: float32, axis: 1, num: 2}",
            "e/part_1 = Enter(e/unstack:1)",
            "out = NoOp(^last/part)",
        ],
    );
}

#[test]
fn others_stay() {
    for replaced in [
        // The loop's end needs the stack, which no node of the graph packs.
        &[("stack = Pack(k, v) {N: 2, T: float32, axis: 1}", "stack = Placeholder")][..],
        // A node reads all of it, or a part that is no tensor of the stack.
        &[(
            "x = AddV2(a, w:1)",
            "z = Neg(s:1) {T: float32} -> float32[4, 2, 8]\nx = AddV2(a, w:1)",
        )],
        &[
            ("(s:1, zero, one, ones)", "(s:1, one, two, two)"),
            ("shrink_axis_mask: 2", "shrink_axis_mask: 1"),
        ],
        // It is stacked along another axis.
        &[(
            "again = Pack(x, y) {N: 2, T: float32, axis: 1}",
            "again = Pack(x, y) {N: 2, T: float32, axis: 0}",
        )],
        // Something else reads the new stack, or the loop decides by it.
        &[("last = Exit(s)", "z = Neg(again) {T: float32} -> float32[4, 2, 8]\nlast = Exit(s)")],
        &[("test = Custom(n)", "test = Custom(m)")],
        // A tensor that is there in every iteration would begin further steps.
        &[
            (
                "d = Placeholder",
                "g = Placeholder -> float32[4, 8]
                 f = Enter(g) {T: float32, frame_name: \"f\", is_constant: true, \
                 parallel_iterations: 10} -> float32[4, 8]
                 d = Placeholder",
            ),
            ("again = Pack(x, y)", "again = Pack(x, f)"),
        ],
        // Nodes are kept by their names.
        &[("preserve out", "preserve out, again")],
        &[("preserve out", "preserve out, a")],
    ] {
        refuse("carried", &looped(replaced));
    }
}

/// A loop that chooses the next number of a text, which TensorFlow carries on the CPU, and writes
/// it into the text.
fn text(replaced: &[(&str, &str)]) -> String {
    let text = "preserve out
         text = Placeholder @CPU:0 -> int32[2, 9]
         scores = Placeholder -> float32[2, 50]
         at = Placeholder -> int32[2]
         more = LoopCond(test) -> bool[]
         test = Custom(n) -> bool[]
         i = Enter(at) {T: int32, frame_name: \"f\", is_constant: false, parallel_iterations: 10} \
         -> int32[2]
         n = Merge(i, o) {N: 2, T: int32} -> int32[2], int32[]
         w = Switch(n, more) {T: int32} -> int32[2], int32[2]
         o = NextIteration(w:1) {T: int32} -> int32[2]
         pivot = Identity(w:1) {T: int32} -> int32[2]
         c = Enter(scores) {T: float32, frame_name: \"f\", is_constant: true, \
         parallel_iterations: 10} -> float32[2, 50]
         e = Enter(text) {T: int32, frame_name: \"f\", is_constant: false, parallel_iterations: \
         10} @CPU:0 -> int32[2, 9]
         m = Merge(e, next) {N: 2, T: int32} @CPU:0 -> int32[2, 9], int32[]
         s = Switch(m, more) {T: int32} @CPU:0 -> int32[2, 9], int32[2, 9]
         copy = Identity(s:1, ^pivot) {T: int32} @CPU:0 -> int32[2, 9]
         one = Const(^pivot) {dtype: int32, value: tensor int32[] [1]} -> int32[]
         size = Const(^pivot) {dtype: int32, value: tensor int32[2] [2, 1]} -> int32[2]
         last = Slice(copy, w:1, size) {Index: int32, T: int32} -> int32[2, 1]
         raised = AddV2(last, one) {T: int32} -> int32[2, 1]
         y = GatherV2(c, raised, one) {Taxis: int32, Tindices: int32, Tparams: float32, \
         batch_dims: 0} -> float32[2, 2, 1]
         flat = Reshape(y, size) {T: float32, Tshape: int32} -> float32[2, 2]
         best = ArgMax(flat, one) {T: float32, Tidx: int32, output_type: int32} -> int32[2]
         column = ExpandDims(best, one) {T: int32, Tdim: int32} -> int32[2, 1]
         written = XlaDynamicUpdateSlice(copy, column, w:1) {T: int32, Tindices: int32} -> \
         int32[2, 9]
         again = Identity(written, ^y) {T: int32} -> int32[2, 9]
         next = NextIteration(again) {T: int32} @CPU:0 -> int32[2, 9]
         end = Exit(s) {T: int32} @CPU:0 -> int32[2, 9]
         out = Identity(end) {T: int32} -> int32[2, 9]";
    replaced.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn numbers_that_the_device_writes_stay_there() {
    let after = after("carried", &text(&[]));
    for line in [
        "text/bits = Bitcast(text) {T: int32, type: float32}",
        "e/part = Enter(text/bits) {T: float32",
        "last = Slice(s/part:1, w:1, size) {Index: int32, T: float32}",
        "last/bits = Bitcast(last) {T: float32, type: int32}",
        "raised = AddV2(last/bits, one) {T: int32}",
        "best/bits = Bitcast(best) {T: int32, type: float32}",
        "column = ExpandDims(best/bits, one) {T: float32, Tdim: int32}",
        "written = XlaDynamicUpdateSlice(s/part:1, column, w:1) {T: float32, Tindices: int32}",
        "again = Identity(written, ^y) {T: float32}",
        "next/part = NextIteration(again) {T: float32}",
        "end/part/bits = Bitcast(end/part) {T: float32, type: int32}",
        "out = Identity(end/part/bits) {T: int32}",
        // The nodes of the other device pass the text on, and no node reads it there.
        "next = NextIteration(s:1) {T: int32} @CPU:0",
    ] {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
}

#[test]
fn a_variable_on_the_device_is_replaced() {
    let after = after("carried", &text(&[]).replace(" @CPU:0", ""));
    for line in ["s/part = Switch(m/part, more)", "next/part = NextIteration(again)"] {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
    for node in ["\nm = ", "\nnext = ", "\nend = "] {
        assert!(!after.contains(node), "{node} is in\n{after}");
    }
}

#[test]
fn numbers_that_are_drawn_from_a_list_stay_there() {
    let drawn = &[(
        "column = ExpandDims(best, one)",
        "list = Placeholder -> int32[30, 1]
         inside = Enter(list) {T: int32, frame_name: \"f\", is_constant: true, \
         parallel_iterations: 10} -> int32[30, 1]
         zero = Const(^pivot) {dtype: int32, value: tensor int32[] [0]} -> int32[]
         drawn = GatherV2(inside, best, zero) {Taxis: int32, Tindices: int32, Tparams: int32, \
         batch_dims: 0} -> int32[2, 1]
         number = Squeeze(drawn) {T: int32, squeeze_dims: [1]} -> int32[2]
         other = AddV2(number, one) {T: int32} -> int32[2]
         column = ExpandDims(other, one)",
    )];
    let after = after("carried", &text(drawn));
    for line in [
        "number = Squeeze(drawn/bits) {T: float32",
        "other = AddV2(number/bits, one) {T: int32}",
        "column = ExpandDims(other/bits, one) {T: float32, Tdim: int32}",
    ] {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
}

#[test]
fn numbers_that_the_host_writes_stay_there() {
    for replaced in [
        &[("again = Identity(written, ^y)", "again = Identity(copy, ^y)")][..],
        &[("{T: int32, Tindices: int32} ->", "{T: int32, Tindices: int32} @CPU:0 ->")],
    ] {
        refuse("carried", &text(replaced));
    }
}
