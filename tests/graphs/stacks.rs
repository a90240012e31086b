//! Lists of values that a loop's gradient needs on the host.

use expect_test::expect;

use super::{check, refuse};

/// A loop that pushes `x` in each step, and its gradient, which pops.
fn loops(x: &str) -> String {
    format!(
        "preserve y\nc = Placeholder -> bool[]\nn = Placeholder -> int32[]\nany = Const {{dtype: \
         int32, value: tensor int32[] [-1]}} -> int32[]\ne = EmptyTensorList(any, n) \
         {{element_dtype: int32, shape_type: int32}} -> variant[]\nenter = Enter(e) {{T: \
         variant}} -> variant[]\nmerge = Merge(enter, step) {{T: variant}} -> variant[], \
         int32[]\nswitch = Switch(merge, c) {{T: variant}} -> variant[], variant[]\n{x}\npush = \
         TensorListPushBack(switch:1, x) {{element_dtype: int32}} -> variant[]\nstep = \
         NextIteration(push) {{T: variant}} -> variant[]\nexit = Exit(switch) {{T: variant}} -> \
         variant[]\npop = TensorListPopBack(exit, any) {{element_dtype: int32}} -> variant[], \
         int32\ny = Identity(pop:1) {{T: int32}} -> int32"
    )
}

const X: &str = "t = Placeholder -> float32[3, ?]\nx = Shape(t) -> int32[2]";

#[test]
fn lists_that_only_loops_see_become_stacks() {
    check(
        "stacks",
        &loops(X),
        &expect![[r#"
            preserve y
            c = Placeholder -> bool[]
            n = Placeholder -> int32[]
            any = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            e = _WgpuHostStack(any, n) -> int32[?]
            enter = Enter(e) {T: int32} -> int32[?]
            merge = Merge(enter, step) {T: int32} -> int32[?], int32[]
            switch = Switch(merge, c) {T: int32} -> int32[?], int32[?]
            t = Placeholder -> float32[3, ?]
            x = Shape(t) -> int32[2]
            push = _WgpuHostStackPush(switch:1, x) -> int32[?]
            step = NextIteration(push) {T: int32} -> int32[?]
            exit = Exit(switch) {T: int32} -> int32[?]
            pop = _WgpuHostStackPop(exit, any) -> int32[?], int32
            y = Identity(pop:1) {T: int32} -> int32
        "#]],
    );
}

#[test]
fn lists_that_others_see_stay() {
    let text = loops(X);
    // The list has another reader or another source, is passed on, or may be fetched or fed.
    refuse("stacks", &format!("{text}\nl = TensorListLength(exit) -> int32[]"));
    refuse("stacks", &format!("{text}\nf = PartitionedCall(push) -> int32[]"));
    refuse("stacks", &text.replace("EmptyTensorList(any, n)", "TensorListReserve(any, n)"));
    refuse("stacks", &text.replace("exit = Exit(switch)", "exit = PartitionedCall(switch)"));
    refuse("stacks", &text.replace("preserve y", "preserve y, exit"));
    refuse("stacks", &text.replace("preserve y", "preserve y, e"));
    // An element that is on the device.
    refuse("stacks", &loops("x = TensorListGetItem(c, n, n) {element_dtype: int32} -> int32[2]"));
    // Elements of another type, shapes of another type, a list from elsewhere.
    refuse("stacks", &text.replace("element_dtype: int32", "element_dtype: float32"));
    refuse("stacks", &text.replace("shape_type: int32", "shape_type: int64"));
    refuse(
        "stacks",
        &format!(
            "{X}\nz = Placeholder -> variant[]\n{}",
            "p = TensorListPopBack(z, x) {element_dtype: int32}"
        ),
    );
}
