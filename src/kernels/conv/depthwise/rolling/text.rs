//! The texts: a WGSL file for each program, and the unrolled statements in it.

use std::fmt::Write;

use super::{Tile, Which};
use crate::kernels::contract::epilogue::EpilogueVariant;
use crate::kernels::contract::text::vec4s_of;
use crate::shader::Shader;

const FORWARD: &str = include_str!("../../../../../shaders/conv/rolling/forward.wgsl");
const INPUT: &str = include_str!("../../../../../shaders/conv/rolling/input.wgsl");
const FILTER: &str = include_str!("../../../../../shaders/conv/rolling/filter.wgsl");

/// Appends the program.
pub(super) fn body(
    shader: Shader,
    which: Which,
    tile: Tile,
    epilogue: Option<&EpilogueVariant>,
) -> Shader {
    let shader = shader
        .define("KERNEL", format!("{}u", tile.kernel))
        .define("STRIDE", format!("{}u", tile.stride))
        .define("WIDTH", format!("{}u", tile.width))
        .define("AHEAD", format!("{}u", tile.overlap() - 1));
    match which {
        Which::Forward => forward(shader, tile, epilogue),
        Which::Input => input(shader, tile),
        Which::Filter => filter(shader, tile),
    }
}

/// The row of a window that belongs to the m-th output row under way and to row q of a stride.
fn tap(tile: Tile, m: u32, q: u32) -> Option<u32> {
    Some(m * tile.stride + q).filter(|k| *k < tile.kernel)
}

/// Loads the window's filters. One row at a time moves in behind the others, in a loop that
/// compilers do not unroll: software adapters take long to compile loads.
fn filters(tile: Tile) -> String {
    let last = tile.kernel - 1;
    let (mut variables, mut moves, mut loads) = (String::new(), String::new(), String::new());
    for (k1, k2) in (0..=last).flat_map(|k1| (0..=last).map(move |k2| (k1, k2))) {
        let _ = writeln!(variables, "    var w{k1}_{k2} = vec4<f32>();");
        if k1 < last {
            let _ = writeln!(moves, "        w{k1}_{k2} = w{}_{k2};", k1 + 1);
        } else {
            let _ = writeln!(loads, "        w{k1}_{k2} = read_weight(w_at + {k2}u * p.units);");
        }
    }
    let k = tile.kernel;
    format!(
        "{variables}    for (var k1 = 0u; k1 < p.kernel; k1 += 1u) {{\n        let w_at = k1 * \
         {k}u * p.units + unit;\n{moves}{loads}    }}\n"
    )
}

/// Columns of the input that the columns of a tile read.
const fn columns(tile: Tile) -> u32 {
    (tile.width - 1) * tile.stride + tile.kernel
}

/// Whether columns lie in the input.
fn inside(tile: Tile, indent: &str) -> String {
    let mut text = String::new();
    for j in 0..columns(tile) {
        let _ = writeln!(text, "{indent}let in{j} = left + {j}u < p.input2;");
    }
    text
}

/// For each row of a stride: loads the elements that the tile's columns read of it, with `zeros` as
/// zeros outside the input, and runs the statements of `products(q)`.
fn rows(tile: Tile, indent: &str, zeros: bool, products: impl Fn(u32) -> String) -> String {
    let mut text = String::new();
    for q in 0..tile.stride {
        let _ = writeln!(text, "{indent}let y{q} = row * {}u + {q}u - p.pad1;", tile.stride);
        let _ = writeln!(text, "{indent}let in_y{q} = y{q} < p.input1;");
        let _ = writeln!(
            text,
            "{indent}let x_at{q} = ((image * p.input1 + y{q}) * p.input2 + left) * p.units + unit;"
        );
        for j in 0..columns(tile) {
            let load = format!("read_x(x_at{q} + {j}u * p.units)");
            let value =
                if zeros { format!("select(vec4<f32>(), {load}, in_y{q} && in{j})") } else { load };
            let _ = writeln!(text, "{indent}let x{q}_{j} = {value};");
        }
        text += &products(q);
    }
    text
}

fn forward(mut shader: Shader, tile: Tile, epilogue: Option<&EpilogueVariant>) -> Shader {
    let last = tile.overlap() - 1;
    let mut sums = String::new();
    for (m, w) in (0..=last).flat_map(|m| (0..tile.width).map(move |w| (m, w))) {
        let _ = writeln!(sums, "    var sum{m}_{w} = vec4<f32>();");
    }
    let products = |q: u32| {
        let mut text = String::new();
        for (m, k1) in (0..=last).filter_map(|m| Some((m, tap(tile, m, q)?))) {
            for (w, k2) in (0..tile.width).flat_map(|w| (0..tile.kernel).map(move |k2| (w, k2))) {
                let _ = writeln!(
                    text,
                    "        sum{m}_{w} += x{q}_{} * w{k1}_{k2};",
                    w * tile.stride + k2
                );
            }
        }
        text
    };
    let (mut stores, mut moves) = (String::new(), String::new());
    for w in 0..tile.width {
        let sum = format!("sum{last}_{w}");
        let _ = writeln!(stores, "            if column + {w}u < p.output2 {{");
        let _ = writeln!(stores, "                let at{w} = at + {w}u * p.units;");
        let value = match epilogue {
            Some(variant) => {
                stores += &variant.full_reads(&format!("4u * at{w}"));
                let part = |k: u32, lane: &str| {
                    let (at, channel) = (format!("4u * at{w} + {k}u"), format!("4u * unit + {k}u"));
                    variant.call(&format!("{sum}.{lane}"), &at, &channel, lane)
                };
                let parts = [part(0, "x"), part(1, "y"), part(2, "z"), part(3, "w")];
                format!("vec4<{}>({})", variant.output().value(), parts.join(", "))
            }
            None => sum,
        };
        let _ =
            writeln!(stores, "                write_result(at{w}, {value}, 4u);\n            }}");
        for m in (1..=last).rev() {
            let _ = writeln!(moves, "        sum{m}_{w} = sum{}_{w};", m - 1);
        }
        let _ = writeln!(moves, "        sum0_{w} = vec4<f32>();");
    }
    let mut invariant = String::new();
    if let Some(variant) = epilogue {
        invariant = variant.channel_reads("4u * unit");
        shader = variant.declare(shader, vec4s_of);
    }
    shader
        .define("FILTERS", filters(tile))
        .define("INSIDE", inside(tile, "    "))
        .define("READS", invariant)
        .define("SUMS", sums)
        .define("ROWS", rows(tile, "        ", true, products))
        .define("STORES", stores)
        .define("MOVES", moves)
        .body(FORWARD)
}

fn input(shader: Shader, tile: Tile) -> Shader {
    let (last, s) = (tile.overlap() - 1, tile.stride);
    let columns = tile.width * s;
    let (mut sums, mut loads, mut inside, mut products) =
        (String::new(), String::new(), String::new(), String::new());
    for j in 0..tile.width + last {
        let _ = writeln!(inside, "    let in{j} = left + {j}u < p.output2;");
        let _ = writeln!(
            loads,
            "        let dy{j} = select(vec4<f32>(), read_dy(dy_at + {j}u * p.units), in_y && \
             in{j});"
        );
    }
    let (mut stores, mut moves) = (String::new(), String::new());
    for q in 0..s {
        let _ = writeln!(stores, "            let x{q} = y * {s}u + {q}u - p.pad1;");
        let _ = writeln!(
            stores,
            "            let at{q} = ((image * p.input1 + x{q}) * p.input2 + first_x) * p.units + \
             unit;"
        );
        for c in 0..columns {
            for m in 0..=last {
                let _ = writeln!(sums, "    var sum{m}_{q}_{c} = vec4<f32>();");
                let next = if m < last {
                    format!("sum{}_{q}_{c}", m + 1)
                } else {
                    "vec4<f32>()".to_owned()
                };
                let _ = writeln!(moves, "        sum{m}_{q}_{c} = {next};");
                let Some(k1) = tap(tile, m, q) else { continue };
                for (n, k2) in (0..=last).filter_map(|n| Some((n, tap(tile, n, c % s)?))) {
                    let j = c / s + last - n;
                    let _ = writeln!(products, "        sum{m}_{q}_{c} += dy{j} * w{k1}_{k2};");
                }
            }
            let _ = writeln!(
                stores,
                "            if x{q} < p.input1 && first_x + {c}u < p.input2 {{\n                \
                 write_result(at{q} + {c}u * p.units, sum0_{q}_{c}, 4u);\n            }}"
            );
        }
    }
    shader
        .define("FILTERS", filters(tile))
        .define("INSIDE", inside)
        .define("SUMS", sums)
        .define("LOADS", loads)
        .define("PRODUCTS", products)
        .define("STORES", stores)
        .define("MOVES", moves)
        .body(INPUT)
}

fn filter(shader: Shader, tile: Tile) -> Shader {
    let last = tile.overlap() - 1;
    let (mut sums, mut stores, mut next) = (String::new(), String::new(), String::new());
    for (k1, k2) in (0..tile.kernel).flat_map(|k1| (0..tile.kernel).map(move |k2| (k1, k2))) {
        let _ = writeln!(sums, "    var sum{k1}_{k2} = vec4<f32>();");
        if k1 > 0 {
            let _ = writeln!(next, "        sum{}_{k2} = sum{k1}_{k2};", k1 - 1);
        } else {
            let _ = writeln!(stores, "        write_result(at + {k2}u * p.units, sum0_{k2}, 4u);");
        }
    }
    let (mut gradients, mut loads, mut moves) = (String::new(), String::new(), String::new());
    // Products of elements outside are left out, not multiplied by zero: an infinity or a NaN
    // beside them belongs to other taps alone.
    let mut pairs = inside(tile, "        ");
    for m in 0..=last {
        let _ = writeln!(loads, "            let in_dy{m} = row - first - {m}u < end - first;");
    }
    for w in 0..tile.width {
        for m in 0..=last {
            let _ = writeln!(gradients, "        var dy{m}_{w} = vec4<f32>();");
        }
        for k2 in 0..tile.kernel {
            let _ = writeln!(
                pairs,
                "        let in{w}_{k2} = in{} && column + {w}u < p.output2;",
                w * tile.stride + k2
            );
        }
        let _ = writeln!(loads, "            dy0_{w} = read_dy(dy_at + {w}u * p.units);");
        for m in (1..=last).rev() {
            let _ = writeln!(moves, "            dy{m}_{w} = dy{}_{w};", m - 1);
        }
    }
    let products = |q: u32| {
        let mut text = String::new();
        for (m, k1) in (0..=last).filter_map(|m| Some((m, tap(tile, m, q)?))) {
            let _ = writeln!(text, "            let in_rows{q}_{m} = in_y{q} && in_dy{m};");
            for (w, k2) in (0..tile.width).flat_map(|w| (0..tile.kernel).map(move |k2| (w, k2))) {
                let _ = writeln!(
                    text,
                    "            sum{k1}_{k2} += select(vec4<f32>(), x{q}_{} * dy{m}_{w}, \
                     in_rows{q}_{m} && in{w}_{k2});",
                    w * tile.stride + k2
                );
            }
        }
        text
    };
    shader
        .define("SUMS", sums)
        .define("INSIDE", pairs)
        .define("GRADIENTS", gradients)
        .define("LOADS", loads)
        .define("ROWS", rows(tile, "            ", false, products))
        .define("MOVES", moves)
        .define("STORES", stores + &next)
        .body(FILTER)
}
