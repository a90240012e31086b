//! Runs the steps of a reduction on the device.

use smallvec::smallvec;

use super::plan::{Groups, Step};
use super::table::{Finish, Reduction, identity_text};
use super::vec4s::Vec4s;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

/// The properties that the text of a reduction program depends on.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// The reduction's row.
    pub row: &'static Reduction,
    /// Element type of the input.
    pub input: DType,
    /// Element type of the output.
    pub output: DType,
    /// Whether elements go through the row's `map`, as in the first step.
    pub map: bool,
    /// Whether results go through the row's `finish`, as in the last step.
    pub finish: bool,
    /// Invocations for each segment.
    pub lanes: u32,
    /// Whether neighbouring elements belong to neighbouring segments.
    pub columns: bool,
    /// The vec4s that it reads.
    pub vec4s: Vec4s,
    /// Invocations in a workgroup.
    pub workgroup: u32,
}

impl Variant {
    fn key(&self) -> Key {
        Key::new("reduce")
            .name(self.row.op)
            .dtype(self.input)
            .dtype(self.output)
            .number(u32::from(self.map) + 2 * u32::from(self.finish))
            .number(self.lanes)
            .number(u32::from(self.columns))
            .number(self.vec4s as u32)
            .number(self.workgroup)
    }

    /// The program's text.
    pub fn shader(&self) -> Shader {
        let Self { row, input, output, vec4s, .. } = *self;
        // An earlier step's output is already of the accumulator's type, which accumulates in
        // itself.
        let acc = row.accumulator(input);
        let shader =
            Shader::new(format!("{} {input} to {output}, {} lanes, {vec4s:?}", row.op, self.lanes));
        let shader = vec4s
            .bind(shader, input, output)
            .u32s(&[
                "count",
                "extent",
                "inner",
                "segments",
                "total",
                "identity_low",
                "identity_high",
            ])
            .workgroup([self.workgroup, 1, 1])
            .define("ORDER", row.combine.functions(acc))
            .define("ACCUMULATOR", acc.value())
            .define("IDENTITY", identity_text(acc))
            .define("INPUT", input.value())
            .define("OUTPUT", output.value())
            .define("COUNT", acc.part().value())
            .define("MAP", if self.map { row.mapped() } else { "x" })
            .define("COMBINE", row.combine.wgsl())
            .define("FINISH", if self.finish { row.finish.wgsl() } else { "a" })
            .define("BITS", (8 * output.size()).to_string())
            .body(include_str!("../../../shaders/reduce_functions.wgsl"));
        let roots = match acc {
            DType::I64 | DType::U64 => "root64",
            _ => "root",
        };
        let shader = match row.finish {
            Finish::IntegerRoot(_) if self.finish => shader.library(roots),
            _ => shader,
        };
        let shader = match vec4s {
            Vec4s::None => shader.body(include_str!("../../../shaders/reduce_run.wgsl")),
            _ => shader.body(include_str!("../../../shaders/reduce_vec4s.wgsl")),
        };
        if vec4s == Vec4s::Outputs {
            return shader.body(include_str!("../../../shaders/reduce_columns.wgsl"));
        }
        if self.lanes == 1 {
            return shader.body(include_str!("../../../shaders/reduce_threads.wgsl")).map("y");
        }
        let shader = lanes(shader, self.lanes, self.columns, self.workgroup);
        if vec4s == Vec4s::Columns {
            return shader
                .define("UNIT", "1")
                .define("PARTIAL", "vec4<Accumulator>")
                .define("MERGE", "combine_four")
                .define("START", "identity_four()")
                .define(
                    "RUN",
                    "reduce_vec4s((o * p.extent + first) * p.inner + k, LANES * p.inner, n)",
                )
                .define("WORDS", "")
                .define("EMIT", "write_y(i, finish_four(all), 4u);")
                .define("EMIT_WORDS", "")
                .body(include_str!("../../../shaders/reduce_lanes.wgsl"));
        }
        let (words, emit, emit_words) = match output.lanes() {
            1 => ("", "store_y(i, finish(all));", ""),
            _ => ("var bits = 0u;", "bits |= pack_y(u, finish(all));", "store_y_word(unit, bits);"),
        };
        shader
            .define("UNIT", output.lanes().to_string())
            .define("PARTIAL", "Accumulator")
            .define("MERGE", "combine")
            .define("START", "identity()")
            .define("RUN", "reduce_run((o * p.extent + first) * p.inner + k, LANES * p.inner, n)")
            .define("WORDS", words)
            .define("EMIT", emit)
            .define("EMIT_WORDS", emit_words)
            .body(include_str!("../../../shaders/reduce_lanes.wgsl"))
    }
}

/// How the lanes of `reduce_lanes.wgsl` lie in a workgroup.
pub fn lanes(shader: Shader, lanes: u32, columns: bool, workgroup: u32) -> Shader {
    let stride = if columns { workgroup / lanes } else { 1 };
    shader.define("LANES", lanes.to_string()).define("LANE_STRIDE", stride.to_string())
}

/// Every text that a reduction may need.
pub fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for output in [DType::F16, DType::BF16] {
        let row = Reduction::of("Sum");
        out.push(
            Variant {
                row,
                input: DType::F32,
                output,
                map: true,
                finish: true,
                lanes: 1,
                columns: false,
                vec4s: Vec4s::None,
                workgroup: WORKGROUP,
            }
            .shader(),
        );
    }
    for row in super::integers::every_row() {
        for &dtype in row.types {
            let acc = row.accumulator(dtype);
            for (map, finish) in [(true, true), (true, false), (false, true), (false, false)] {
                let vec4s = [Vec4s::None, Vec4s::Rows, Vec4s::Columns, Vec4s::Outputs];
                let four = vec4::supports(dtype) && !row.wide;
                for vec4s in vec4s.into_iter().take(if four { 4 } else { 1 }) {
                    let shared = [(8, false, 8), (4, false, WORKGROUP), (256, false, WORKGROUP)];
                    let columns = [(8, true, WORKGROUP)];
                    let splits: &[(u32, bool, u32)] = match vec4s {
                        Vec4s::None => {
                            &[shared.as_slice(), &columns, &[(1, false, WORKGROUP)]].concat()
                        }
                        Vec4s::Rows => &[shared.as_slice(), &[(1, false, WORKGROUP)]].concat(),
                        Vec4s::Columns => &columns,
                        Vec4s::Outputs => &[(1, false, WORKGROUP)],
                    };
                    for &(lanes, columns, workgroup) in splits {
                        let input = if map { dtype } else { acc };
                        let output = if finish { dtype } else { acc };
                        out.push(
                            Variant {
                                row,
                                input,
                                output,
                                map,
                                finish,
                                lanes,
                                columns,
                                vec4s,
                                workgroup,
                            }
                            .shader(),
                        );
                    }
                }
            }
        }
    }
    out
}

/// Input bytes that one dispatch may bind; the remaining bytes are for offsets that are rounded
/// down.
pub fn window_bytes(device: &Device) -> u64 {
    (device.capabilities().max_binding - 256).min(1 << 31)
}

/// Reduces `x`, whose extents form `groups`, to `y`.
pub fn reduce(
    ctx: &mut dyn OpContext,
    row: &'static Reduction,
    x: &Tensor,
    groups: &Groups,
    y: &Tensor,
) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let total: usize = groups.iter().filter(|g| g.reduced).map(|g| g.extent).product();
    if row.finish.counts() {
        ctx.device().check_extent(total)?;
    }
    let (acc, profile) = (row.accumulator(x.dtype), ctx.device().profile());
    let mut run = Run { row, total, first: true };
    if total == 0 || groups.iter().all(|g| !g.reduced) {
        return run.step(ctx.device(), &Step::each(y.len(), total.min(1)), x, y, true);
    }
    let mut left = groups.clone();
    let mut input = x.clone();
    loop {
        let window = (window_bytes(ctx.device()) / input.dtype.size() as u64) as usize;
        let Some((step, rest)) = Step::largest(profile, &left, window) else { return Ok(()) };
        let last = step.segments == 1 && rest.iter().all(|g| !g.reduced);
        let output = if last { y.clone() } else { ctx.temp(acc, &[step.outputs()])? };
        run.step(ctx.device(), &step, &input, &output, last)?;
        run.first = false;
        input = output;
        left = rest;
    }
}

/// Rounds the f32 elements of `x` to the type of `y`, for kernels that cannot store packed elements
/// themselves.
pub fn convert(ctx: &mut dyn OpContext, x: &Tensor, y: &Tensor) -> Result<()> {
    let singles: Groups = smallvec![super::plan::Group { extent: x.len(), reduced: false }];
    reduce(ctx, Reduction::of("Sum"), x, &singles, y)
}

/// A reduction under way.
struct Run {
    row: &'static Reduction,
    total: usize,
    first: bool,
}

impl Run {
    /// Enqueues `step` in as many windows as the adapter's bindings require.
    fn step(
        &self,
        device: &Device,
        step: &Step,
        x: &Tensor,
        y: &Tensor,
        finish: bool,
    ) -> Result<()> {
        let window = window_bytes(device);
        let Step { outer, extent, inner, segments, windows, .. } = *step;
        if windows > 1 {
            // Takes one outer index at a time, its extent in equal slices (the last one may be
            // shorter).
            let slice = extent.div_ceil(windows);
            let part = segments / windows;
            for o in 0..outer {
                for w in 0..windows {
                    let first = (w * slice).min(extent);
                    let piece = Step {
                        outer: 1,
                        extent: slice.min(extent - first),
                        segments: part,
                        windows: 1,
                        ..*step
                    };
                    let from = (o * extent + first) * inner;
                    self.dispatch(
                        device,
                        &piece,
                        x,
                        from,
                        y,
                        (o * segments + w * part) * inner,
                        finish,
                    )?;
                }
            }
            return Ok(());
        }
        let row_bytes = |run: usize, dtype: DType| (run * inner * dtype.size()).max(1) as u64;
        let fits = (window / row_bytes(extent, x.dtype)).min(window / row_bytes(segments, y.dtype))
            as usize;
        // The outputs of a window start at a whole word.
        let rows = if fits >= outer { outer } else { (fits / 4 * 4).max(1) };
        let rows =
            if rows * inner * segments % y.dtype.lanes() as usize == 0 { rows } else { outer };
        for o in (0..outer).step_by(rows) {
            let piece = Step { outer: rows.min(outer - o), ..*step };
            self.dispatch(device, &piece, x, o * extent * inner, y, o * segments * inner, finish)?;
        }
        Ok(())
    }

    /// Enqueues one dispatch that reads `x` from element `from` and writes `y` from element `to`.
    #[expect(clippy::too_many_arguments, reason = "two tensors with their windows")]
    fn dispatch(
        &self,
        device: &Device,
        step: &Step,
        x: &Tensor,
        from: usize,
        y: &Tensor,
        to: usize,
        finish: bool,
    ) -> Result<()> {
        let is_four = |t: &Tensor, first: usize| {
            !self.row.wide
                && vec4::aligned(&[t])
                && (t.address + (first * t.dtype.size()) as u64)
                    .is_multiple_of(vec4::unit(t.dtype).into())
        };
        let vec4s = Vec4s::of(step, [is_four(x, from), is_four(y, to)]);
        let invocations = vec4s.invocations(step, y.dtype);
        let workgroup = step.lanes.workgroup;
        let columns = step.columns();
        let variant = Variant {
            row: self.row,
            input: x.dtype,
            output: y.dtype,
            map: self.first,
            finish,
            lanes: step.lanes.count,
            columns,
            vec4s,
            workgroup,
        };
        let reads = step.outer * step.extent * step.inner;
        device.check_extent(reads)?;
        device.check_extent(step.outputs())?;
        let [low, high] = self.row.identity.bits(x.dtype);
        let (mut bindings, mut count, mut extent, mut inner) = (
            smallvec![part(x, from, reads), part(y, to, step.outputs())],
            step.outputs(),
            step.extent,
            step.inner,
        );
        let in_vec4s = |binding: &mut Binding| binding.unit *= vec4::WIDTH;
        match vec4s {
            Vec4s::None => {}
            Vec4s::Rows => {
                in_vec4s(&mut bindings[0]);
                extent /= 4;
            }
            Vec4s::Columns | Vec4s::Outputs => {
                bindings.iter_mut().for_each(in_vec4s);
                (count, inner) = (count / 4, inner / 4);
            }
        }
        device.enqueue_counted(
            &Program {
                key: variant.key(),
                shader: &|| variant.shader(),
                bindings,
                params: Params::new()
                    .u32(count)
                    .u32(extent)
                    .u32(inner)
                    .u32(step.segments)
                    .u32(u32::try_from(self.total).unwrap_or(u32::MAX))
                    .u32(low)
                    .u32(high),
                grid: Grid::linear(invocations, workgroup),
            },
            x.dtype.flops(reads * (1 + usize::from(self.first && self.row.map.is_some()))),
        )
    }
}

/// `count` elements of `t` from element `first` on.
pub fn part(t: &Tensor, first: usize, count: usize) -> Binding {
    let size = t.dtype.size() as u64;
    Binding {
        address: t.address + first as u64 * size,
        bytes: count as u64 * size,
        unit: size as u32,
    }
}
