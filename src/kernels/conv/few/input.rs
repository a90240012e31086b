//! The gradient of the input: lanes are runs of columns of the image, and share what they load of
//! the filter.

use std::fmt::Write;

use smallvec::smallvec;

use super::{Window, vec4s};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::text::vec4s_of;
use crate::kernels::contract::tile::SUBGROUP;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Most sums of an invocation.
const SUMS: u32 = 48;

impl Window {
    /// Columns of an invocation, in strides.
    const fn width(self) -> u32 {
        let width = SUMS / (self.stride * self.channels);
        if width < 8 { width } else { 8 }
    }

    /// Columns of strides before a column's own one whose output sees it.
    const fn ahead(self) -> u32 {
        self.kernel.div_ceil(self.stride) - 1
    }
}

/// Enqueues the program where it is the better one; every element of `dx` is written.
pub(in super::super) fn backprop_input(
    device: &Device,
    g: &Geometry,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<bool> {
    let window = Window::of(device, g, [filter, dy, dx]).filter(|_| vec4s(filter) && vec4s(dy));
    let Some(window) = window else { return Ok(false) };
    for t in [filter, dy, dx] {
        device.check_extent(t.len())?;
    }
    let strides =
        |d: usize| (g.pad[d] / g.stride[d], (g.pad[d] + g.input[d] - 1) / g.stride[d] + 1);
    let ((low1, high1), (low2, high2)) = (strides(1), strides(2));
    let (lines, blocks) = (high1 - low1, (high2 - low2).div_ceil(window.width() as usize));
    let units = g.batch * lines * blocks;
    let groups = units.div_ceil(SUBGROUP as usize);
    let total = groups * g.stride[1];
    let mut params =
        Params::new().u32(total).u32(groups).u32(units).u32(blocks).u32(lines).u32(g.filters);
    params = params.u32(low1).u32(low2).u32(g.kernel[1]).u32(g.stride[1]);
    for list in [&g.input, &g.output, &g.pad] {
        params = params.u32(list[1]).u32(list[2]);
    }
    device.enqueue(&Program {
        key: Key::new("conv few input")
            .number(window.kernel)
            .number(window.stride)
            .number(window.channels),
        shader: &|| shader(window),
        bindings: smallvec![Binding::raw(filter, 16), Binding::raw(dy, 16), Binding::from(dx)],
        params,
        grid: Grid::groups(total),
    })?;
    Ok(true)
}

pub(super) fn shader(window: Window) -> Shader {
    let Window { kernel, stride, channels } = window;
    let (width, ahead) = (window.width(), window.ahead());
    let mut shader =
        Shader::new(format!("conv input of few channels {window:?}")).workgroup([SUBGROUP, 1, 1]);
    shader =
        vec4s_of(vec4s_of(shader, "weight", DType::F32), "dy", DType::F32).bind("dx", DType::F32);
    shader = shader.u32s(&[
        "total", "groups", "units", "blocks", "lines", "filters", "low1", "low2", "kernel1",
        "stride1",
    ]);
    for name in ["in", "out", "pad"] {
        shader = shader.u32s(&[&format!("{name}1"), &format!("{name}2")]);
    }
    let (mut inside, mut places, mut loads) = (String::new(), String::new(), String::new());
    for j in 0..width + ahead {
        let _ = writeln!(inside, "    let in2_{j} = i2 + {j}u - {ahead}u < p.out2;");
        let _ = writeln!(places, "        let in{j} = in_y && in2_{j};");
        let _ =
            writeln!(places, "        let at{j} = select(0u, dy_at + {j}u * p.filters, in{j});");
        let _ = writeln!(
            loads,
            "            let dy{j} = select(vec4<f32>(), load4_dy(at{j} + f), in{j});"
        );
    }
    for g in 0..window.elements().div_ceil(SUBGROUP) {
        let (first, last) = (g * SUBGROUP, window.elements() - 1);
        let _ = writeln!(
            places,
            "        let w_at{g} = w_at + min({first}u + subgroup_lane % {SUBGROUP}u, {last}u) * \
             p.filters;"
        );
        let _ = writeln!(loads, "            let w{g} = load4_weight(w_at{g} + f);");
    }
    let (mut sums, mut products, mut stores) = (String::new(), String::new(), String::new());
    for (r, c) in (0..stride).flat_map(|r| (0..channels).map(move |c| (r, c))) {
        for b in 0..width {
            let _ = writeln!(sums, "    var sum{b}_{r}_{c} = 0.0;");
        }
        for (o, k) in (r..kernel).step_by(stride as usize).enumerate() {
            let (o, e) = (o as u32, k * channels + c);
            for lane in ["x", "y", "z", "w"] {
                let _ = writeln!(
                    products,
                    "            let f{e}_{lane} = subgroupBroadcast(w{}.{lane}, {}u);",
                    e / SUBGROUP,
                    e % SUBGROUP
                );
                for b in 0..width {
                    let _ = writeln!(
                        products,
                        "            sum{b}_{r}_{c} = fma(dy{}.{lane}, f{e}_{lane}, \
                         sum{b}_{r}_{c});",
                        b + ahead - o
                    );
                }
            }
        }
    }
    for (b, r) in (0..width).flat_map(|b| (0..stride).map(move |r| (b, r))) {
        let x = b * stride + r;
        let _ = writeln!(stores, "        if first_x + {x}u < p.in2 {{");
        for c in 0..channels {
            let _ = writeln!(
                stores,
                "            store_dx(dx_at + {}u, sum{b}_{r}_{c});",
                x * channels + c
            );
        }
        stores.push_str("        }\n");
    }
    shader
        .define("WIDTH", format!("{width}u"))
        .define("AHEAD", format!("{ahead}u"))
        .define("LANES", format!("{SUBGROUP}u"))
        .define("STRIDE", format!("{stride}u"))
        .define("CHANNELS", format!("{channels}u"))
        .define("ELEMENTS", format!("{}u", window.elements()))
        .define("INSIDE", inside)
        .define("SUMS", sums)
        .define("PLACES", places)
        .define("LOADS", loads)
        .define("PRODUCTS", products)
        .define("STORES", stores)
        .body(include_str!("../../../../shaders/conv/few_input.wgsl"))
}
