//! The pass `rowwise` on small graphs: the nodes that it takes over, the nodes that it leaves, and
//! its results.

use expect_test::{Expect, expect};
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes;

/// The graph after the pass, without the constants. Running it again must change nothing.
fn optimized(text: &str) -> String {
    let pass = passes::find("rowwise").unwrap();
    let mut graph = Graph::from_text(text).unwrap();
    (pass.run)(&mut graph).unwrap();
    let once = graph.to_text();
    (pass.run)(&mut graph).unwrap();
    assert_eq!(graph.to_text(), once, "the second run changes the graph");
    assert!(graph.order().is_some(), "a cycle:\n{once}");
    let keeps = |line: &&str| {
        !line.contains("= Const")
            && !line.contains("= Placeholder")
            && !line.starts_with("preserve")
    };
    once.lines().filter(keeps).map(|line| format!("{line}\n")).collect()
}

#[track_caller]
fn check(text: &str, wanted: &Expect) {
    wanted.assert_eq(&optimized(text));
}

#[track_caller]
fn check_untouched(text: &str) {
    let graph = Graph::from_text(text).unwrap();
    let after = optimized(text);
    assert!(!after.contains("_WgpuFusedRowwise"), "{after}");
    assert!(graph.ids().count() > 1);
}

/// `x - mean(x)` of a shape over an axis, with `y` preserved.
fn centered(x: &str, mean: &str, axis: &str) -> String {
    format!(
        "preserve y\nx = Placeholder {{dtype: float32}} -> float32[{x}]\naxis = Const {{dtype: \
         int32, value: tensor int32[1] [{axis}]}} -> int32[1]\nmean = Mean(x, axis) {{T: float32, \
         Tidx: int32, keep_dims: true}} -> float32[{mean}]\ncentered = Sub(x, mean) {{T: \
         float32}} -> float32[{x}]\ny = Identity(centered) {{T: float32}} -> float32[{x}]\n"
    )
}

#[test]
fn a_normalization_is_one_node() {
    check(
        "preserve y
        x = Placeholder {dtype: float32} -> float32[?2, 8]
        gamma = Placeholder {dtype: float32} -> float32[8]
        axis = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
        epsilon = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
        mean = Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[?2, 1]
        squared = SquaredDifference(x, mean, ^x) {T: float32} -> float32[?2, 8]
        variance = Mean(squared, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[?2, 1]
        add = AddV2(variance, epsilon) {T: float32} -> float32[?2, 1]
        rsqrt = Rsqrt(add) {T: float32} -> float32[?2, 1]
        centered = Sub(x, mean) {T: float32} -> float32[?2, 8]
        scale = Mul(rsqrt, gamma) {T: float32} -> float32[?2, 8]
        scaled = Mul(centered, scale) {T: float32} -> float32[?2, 8]
        y = Identity(scaled) {T: float32} -> float32[?2, 8]",
        &expect![[r#"
            y = Identity(scaled/fused_rowwise) {T: float32} -> float32[?2, 8]
            scaled/fused_rowwise = _WgpuFusedRowwise(x, gamma, ^x) {
                T_in: [float32, float32],
                T_out: [float32],
                axes: [-1],
                constants: [0.5],
                program:
                    "Mean: x: float32, float32; "
                    "c: 1; "
                    "return x0 | "
                    "Mean: x: float32, float32, float32; "
                    "c: 1; "
                    "s0 = SquaredDifference<float32>(x0, x2); "
                    "return s0 | "
                    "row: x: float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x3, c0); "
                    "s1 = Rsqrt<float32>(s0); "
                    "return s1 | "
                    "full: x: float32, float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = Sub<float32>(x0, x2); "
                    "s1 = Mul<float32>(x4, x1); "
                    "s2 = Mul<float32>(s0, s1); "
                    "return s2 | "
                    "return y0",
            } -> float32[?2, 8]
        "#]],
    );
}

#[test]
fn rows_without_the_reduced_axes_and_tiles_are_values_of_rows() {
    check(
        "preserve y, z
        x = Placeholder {dtype: float32} -> float32[4, 6, 8]
        axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
        kept = Const {dtype: int32, value: tensor int32[3] [4, 6, 1]} -> int32[3]
        multiples = Const {dtype: int32, value: tensor int32[3] [1, 1, 8]} -> int32[3]
        sum = Sum(x, axis) {T: float32, Tidx: int32, keep_dims: false} -> float32[4, 6]
        log = Log(sum) {T: float32} -> float32[4, 6]
        row = Reshape(log, kept) {T: float32, Tshape: int32} -> float32[4, 6, 1]
        tile = Tile(row, multiples) {T: float32, Tmultiples: int32} -> float32[4, 6, 8]
        product = Mul(x, tile) {T: float32} -> float32[4, 6, 8]
        y = Identity(product) {T: float32} -> float32[4, 6, 8]
        z = Identity(log) {T: float32} -> float32[4, 6]",
        &expect![[r#"
            y = Identity(product/fused_rowwise:1) {T: float32} -> float32[4, 6, 8]
            z = Identity(product/fused_rowwise) {T: float32} -> float32[4, 6]
            product/fused_rowwise = _WgpuFusedRowwise(x) {
                T_in: [float32],
                T_out: [float32, float32],
                axes: [-1],
                constants: [],
                program:
                    "Sum: x: float32; "
                    "c: 0; "
                    "return x0 | "
                    "row: x: float32, float32; "
                    "c: 0; "
                    "s0 = Log<float32>(x1); "
                    "return s0 | "
                    "full: x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x2); "
                    "return s0 | "
                    "return r1 flat, y0",
            } -> float32[4, 6], float32[4, 6, 8]
        "#]],
    );
}

#[test]
fn cheap_values_are_computed_again_and_operands_of_sums_over_rows_are_left_to_them() {
    check(
        "preserve dx, dgamma
        dy = Placeholder {dtype: float32} -> float32[4, 8]
        x = Placeholder {dtype: float16} -> float16[4, 8]
        gamma = Placeholder {dtype: float32} -> float32[8]
        scale = Placeholder {dtype: float32} -> float32[4, 1]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
        first = Const {dtype: int32, value: tensor int32[1] [0]} -> int32[1]
        wide = Cast(x) {DstT: float32, SrcT: float16} -> float32[4, 8]
        other = Exp(wide) {T: float32} -> float32[4, 8]
        used = MatMul(other, other) {T: float32, transpose_b: true} -> float32[4, 4]
        normed = Mul(wide, scale) {T: float32} -> float32[4, 8]
        weighted = Mul(dy, normed) {T: float32} -> float32[4, 8]
        dgamma_sum = Sum(weighted, first) {T: float32, Tidx: int32, keep_dims: false} -> float32[8]
        scaled = Mul(gamma, scale) {T: float32} -> float32[4, 8]
        slope = Mul(dy, scaled) {T: float32} -> float32[4, 8]
        sum = Sum(slope, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[4, 1]
        part = Mul(normed, sum) {T: float32} -> float32[4, 8]
        difference = Sub(slope, part) {T: float32} -> float32[4, 8]
        dx = Identity(difference) {T: float32} -> float32[4, 8]
        dgamma = Identity(dgamma_sum, ^used) {T: float32} -> float32[8]",
        &expect![[r#"
            wide = Cast(x) {DstT: float32, SrcT: float16} -> float32[4, 8]
            used = MatMul(difference/fused_rowwise, difference/fused_rowwise) {
                T: float32,
                transpose_b: true,
            } -> float32[4, 4]
            normed = Mul(wide, scale) {T: float32} -> float32[4, 8]
            weighted = Mul(dy, normed) {T: float32} -> float32[4, 8]
            dgamma_sum = Sum(weighted, first) {
                T: float32,
                Tidx: int32,
                keep_dims: false,
            } -> float32[8]
            dx = Identity(difference/fused_rowwise:1) {T: float32} -> float32[4, 8]
            dgamma = Identity(dgamma_sum, ^used) {T: float32} -> float32[8]
            difference/fused_rowwise = _WgpuFusedRowwise(x, gamma, scale, dy) {
                T_in: [float16, float32, float32, float32],
                T_out: [float32, float32],
                axes: [-1],
                constants: [],
                program:
                    "Sum: x: float16, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x1, x2); "
                    "s1 = Mul<float32>(x3, s0); "
                    "return s1 | "
                    "full: x: float16, float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Cast<float16, float32>(x0); "
                    "s1 = Exp<float32>(s0); "
                    "s2 = Mul<float32>(x1, x2); "
                    "s3 = Mul<float32>(x3, s2); "
                    "s4 = Mul<float32>(s0, x2); "
                    "s5 = Mul<float32>(s4, x4); "
                    "s6 = Sub<float32>(s3, s5); "
                    "return s1, s6 | "
                    "return y0, y1",
            } -> float32[4, 8], float32[4, 8]
        "#]],
    );
}

/// RMS normalization as Keras writes it for Gemma: the scale is stored less one. The line `scale`
/// computes it.
fn scaled_by(scale: &str) -> String {
    format!(
        "preserve y
        x = Placeholder {{dtype: float32}} -> float32[4, 6, 8]
        gamma = Placeholder {{dtype: bfloat16}} -> bfloat16[8]
        other = Placeholder {{dtype: float32}} -> float32[8]
        axis = Const {{dtype: int32, value: tensor int32[1] [-1]}} -> int32[1]
        one = Const {{dtype: float32, value: tensor float32[] [1.0]}} -> float32[]
        square = Square(x) {{T: float32}} -> float32[4, 6, 8]
        mean = Mean(square, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[4, 6, 1]
        root = Rsqrt(mean) {{T: float32}} -> float32[4, 6, 1]
        normed = Mul(x, root) {{T: float32}} -> float32[4, 6, 8]
        wide = Cast(gamma) {{DstT: float32, SrcT: bfloat16}} -> float32[8]
        {scale}
        scaled = Mul(normed, scale) {{T: float32}} -> float32[4, 6, 8]
        y = Identity(scaled) {{T: float32}} -> float32[4, 6, 8]"
    )
}

#[test]
fn cheap_functions_of_the_columns_are_computed_in_each_row() {
    check(
        &scaled_by("scale = AddV2(one, wide) {T: float32} -> float32[8]"),
        &expect![[r#"
            y = Identity(scaled/fused_rowwise) {T: float32} -> float32[4, 6, 8]
            scaled/fused_rowwise = _WgpuFusedRowwise(x, gamma) {
                T_in: [float32, bfloat16],
                T_out: [float32],
                axes: [-1],
                constants: [1.0],
                program:
                    "Mean: x: float32, bfloat16; "
                    "c: 1; "
                    "s0 = Square<float32>(x0); "
                    "return s0 | "
                    "row: x: float32, bfloat16, float32; "
                    "c: 1; "
                    "s0 = Rsqrt<float32>(x2); "
                    "return s0 | "
                    "full: x: float32, bfloat16, float32, float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, x3); "
                    "s1 = Cast<bfloat16, float32>(x1); "
                    "s2 = AddV2<float32>(c0, s1); "
                    "s3 = Mul<float32>(s0, s2); "
                    "return s3 | "
                    "return y0",
            } -> float32[4, 6, 8]
        "#]],
    );
    // Another reader keeps the vector. The program computes it from half as many bytes.
    let read = scaled_by("scale = AddV2(one, wide) {T: float32} -> float32[8]");
    let read = optimized(&read.replace("preserve y", "preserve y, scale"));
    assert!(read.contains("scale = AddV2(one, wide)"), "{read}");
}

#[test]
fn dear_functions_of_the_columns_and_those_of_two_vectors_stay_apart() {
    for scale in [
        "scale = Exp(wide) {T: float32} -> float32[8]",
        "scale = AddV2(wide, other) {T: float32} -> float32[8]",
    ] {
        let after = optimized(&scaled_by(scale));
        let scale = scale.split(" {").next().unwrap();
        assert!(after.contains(scale) && after.contains("_WgpuFusedRowwise"), "{after}");
    }
}

#[test]
fn paths_that_leave_and_come_back_are_not_closed() {
    check(
        "preserve y
        x = Placeholder {dtype: float32} -> float32[8, 8]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
        mean = Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[8, 1]
        centered = Sub(x, mean) {T: float32} -> float32[8, 8]
        product = MatMul(centered, centered) {T: float32} -> float32[8, 8]
        sum = AddV2(x, product) {T: float32} -> float32[8, 8]
        max = Max(sum, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[8, 1]
        again = Sub(sum, max) {T: float32} -> float32[8, 8]
        y = Identity(again) {T: float32} -> float32[8, 8]",
        &expect![[r#"
            product = MatMul(centered/fused_rowwise, centered/fused_rowwise) {
                T: float32,
            } -> float32[8, 8]
            y = Identity(again/fused_rowwise) {T: float32} -> float32[8, 8]
            again/fused_rowwise = _WgpuFusedRowwise(x, product) {
                T_in: [float32, float32],
                T_out: [float32],
                axes: [-1],
                constants: [],
                program:
                    "Max: x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "return s0 | "
                    "full: x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Sub<float32>(s0, x2); "
                    "return s1 | "
                    "return y0",
            } -> float32[8, 8]
            centered/fused_rowwise = _WgpuFusedRowwise(x) {
                T_in: [float32],
                T_out: [float32],
                axes: [-1],
                constants: [],
                program:
                    "Mean: x: float32; "
                    "c: 0; "
                    "return x0 | "
                    "full: x: float32, float32; "
                    "c: 0; "
                    "s0 = Sub<float32>(x0, x1); "
                    "return s0 | "
                    "return y0",
            } -> float32[8, 8]
        "#]],
    );
}

#[test]
fn a_constant_that_waits_for_a_member_does_not_part_the_region() {
    check(
        "preserve y
        x = Placeholder {dtype: float32} -> float32[4, 8]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
        mean = Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[4, 1]
        centered = Sub(x, mean) {T: float32} -> float32[4, 8]
        two = Const(^centered) {dtype: float32, value: tensor float32[] [2.0]} -> float32[]
        doubled = Mul(centered, two) {T: float32} -> float32[4, 8]
        y = Identity(doubled) {T: float32} -> float32[4, 8]",
        &expect![[r#"
                dtype: float32,
                value: tensor float32[] [2.0],
            } -> float32[]
            y = Identity(doubled/fused_rowwise) {T: float32} -> float32[4, 8]
            doubled/fused_rowwise = _WgpuFusedRowwise(x) {
                T_in: [float32],
                T_out: [float32],
                axes: [-1],
                constants: [2.0],
                program:
                    "Mean: x: float32; "
                    "c: 1; "
                    "return x0 | "
                    "full: x: float32, float32; "
                    "c: 1; "
                    "s0 = Sub<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, c0); "
                    "return s1 | "
                    "return y0",
            } -> float32[4, 8]
        "#]],
    );
}

#[test]
fn a_product_that_waits_for_a_member_does_not_part_the_region() {
    check(
        "preserve y
        x = Placeholder {dtype: float32} -> float32[4, 8]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
        mean = Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[4, 1]
        centered = Sub(x, mean) {T: float32} -> float32[4, 8]
        two = Const {dtype: float32, value: tensor float32[] [2.0]} -> float32[]
        doubled = Mul(x, two, ^centered) {T: float32} -> float32[4, 8]
        product = Mul(centered, doubled) {T: float32} -> float32[4, 8]
        y = Identity(product) {T: float32} -> float32[4, 8]",
        &expect![[r#"
            y = Identity(product/fused_rowwise) {T: float32} -> float32[4, 8]
            product/fused_rowwise = _WgpuFusedRowwise(x) {
                T_in: [float32],
                T_out: [float32],
                axes: [-1],
                constants: [2.0],
                program:
                    "Mean: x: float32; "
                    "c: 1; "
                    "return x0 | "
                    "full: x: float32, float32; "
                    "c: 1; "
                    "s0 = Sub<float32>(x0, x1); "
                    "s1 = Mul<float32>(x0, c0); "
                    "s2 = Mul<float32>(s0, s1); "
                    "return s2 | "
                    "return y0",
            } -> float32[4, 8]
        "#]],
    );
}

#[test]
fn other_reductions_are_left_alone() {
    let plain = centered("4, 8", "4, 1", "1");
    assert!(optimized(&plain).contains("_WgpuFusedRowwise"));
    check_untouched(&centered("4, 8", "1, 8", "0"));
    check_untouched(&centered("?, 8", "?, 1", "1"));
    check_untouched(&centered("4, ?2", "4, 1", "1"));
    check_untouched(&centered("4, 1", "4, 1", "1"));
    check_untouched(&centered("2, 1000000", "2, 1", "1"));
    check_untouched(&plain.replace("float32", "int32"));
    check_untouched(&plain.replace("preserve y", "preserve y, mean"));
    check_untouched(&plain.replace(
        "= Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true}",
        "= Mean(x, axis) {T: float32, Tidx: int32, keep_dims: true} @CPU:0",
    ));
    check_untouched(&plain.replace(
        "axis = Const {dtype: int32, value: tensor int32[1] [1]}",
        "axis = Placeholder {dtype: int32}",
    ));
    check_untouched(&plain.replace("centered = Sub(x, mean)", "centered = Conj(mean)"));
}
