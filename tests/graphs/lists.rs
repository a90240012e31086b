//! Shapes that come out of lists.

use expect_test::expect;

use super::{check, refuse};

/// A loop that pushes `x` into a list in each step, and another one that takes elements out again; what `BODY` computes from the `popped` one
/// as `next` is carried to the next step.
fn loops(x: &str, body: &str) -> String {
    format!(
        "preserve y\n\
         c = Placeholder -> bool[]\n\
         z = Placeholder -> float32[4, 8]\n\
         e = EmptyTensorList(c) {{element_dtype: float32}} -> variant[]\n\
         enter = Enter(e) {{T: variant}} -> variant[]\n\
         merge = Merge(enter, step) {{T: variant}} -> variant[], int32[]\n\
         switch = Switch(merge, c) {{T: variant}} -> variant[], variant[]\n\
         {x}\n\
         push = TensorListPushBack(switch:1, x) {{element_dtype: float32}} -> variant[]\n\
         step = NextIteration(push) {{T: variant}} -> variant[]\n\
         exit = Exit(switch) {{T: variant}} -> variant[]\n\
         lists = Enter(exit) {{T: variant}} -> variant[]\n\
         list = Merge(lists, left) {{T: variant}} -> variant[], int32[]\n\
         zero = Enter(z) {{T: float32}} -> float32[4, 8]\n\
         sum = Merge(zero, after) {{T: float32}} -> float32, int32[]\n\
         popped = TensorListPopBack(list, c) {{element_dtype: float32}} -> variant[], float32\n\
         left = NextIteration(popped) {{T: variant}} -> variant[]\n\
         {body}\n\
         after = NextIteration(next) {{T: float32}} -> float32\n\
         y = Exit(sum) {{T: float32}} -> float32"
    )
}

const X: &str = "x = Placeholder -> float32[4, 8]";

#[test]
fn what_is_pushed_comes_out_again_and_is_carried_on() {
    check(
        "lists",
        &loops(
            X,
            "t = Mul(popped:1, sum) {T: float32} -> float32\nnext = TanhGrad(popped:1, t) {T: float32} -> float32",
        ),
        &expect![[r#"
            preserve y
            c = Placeholder -> bool[]
            z = Placeholder -> float32[4, 8]
            e = EmptyTensorList(c) {element_dtype: float32} -> variant[]
            enter = Enter(e) {T: variant} -> variant[]
            merge = Merge(enter, step) {T: variant} -> variant[], int32[]
            switch = Switch(merge, c) {T: variant} -> variant[], variant[]
            x = Placeholder -> float32[4, 8]
            push = TensorListPushBack(switch:1, x) {element_dtype: float32} -> variant[]
            step = NextIteration(push) {T: variant} -> variant[]
            exit = Exit(switch) {T: variant} -> variant[]
            lists = Enter(exit) {T: variant} -> variant[]
            list = Merge(lists, left) {T: variant} -> variant[], int32[]
            zero = Enter(z) {T: float32} -> float32[4, 8]
            sum = Merge(zero, after) {T: float32} -> float32[4, 8], int32[]
            popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], float32[4, 8]
            left = NextIteration(popped) {T: variant} -> variant[]
            t = Mul(popped:1, sum) {T: float32} -> float32[4, 8]
            next = TanhGrad(popped:1, t) {T: float32} -> float32[4, 8]
            after = NextIteration(next) {T: float32} -> float32[4, 8]
            y = Exit(sum) {T: float32} -> float32[4, 8]
        "#]],
    );
}

#[test]
fn what_a_step_changes_is_not_known() {
    check(
        "lists",
        &loops(
            X,
            "axis = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]\n\
             next = ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32",
        ),
        &expect![[r#"
            preserve y
            c = Placeholder -> bool[]
            z = Placeholder -> float32[4, 8]
            e = EmptyTensorList(c) {element_dtype: float32} -> variant[]
            enter = Enter(e) {T: variant} -> variant[]
            merge = Merge(enter, step) {T: variant} -> variant[], int32[]
            switch = Switch(merge, c) {T: variant} -> variant[], variant[]
            x = Placeholder -> float32[4, 8]
            push = TensorListPushBack(switch:1, x) {element_dtype: float32} -> variant[]
            step = NextIteration(push) {T: variant} -> variant[]
            exit = Exit(switch) {T: variant} -> variant[]
            lists = Enter(exit) {T: variant} -> variant[]
            list = Merge(lists, left) {T: variant} -> variant[], int32[]
            zero = Enter(z) {T: float32} -> float32[4, 8]
            sum = Merge(zero, after) {T: float32} -> float32, int32[]
            popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], float32[4, 8]
            left = NextIteration(popped) {T: variant} -> variant[]
            axis = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
            next = ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32
            after = NextIteration(next) {T: float32} -> float32
            y = Exit(sum) {T: float32} -> float32
        "#]],
    );
}

#[test]
fn products_and_concatenations_have_shapes() {
    check(
        "lists",
        &loops(
            X,
            "axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]\n\
             wide = ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32\n\
             square = MatMul(popped:1, wide) {T: float32, transpose_a: true, transpose_b: false} -> float32\n\
             scaled = Mul(square, axis) {T: float32} -> float32\n\
             next = AddN(sum, popped:1) {N: 2, T: float32} -> float32",
        ),
        &expect![[r#"
            preserve y
            c = Placeholder -> bool[]
            z = Placeholder -> float32[4, 8]
            e = EmptyTensorList(c) {element_dtype: float32} -> variant[]
            enter = Enter(e) {T: variant} -> variant[]
            merge = Merge(enter, step) {T: variant} -> variant[], int32[]
            switch = Switch(merge, c) {T: variant} -> variant[], variant[]
            x = Placeholder -> float32[4, 8]
            push = TensorListPushBack(switch:1, x) {element_dtype: float32} -> variant[]
            step = NextIteration(push) {T: variant} -> variant[]
            exit = Exit(switch) {T: variant} -> variant[]
            lists = Enter(exit) {T: variant} -> variant[]
            list = Merge(lists, left) {T: variant} -> variant[], int32[]
            zero = Enter(z) {T: float32} -> float32[4, 8]
            sum = Merge(zero, after) {T: float32} -> float32[4, 8], int32[]
            popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], float32[4, 8]
            left = NextIteration(popped) {T: variant} -> variant[]
            axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            wide = ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32[4, 16]
            square = MatMul(popped:1, wide) {T: float32, transpose_a: true, transpose_b: false} -> float32[8, 16]
            scaled = Mul(square, axis) {T: float32} -> float32[8, 16]
            next = AddN(sum, popped:1) {N: 2, T: float32} -> float32[4, 8]
            after = NextIteration(next) {T: float32} -> float32[4, 8]
            y = Exit(sum) {T: float32} -> float32[4, 8]
        "#]],
    );
}

#[test]
fn an_extent_is_the_same_in_each_step_if_it_is_one_outside_of_loops() {
    // The batch of an argument.
    let next = "next = Mul(popped:1, popped:1) {T: float32} -> float32";
    let argument = "a = Placeholder -> float32[?2, 8]\ninside = Enter(a) {T: float32} -> float32[?2, 8]\n\
                    x = Relu(inside) {T: float32} -> float32[?2, 8]";
    check(
        "lists",
        &loops(argument, next),
        &expect![[r#"
        preserve y
        c = Placeholder -> bool[]
        z = Placeholder -> float32[4, 8]
        e = EmptyTensorList(c) {element_dtype: float32} -> variant[]
        enter = Enter(e) {T: variant} -> variant[]
        merge = Merge(enter, step) {T: variant} -> variant[], int32[]
        switch = Switch(merge, c) {T: variant} -> variant[], variant[]
        a = Placeholder -> float32[?2, 8]
        inside = Enter(a) {T: float32} -> float32[?2, 8]
        x = Relu(inside) {T: float32} -> float32[?2, 8]
        push = TensorListPushBack(switch:1, x) {element_dtype: float32} -> variant[]
        step = NextIteration(push) {T: variant} -> variant[]
        exit = Exit(switch) {T: variant} -> variant[]
        lists = Enter(exit) {T: variant} -> variant[]
        list = Merge(lists, left) {T: variant} -> variant[], int32[]
        zero = Enter(z) {T: float32} -> float32[4, 8]
        sum = Merge(zero, after) {T: float32} -> float32, int32[]
        popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], float32[?2, 8]
        left = NextIteration(popped) {T: variant} -> variant[]
        next = Mul(popped:1, popped:1) {T: float32} -> float32[?2, 8]
        after = NextIteration(next) {T: float32} -> float32[?2, 8]
        y = Exit(sum) {T: float32} -> float32
    "#]],
    );
    // One of the loop's own.
    refuse("lists", &loops("x = Where(merge:1) -> float32[?7, 8]", next));
}

#[test]
fn lists_that_may_hold_anything_tell_nothing() {
    let next = "next = Mul(popped:1, popped:1) {T: float32} -> float32";
    refuse("lists", &loops("x = Placeholder -> float32", next));
    // Elements of two shapes.
    let two = format!("{X}\nother = TensorListPushBack(merge, z2) -> variant[]\nz2 = Placeholder -> float32[4]");
    refuse("lists", &loops(&two, next).replace("Merge(enter, step)", "Merge(enter, other)"));
    // A list from elsewhere, one with elements that nobody gave it, one that is handed over to a function, one that may be fed.
    let text = loops(X, next);
    refuse("lists", &text.replace("EmptyTensorList(c)", "Placeholder"));
    refuse("lists", &text.replace("EmptyTensorList(c)", "TensorListReserve(c, c)"));
    refuse("lists", &text.replace("exit = Exit(switch)", "exit = PartitionedCall(switch)"));
    refuse("lists", &text.replace("preserve y", "preserve y, push"));
    // What TensorFlow says otherwise.
    refuse("lists", &text.replace("variant[], float32\n", "variant[], float32[5, ?]\n"));
}

#[test]
fn rows_of_a_tensor_are_elements() {
    check(
        "lists",
        "preserve y\nx = Placeholder -> float32[64, ?3, 8]\ni = Placeholder -> int32[]\n\
         l = TensorListFromTensor(x, i) {element_dtype: float32} -> variant[]\n\
         m = TensorListSetItem(l, i, s) {element_dtype: float32} -> variant[]\ns = Placeholder -> float32[?3, 8]\n\
         y = TensorListGetItem(m, i, i) {element_dtype: float32} -> float32[?, ?]",
        &expect![[r#"
            preserve y
            x = Placeholder -> float32[64, ?3, 8]
            i = Placeholder -> int32[]
            l = TensorListFromTensor(x, i) {element_dtype: float32} -> variant[]
            m = TensorListSetItem(l, i, s) {element_dtype: float32} -> variant[]
            s = Placeholder -> float32[?3, 8]
            y = TensorListGetItem(m, i, i) {element_dtype: float32} -> float32[?3, 8]
        "#]],
    );
}
