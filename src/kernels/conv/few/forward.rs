//! The convolution itself: lanes are filters, and share what they load of the input.

use std::fmt::Write;

use smallvec::{SmallVec, smallvec};

use super::{Window, vec4s};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::epilogue::{Bound, Form};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::text::{FINISH, vec4s_of};
use crate::kernels::contract::tile::SUBGROUP;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Columns of an invocation.
const WIDTH: u32 = 16;
/// Of these as many at a time as there are registers for their sums.
const AT_ONCE: u32 = 2;
/// Filters of a workgroup.
const FILTERS: usize = 4 * SUBGROUP as usize;

/// Whether of what covers `extent` in parts at least four fifths are in it.
const fn covers(extent: usize, part: usize) -> bool {
    extent.next_multiple_of(part) * 4 <= extent * 5
}

/// Enqueues the program where it is the better one; every element of `y` is written. Four channels
/// are loaded at once by contractions.
pub(in super::super) fn forward(
    device: &Device,
    g: &Geometry,
    [x, filter, y]: [&Tensor; 3],
    epilogue: Option<&Bound<'_>>,
) -> Result<bool> {
    let worthwhile = g.channels < 4
        && covers(g.output[2], WIDTH as usize)
        && covers(g.filters, FILTERS)
        && vec4s(filter)
        && vec4s(y);
    let window = Window::of(device, g, [x, filter, y]).filter(|_| worthwhile);
    let Some(window) = window else { return Ok(false) };
    for t in [x, filter, y] {
        device.check_extent(t.len())?;
    }
    let blocks = g.output[2].div_ceil(WIDTH as usize);
    let units = g.batch * g.output[1] * blocks;
    let total = units * g.filters.div_ceil(FILTERS);
    let mut params = Params::new()
        .u32(total)
        .u32(units)
        .u32(blocks)
        .u32(g.filters)
        .u32(g.kernel[1])
        .u32(g.stride[1]);
    params = params.u32(g.input[1]).u32(g.output[1]).u32(g.output[2]).u32(g.pad[1]).u32(g.pad[2]);
    params = params.u32(g.input[2] * g.channels);
    let mut key = Key::new("conv few forward")
        .number(window.kernel)
        .number(window.stride)
        .number(window.channels);
    let mut bindings: SmallVec<[Binding; 8]> =
        smallvec![Binding::from(x), Binding::raw(filter, 16), Binding::raw(y, 16)];
    let form = epilogue.map(|e| e.form(true));
    if let (Some(epilogue), Some(form)) = (epilogue, &form) {
        key = form.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(form));
    }
    device.enqueue(&Program {
        key,
        shader: &|| shader(window, form.as_ref()),
        bindings,
        params,
        grid: Grid::groups(total),
    })?;
    Ok(true)
}

pub(super) fn shader(window: Window, epilogue: Option<&Form>) -> Shader {
    let Window { kernel, stride, channels } = window;
    let mut shader = Shader::new(format!("conv of few channels {window:?} {epilogue:?}"))
        .workgroup([SUBGROUP, 1, 1]);
    shader = vec4s_of(shader.bind("x", DType::F32), "weight", DType::F32);
    shader = vec4s_of(shader, "c", DType::F32).body("alias Vec4 = vec4<f32>;\n");
    shader = shader.u32s(&[
        "total", "units", "blocks", "filters", "kernel1", "stride1", "in1", "out1", "out2", "pad1",
    ]);
    shader = shader.u32s(&["pad2", "line"]);
    shader = match epilogue {
        Some(form) => form.declare(shader, vec4s_of).body(&form.finish("", true)),
        None => shader.body(FINISH),
    };
    let (mut places, mut loads, mut products) = (String::new(), String::new(), String::new());
    let read = ((WIDTH - 1) * stride + kernel) * channels;
    for g in 0..read.div_ceil(SUBGROUP) {
        let _ = writeln!(
            places,
            "    let at{g} = first + {}u + subgroup_lane % {SUBGROUP}u;",
            g * SUBGROUP
        );
        let _ = writeln!(
            loads,
            "        let own{g} = select(0.0, load_x(line + at{g}), in_x && at{g} < p.line);"
        );
    }
    for e in 0..read {
        let _ = writeln!(
            loads,
            "        let value{e} = subgroupBroadcast(own{}, {}u);",
            e / SUBGROUP,
            e % SUBGROUP
        );
    }
    for e in 0..window.elements() {
        let _ = writeln!(loads, "        let w{e} = load4_weight(w_at + {e}u * p.filters);");
    }
    for (first, e) in (0..WIDTH)
        .step_by(AT_ONCE as usize)
        .flat_map(|b| (0..window.elements()).map(move |e| (b, e)))
    {
        for b in first..first + AT_ONCE {
            let _ = writeln!(
                products,
                "        sum{b} = fma(Vec4(value{}), w{e}, sum{b});",
                b * stride * channels + e
            );
        }
    }
    let (mut sums, mut stores) = (String::new(), String::new());
    for b in 0..WIDTH {
        let _ = writeln!(sums, "    var sum{b} = Vec4();");
        let _ = writeln!(
            stores,
            "        if y2 + {b}u < p.out2 {{\n            let line = (row + {b}u) * \
                 p.filters;\n            store4_c(line + n, finish(sum{b}, line, n));\n        }}"
        );
    }
    shader
        .define("WIDTH", format!("{WIDTH}u"))
        .define("LANES", format!("{SUBGROUP}u"))
        .define("STRIDE", format!("{stride}u"))
        .define("CHANNELS", format!("{channels}u"))
        .define("ELEMENTS", format!("{}u", window.elements()))
        .define("PLACES", places)
        .define("SUMS", sums)
        .define("LOADS", loads)
        .define("PRODUCTS", products)
        .define("STORES", stores)
        .body(include_str!("../../../../shaders/conv/few_forward.wgsl"))
}

/// One window with an epilogue, whose result is of the operands' type.
pub(in super::super) fn fused(form: &Form) -> Option<Shader> {
    let window = Window { kernel: 7, stride: 2, channels: 3 };
    (form.output() == DType::F32).then(|| shader(window, Some(form)))
}
