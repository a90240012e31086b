//! Shapes that come out of lists.

use expect_test::expect;

use super::{after, check, refuse};

/// A loop that pushes `x` into a list in each step, and another one that pops the elements. The
/// value `next` that `BODY` computes from the `popped` element is carried to the next step.
fn loops(x: &str, body: &str) -> String {
    format!(
        "preserve y\nc = Placeholder -> bool[]\nz = Placeholder -> float32[4, 8]\ne = \
         EmptyTensorList(c) {{element_dtype: float32}} -> variant[]\nenter = Enter(e) {{T: \
         variant}} -> variant[]\nmerge = Merge(enter, step) {{T: variant}} -> variant[], \
         int32[]\nswitch = Switch(merge, c) {{T: variant}} -> variant[], variant[]\n{x}\npush = \
         TensorListPushBack(switch:1, x) {{element_dtype: float32}} -> variant[]\nstep = \
         NextIteration(push) {{T: variant}} -> variant[]\nexit = Exit(switch) {{T: variant}} -> \
         variant[]\nlists = Enter(exit) {{T: variant}} -> variant[]\nlist = Merge(lists, left) \
         {{T: variant}} -> variant[], int32[]\nzero = Enter(z) {{T: float32}} -> float32[4, \
         8]\nsum = Merge(zero, after) {{T: float32}} -> float32, int32[]\npopped = \
         TensorListPopBack(list, c) {{element_dtype: float32}} -> variant[], float32\nleft = \
         NextIteration(popped) {{T: variant}} -> variant[]\n{body}\nafter = NextIteration(next) \
         {{T: float32}} -> float32\ny = Exit(sum) {{T: float32}} -> float32"
    )
}

const X: &str = "x = Placeholder -> float32[4, 8]";

#[test]
fn elements_keep_their_shapes_when_they_are_popped_and_carried_on() {
    check(
        "lists",
        &loops(
            X,
            "t = Mul(popped:1, sum) {T: float32} -> float32\nnext = TanhGrad(popped:1, t) {T: \
             float32} -> float32",
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
fn values_that_a_step_changes_are_not_known() {
    check(
        "lists",
        &loops(
            X,
            "axis = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]\nnext = \
             ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32",
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
            "axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]\nwide = \
             ConcatV2(sum, popped:1, axis) {N: 2, T: float32, Tidx: int32} -> float32\nsquare = \
             MatMul(popped:1, wide) {T: float32, transpose_a: true, transpose_b: false} -> \
             float32\nscaled = Mul(square, axis) {T: float32} -> float32\nnext = AddN(sum, \
             popped:1) {N: 2, T: float32} -> float32",
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
            square = MatMul(popped:1, wide) {
                T: float32,
                transpose_a: true,
                transpose_b: false,
            } -> float32[8, 16]
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
    let argument = "a = Placeholder -> float32[?2, 8]\ninside = Enter(a) {T: float32} -> \
                    float32[?2, 8]\nx = Relu(inside) {T: float32} -> float32[?2, 8]";
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
            popped = TensorListPopBack(list, c) {
                element_dtype: float32,
            } -> variant[], float32[?2, 8]
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
    let two = format!(
        "{X}\nother = TensorListPushBack(merge, z2) -> variant[]\nz2 = Placeholder -> float32[4]"
    );
    refuse("lists", &loops(&two, next).replace("Merge(enter, step)", "Merge(enter, other)"));
    // A list from elsewhere, a list with elements that were never set, one that is passed to a
    // function, one that may be fed.
    let text = loops(X, next);
    refuse("lists", &text.replace("EmptyTensorList(c)", "Placeholder"));
    refuse("lists", &text.replace("EmptyTensorList(c)", "TensorListReserve(c, c)"));
    refuse("lists", &text.replace("exit = Exit(switch)", "exit = PartitionedCall(switch)"));
    refuse("lists", &text.replace("preserve y", "preserve y, push"));
    // TensorFlow gives another shape.
    refuse("lists", &text.replace("variant[], float32\n", "variant[], float32[5, ?]\n"));
}

#[test]
fn rows_of_a_tensor_are_elements() {
    check(
        "lists",
        "preserve y\nx = Placeholder -> float32[64, ?3, 8]\ni = Placeholder -> int32[]\nl = \
         TensorListFromTensor(x, i) {element_dtype: float32} -> variant[]\nm = \
         TensorListSetItem(l, i, s) {element_dtype: float32} -> variant[]\ns = Placeholder -> \
         float32[?3, 8]\ny = TensorListGetItem(m, i, i) {element_dtype: float32} -> float32[?, ?]",
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

/// A gradient that sums `g` to the shape of the `popped` element, of which the other operand's
/// shape is `other`.
fn summed(other: &str) -> String {
    format!(
        "shape = Shape(popped:1) {{T: float32, out_type: int32}} -> int32[2]\n{other}\nargs = \
         BroadcastGradientArgs(shape, other) {{T: int32}} -> int32[?], int32[?]\ng = \
         Mul(popped:1, sum) {{T: float32}} -> float32\ns = Sum(g, args) {{T: float32, Tidx: \
         int32, keep_dims: true}} -> float32\nnext = Reshape(s, shape) {{T: float32, Tshape: \
         int32}} -> float32"
    )
}

/// A loop over a batch of unknown size: `BODY` with `x` of that batch, and zeros made for it.
fn batch(body: &str) -> String {
    let x = "a = Placeholder -> float32[?2, 8]\ninside = Enter(a) {T: float32} -> float32[?2, \
             8]\nx = Relu(inside) {T: float32} -> float32[?2, 8]";
    let zeros = "as = Shape(a) {T: float32, out_type: int32} -> int32[2]\nk0 = Const {dtype: \
                 int32, value: tensor int32[1] [0]} -> int32[1]\nk1 = Const {dtype: int32, value: \
                 tensor int32[1] [1]} -> int32[1]\nrows = StridedSlice(as, k0, k1, k1) {Index: \
                 int32, T: int32, begin_mask: 0, ellipsis_mask: 0, end_mask: 0, new_axis_mask: 0, \
                 shrink_axis_mask: 1} -> int32[]\neight = Const {dtype: int32, value: tensor \
                 int32[] [8]} -> int32[]\nzs = Pack(rows, eight) {N: 2, T: int32, axis: 0} -> \
                 int32[2]\nf = Placeholder -> float32[]\nz = Fill(zs, f) {T: float32, index_type: \
                 int32} -> float32[?3, 8]";
    loops(x, body).replace("z = Placeholder -> float32[4, 8]", zeros).replace(
        "zero = Enter(z) {T: float32} -> float32[4, 8]",
        "zero = Enter(z) {T: float32} -> float32[?3, 8]",
    )
}

/// The graph after the pass, from this line on.
fn after_from(line: &str, text: &str) -> String {
    let lines = after("lists", text);
    let begin = lines.find(line).expect("the line is there");
    lines[begin..].to_owned()
}

/// The body of the second loop after the pass.
fn body_of(text: &str) -> String {
    after_from("popped = ", text)
}

#[test]
fn sums_over_what_is_no_broadcast_vanish() {
    let same = "other = Shape(sum) {T: float32, out_type: int32} -> int32[2]";
    expect![[r#"
        popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], float32[?2, 8]
        left = NextIteration(popped) {T: variant} -> variant[]
        g = Mul(popped:1, sum) {T: float32} -> float32[?2, 8]
        after = NextIteration(g) {T: float32} -> float32[?2, 8]
        y = Exit(sum) {T: float32} -> float32[?2, 8]
    "#]]
    .assert_eq(&body_of(&batch(&summed(same))));
    // A row is broadcast, the batch is not.
    let row = "r = Placeholder -> float32[1, 8]\nother = Shape(r) {T: float32, out_type: int32} \
               -> int32[2]";
    assert!(!body_of(&batch(&summed(row))).contains("Sum("));
    let swapped = summed(row).replace("(shape, other)", "(other, shape)");
    assert!(body_of(&batch(&swapped)).contains("Sum("));
    // Another node waits for the sum.
    let awaited =
        format!("{}\nw = NoOp(^s)", batch(&summed(same))).replace("preserve y", "preserve y, w");
    assert!(body_of(&awaited).contains("Sum("));
    // Another batch, which may be of one.
    let another = "r = Placeholder -> float32[?9, 8]\nother = Shape(r) {T: float32, out_type: \
                   int32} -> int32[2]";
    assert!(body_of(&batch(&summed(another))).contains("Sum("));
}

#[test]
fn one_extent_of_two_numbers_has_one_number() {
    let next = "next = AddN(sum, popped:1) {N: 2, T: float32} -> float32";
    let lines = after("lists", &batch(next));
    assert!(
        lines.contains("z = Fill(zs, f) {T: float32, index_type: int32} -> float32[?2, 8]"),
        "{lines}"
    );
    assert!(lines.contains("y = Exit(sum) {T: float32} -> float32[?2, 8]"), "{lines}");
    // Through types that can hold every extent.
    for (between, extent) in [("int64", "?2"), ("int8", "?3")] {
        let casts = format!(
            "r1 = Cast(rows) {{SrcT: int32, DstT: {between}, Truncate: false}} -> {between}[]\nr2 \
             = Cast(r1) {{SrcT: {between}, DstT: int32, Truncate: false}} -> int32[]\nzs = Pack(r2"
        );
        let lines = after("lists", &batch(next).replace("zs = Pack(rows", &casts));
        assert!(
            lines.contains(&format!("index_type: int32}} -> float32[{extent}, 8]")),
            "{between}: {lines}"
        );
    }
    // In a branch that may not run, nothing follows for the rest of the graph.
    let branch = batch(next).replace(
        "zs = Pack(rows",
        "zw = Switch(rows, c) {T: int32} -> int32[], int32[]\nzs = Pack(zw:1",
    );
    assert!(
        after("lists", &branch)
            .contains("z = Fill(zs, f) {T: float32, index_type: int32} -> float32[?3, 8]")
    );
}

#[test]
fn values_of_a_loop_have_no_extent_for_all_steps_even_behind_it() {
    // The number also belongs to the last step's tensor, behind the loop.
    let x = "x = Where(merge:1) -> float32[?7, 8]\nout = Exit(x) {T: float32} -> float32[?7, 8]";
    let next = "next = Mul(popped:1, popped:1) {T: float32} -> float32";
    refuse("lists", &loops(x, next).replace("preserve y", "preserve y, out"));
}

#[test]
fn elements_given_to_a_reserved_list_are_stacked() {
    let text = "preserve y\nx = Placeholder -> float32[?2, 8]\ni = Placeholder -> int32[]\ne = \
                Const {dtype: int32, value: tensor int32[2] [-1, 8]} -> int32[2]\nl = \
                TensorListReserve(e, i) {element_dtype: float32} -> variant[]\nm = \
                TensorListSetItem(l, i, x) {element_dtype: float32} -> variant[]\ng = \
                TensorListGetItem(m, i, e) {element_dtype: float32} -> float32[?4, 8]\ns = \
                TensorListStack(m, e) {element_dtype: float32, num_elements: 3} -> float32[3, ?5, \
                8]\ny = Mul(s, g) {T: float32} -> float32";
    let lines = after("lists", text);
    assert!(lines.contains("num_elements: 3} -> float32[3, ?2, 8]"), "{lines}");
    // An element that was never set may have another extent.
    assert!(
        lines.contains("g = TensorListGetItem(m, i, e) {element_dtype: float32} -> float32[?4, 8]"),
        "{lines}"
    );
    // A shape that is given is that of elements that do not exist.
    let said =
        text.replace("e = Const {dtype: int32, value: tensor int32[2] [-1, 8]}", "e = Placeholder");
    assert!(after("lists", &said).contains("num_elements: 3} -> float32[3, ?5, 8]"));
    let whole = text.replace("[-1, 8]", "[4, 8]");
    assert!(after("lists", &whole).contains("num_elements: 3} -> float32[3, ?5, 8]"));
}

#[test]
fn lists_that_nobody_reads_stay_empty() {
    let next = "next = Mul(sum, sum) {T: float32} -> float32";
    let text = loops(X, next);
    expect![[r#"
        step = NextIteration(switch:1) {T: variant} -> variant[]
        exit = Exit(switch) {T: variant} -> variant[]
        lists = Enter(exit) {T: variant} -> variant[]
        list = Merge(lists, left) {T: variant} -> variant[], int32[]
        zero = Enter(z) {T: float32} -> float32[4, 8]
        sum = Merge(zero, after) {T: float32} -> float32[4, 8], int32[]
        left = NextIteration(list) {T: variant} -> variant[]
        next = Mul(sum, sum) {T: float32} -> float32[4, 8]
        after = NextIteration(next) {T: float32} -> float32[4, 8]
        y = Exit(sum) {T: float32} -> float32[4, 8]
    "#]]
    .assert_eq(&after_from("step = ", &text));
    let kept = |text: &str| {
        let lines = after("lists", text);
        assert!(
            lines.contains("TensorListPushBack") && lines.contains("TensorListPopBack"),
            "{lines}"
        );
    };
    // The list's length is read, the list is passed on, or a node waits for an element.
    kept(
        &format!("{text}\nn = TensorListLength(exit) -> int32[]")
            .replace("preserve y", "preserve y, n"),
    );
    kept(&text.replace("preserve y", "preserve y, exit"));
    kept(&text.replace("preserve y", "preserve y, popped"));
    kept(
        &text
            .replace("c = Placeholder -> bool[]", "c = Placeholder -> bool[]\nw = NoOp(^popped)")
            .replace("preserve y", "preserve y, w"),
    );
}

#[test]
fn lists_from_one_empty_list_are_each_their_own() {
    let second = "push2 = TensorListPushBack(enter2, z2) {element_dtype: float32} -> \
                  variant[]\nz2 = Placeholder -> float32[5]\nenter2 = Identity(e) {T: variant} -> \
                  variant[]\np2 = TensorListPopBack(push2, c) {element_dtype: float32} -> \
                  variant[], float32";
    let text =
        loops(&format!("{X}\n{second}"), "next = Mul(popped:1, sum) {T: float32} -> float32");
    let lines = after("lists", &text.replace("preserve y", "preserve y, p2"));
    assert!(
        lines.contains(
            "popped = TensorListPopBack(list, c) {element_dtype: float32} -> variant[], \
             float32[4, 8]"
        ),
        "{lines}"
    );
}

#[test]
fn parts_of_a_batch_have_its_size() {
    let part = |attrs: &str| {
        let body = format!(
            "b = Const {{dtype: int32, value: tensor int32[2] [0, 2]}} -> int32[2]\nlast = Const \
             {{dtype: int32, value: tensor int32[2] [3, 5]}} -> int32[2]\nk = Const {{dtype: \
             int32, value: tensor int32[2] [1, 1]}} -> int32[2]\npart = StridedSlice(popped:1, b, \
             last, k) {{Index: int32, T: float32, {attrs}, new_axis_mask: 0}} -> float32\nnext = \
             Mul(sum, popped:1) {{T: float32}} -> float32"
        );
        let lines = after("lists", &batch(&body));
        lines
            .lines()
            .find(|l| l.starts_with("part = "))
            .and_then(|l| l.split("-> ").nth(1))
            .map(str::to_owned)
            .unwrap()
    };
    let masks = |begin: u8, end: u8, ellipsis: u8, shrink: u8| {
        part(&format!(
            "begin_mask: {begin}, end_mask: {end}, ellipsis_mask: {ellipsis}, shrink_axis_mask: \
             {shrink}"
        ))
    };
    assert_eq!(masks(1, 1, 0, 0), "float32[?2, 3]");
    assert_eq!(masks(1, 3, 0, 0), "float32[?2, 6]");
    assert_eq!(masks(1, 1, 0, 2), "float32[?2]");
    // The first three of a batch, which may have fewer; one of them; something else.
    for [begin, end, ellipsis, shrink] in [[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 0]] {
        assert!(!masks(begin, end, ellipsis, shrink).contains("?2, 3]"));
    }
    assert_eq!(masks(1, 0, 0, 0), "float32");
    assert_eq!(masks(1, 0, 0, 1), "float32[3]");
}

#[test]
fn gradients_begin_with_the_shapes_of_variables() {
    let argument = |shapes: &str| {
        let variable = format!(
            "v = _Arg {{T: resource, _handle_dtypes: [float32], _handle_shapes: [{shapes}], \
             index: 0}} -> resource\nvs = VariableShape(v) {{out_type: int32}} -> int32[2]\nf = \
             Placeholder -> float32[]\nz = Fill(vs, f) {{T: float32, index_type: int32}} -> \
             float32[?5, ?6]"
        );
        let next = "next = AddN(sum, popped:1) {N: 2, T: float32} -> float32";
        let text = loops(X, next).replace("z = Placeholder -> float32[4, 8]", &variable).replace(
            "zero = Enter(z) {T: float32} -> float32[4, 8]",
            "zero = Enter(z) {T: float32} -> float32[?5, ?6]",
        );
        after("lists", &text)
    };
    assert!(argument("shape [4, 8]").ends_with("y = Exit(sum) {T: float32} -> float32[4, 8]\n"));
    for unknown in ["shape [?, 8]", "shape ?", "shape [4, 8], shape [4, 8]"] {
        assert!(
            argument(unknown).ends_with("y = Exit(sum) {T: float32} -> float32\n"),
            "{unknown}"
        );
    }
}

/// A layer that treats sequences as rows, with the nodes that compute their shapes.
fn dense(more: &str) -> String {
    format!(
        "preserve y
         x = Placeholder -> float32[?2, 8, 4]
         w = Placeholder -> float32[4, 6]
         zero = Const {{dtype: int32, value: tensor int32[] [0]}} -> int32[]
         all = Const {{dtype: int32, value: tensor int32[1] [0]}} -> int32[1]
         free = Const {{dtype: int32, value: tensor int32[2] [0, 1]}} -> int32[2]
         last = Const {{dtype: int32, value: tensor int32[1] [2]}} -> int32[1]
         six = Const {{dtype: int32, value: tensor int32[1] [6]}} -> int32[1]
         shape = Shape(x) {{T: float32, out_type: int32}} -> int32[3]
         rows = GatherV2(shape, free, zero) {{Taxis: int32, Tindices: int32, Tparams: int32, \
         batch_dims: 0}} -> int32[2]
         columns = GatherV2(shape, last, zero) {{Taxis: int32, Tindices: int32, Tparams: int32, \
         batch_dims: 0}} -> int32[1]
         row = Prod(rows, all) {{T: int32, Tidx: int32, keep_dims: false}} -> int32[]
         column = Prod(columns, all) {{T: int32, Tidx: int32, keep_dims: false}} -> int32[]
         flat = Pack(row, column) {{N: 2, T: int32, axis: 0}} -> int32[2]
         back = ConcatV2(rows, six, zero) {{N: 2, T: int32, Tidx: int32}} -> int32[3]
         a = Reshape(x, flat) {{T: float32, Tshape: int32}} -> float32[?3, 4]
         p = MatMul(a, w) {{T: float32, transpose_a: false, transpose_b: false}} -> float32[?3, 6]
         b = Reshape(p, back) {{T: float32, Tshape: int32}} -> float32[?4, ?5, 6]
         {more}"
    )
}

#[test]
fn sequences_that_are_rows_have_constant_shapes() {
    check(
        "lists",
        &dense("y = Neg(b) {T: float32} -> float32[?4, ?5, 6]"),
        &expect![[r#"
            preserve y
            x = Placeholder -> float32[?2, 8, 4]
            w = Placeholder -> float32[4, 6]
            zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
            free = Const {dtype: int32, value: tensor int32[2] [0, 1]} -> int32[2]
            six = Const {dtype: int32, value: tensor int32[1] [6]} -> int32[1]
            shape = Shape(x) {T: float32, out_type: int32} -> int32[3]
            rows = GatherV2(shape, free, zero) {
                Taxis: int32,
                Tindices: int32,
                Tparams: int32,
                batch_dims: 0,
            } -> int32[2]
            back = ConcatV2(rows, six, zero) {N: 2, T: int32, Tidx: int32} -> int32[3]
            a = Reshape(x, a/shape) {T: float32, Tshape: int32} -> float32[?3, 4]
            p = MatMul(a, w) {T: float32, transpose_a: false, transpose_b: false} -> float32[?3, 6]
            b = Reshape(p, b/shape) {T: float32, Tshape: int32} -> float32[?2, 8, 6]
            y = Neg(b) {T: float32} -> float32[?2, 8, 6]
            a/shape = Const {dtype: int32, value: tensor int32[2] [-1, 4]} -> int32[2]
            b/shape = Const {dtype: int32, value: tensor int32[3] [-1, 8, 6]} -> int32[3]
        "#]],
    );
}

#[test]
fn rows_that_become_sequences_again_have_their_batch() {
    // As in the gradient: the batch follows from the number of elements.
    let more = "way = Const {dtype: int32, value: tensor int32[3] [-1, 8, 6]} -> int32[3]
                c = Reshape(p, way) {T: float32, Tshape: int32} -> float32[?6, 8, 6]
                y = AddV2(b, c) {T: float32} -> float32[?7, 8, 6]";
    let after = super::after("lists", &dense(more));
    assert!(after.contains("y = AddV2(b, c) {T: float32} -> float32[?2, 8, 6]"), "{after}");
    // Not where they are cut into other sequences.
    let other = more.replace("[-1, 8, 6]", "[-1, 4, 6]").replace("8, 6]", "4, 6]");
    let after = super::after("lists", &dense(&other.replace("AddV2(b, c)", "AddV2(c, c)")));
    assert!(after.contains("float32[?6, 4, 6]"), "{after}");
}

#[test]
fn counts_of_known_extents_are_constants() {
    let more = |count: &str| {
        format!(
            "n = Cast({count}) {{DstT: float32, SrcT: int32, Truncate: false}} -> float32[]
                 y = RealDiv(b, n) {{T: float32}} -> float32[?4, ?5, 6]"
        )
    };
    let after = super::after("lists", &dense(&more("column")));
    assert!(
        after.contains("n/settled = Const {dtype: float32, value: tensor float32[] [4"),
        "{after}"
    );
    let after = super::after("lists", &dense(&more("row")));
    assert!(after.contains("n = Cast(row)"), "{after}");
}

#[test]
fn nobody_waits_for_what_only_asks_for_shapes() {
    let text = |waits: &str| {
        dense(&format!(
            "ask = Shape(b) {{T: float32, out_type: int32}} -> int32[3]
             none = NoOp(^ask, ^{waits})
             v = Neg(b, ^ask, ^none) {{T: float32}} -> float32[?4, ?5, 6]
             y = Identity(v) {{T: float32}}
             z = Assign(^a)"
        ))
    };
    assert!(super::after("lists", &text("p")).contains("v = Neg(b) {"));
    assert!(super::after("lists", &text("z")).contains("v = Neg(b, ^none) {"));
}
