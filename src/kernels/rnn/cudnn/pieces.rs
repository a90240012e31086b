//! The small programs around the steps: packed weights, inputs without weights, and dropout.

use super::model::{Layout, Mode, Model, Storage};
use super::parameters::Parameters;
use super::text::gates_type;
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::Expression;
use crate::kernels::op::OpContext;
use crate::kernels::scalar::map::Signature;
use crate::kernels::windows::{limit, part, ranges, too_large};
use crate::shader::{List, Raw, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The recurrent weights of a layer with the gates of a unit side by side, direction by direction:
/// for steps backward (`turned`), or for steps forward with the biases behind them. `recurrent`
/// holds weights that are not in `params`.
pub fn pack(
    ctx: &mut dyn OpContext,
    layout: &Layout,
    params: &Parameters,
    recurrent: Option<&Tensor>,
    layer: usize,
    turned: bool,
) -> Result<Tensor> {
    let (model, units, mode) = (layout.model, layout.units, layout.model.mode);
    let real = model.real();
    let count = mode.phases() * units * (units + usize::from(!turned));
    let directions = model.directions;
    let packed = ctx.temp(real, &[directions, count * mode.lanes()])?;
    ctx.device().check_extent(packed.len())?;
    let weights = units * units * mode.gates();
    for direction in 0..directions {
        let p = layer * directions + direction;
        let recurrent = match recurrent {
            Some(all) => part(all, direction * weights, weights),
            None => params.recurrent(p),
        };
        let biases = params.biases(p);
        let own = part(&packed, direction * count * mode.lanes(), count * mode.lanes());
        let packed = Binding::raw(&own, (mode.lanes() * real.size()) as u32);
        let (recurrent, biases) = ((&recurrent).into(), (&biases).into());
        let call = Pack { recurrent, biases, packed, count, units, turned };
        let grid = Grid::linear(count, WORKGROUP);
        call.enqueue(ctx.device(), &Pack::of(mode, real, model.storage), grid)?;
    }
    Ok(packed)
}

declare_program! {
    /// Packs the weights of a direction.
    struct Pack = "rnn pack"(mode: Mode, real: DType, storage: Storage);
    bindings {
        recurrent: real, biases: real,
        packed: Raw(gates_type(mode, real), (mode.lanes() * real.size()) as u32),
    }
    params { count: usize, units: usize, turned: bool }
}

impl Pack {
    fn shader(mode: Mode, real: DType, storage: Storage) -> Shader {
        let gates = gates_type(mode, real);
        let both = |gate: &str| format!("bias(0u, {gate}, j) + bias(1u, {gate}, j)");
        let weight = |gate: &str| format!("weight({gate}, unit, output)");
        let all = ["0u", "1u", "2u", "3u"];
        let [biases, weights] = match mode {
            Mode::Lstm => [all.map(both).to_vec(), all.map(weight).to_vec()],
            // The candidate's two parts are kept apart: the reset gate comes between them.
            Mode::Gru => [
                vec![
                    both("0u"),
                    both("1u"),
                    "bias(0u, 2u, j)".to_owned(),
                    "bias(1u, 2u, j)".to_owned(),
                ],
                vec![weight("0u"), weight("1u"), "real(0.0)".to_owned(), weight("2u")],
            ],
            // The candidate has a phase of its own, with no other weights beside its own.
            Mode::GruResetBefore => {
                let first = |text: &dyn Fn(&str) -> String, second: &str| {
                    vec![text("2u * phase"), format!("select(real(0.0), {second}, phase == 0u)")]
                };
                [first(&both, &both("1u")), first(&weight, &weight("1u"))]
            }
            _ => [vec![both("0u")], vec![weight("0u")]],
        }
        .map(|values| format!("Gates({})", values.join(", ")));
        let (name, weight_at) = match storage {
            Storage::Vector => ("vector", "(gate * p.units + unit) * p.units + output"),
            Storage::Tensors => ("tensors", "(output * COUNT + gate) * p.units + unit"),
        };
        let bias = match Model::of_mode(real, mode, 1, storage).biases() {
            1 => "select(real(0.0), load_biases(gate * p.units + unit), part == 0u)",
            _ => "load_biases((part * COUNT + gate) * p.units + unit)",
        };
        Self::declare(format!("rnn pack {} {real} {name}", mode.name()), mode, real, storage)
            .define("REAL", real.value())
            .define("GATES", gates)
            .define("COUNT", mode.gates().to_string())
            .define("PHASES", mode.phases().to_string())
            .define("WEIGHT_AT", weight_at)
            .define("BIAS", bias)
            .define("BIASES", biases)
            .define("WEIGHTS", weights)
            .body(include_str!("../../../../shaders/rnn/pack.wgsl"))
    }
}

/// In a layer without weights for its input, each gate gets `x` itself.
pub fn spread(device: &Device, mode: Mode, x: &Tensor, gates: &Tensor) -> Result<()> {
    skipping(device, mode, x, gates, false)
}

/// Computes `dx`, the gradient of the input of such a layer.
pub fn gather(device: &Device, mode: Mode, grads: &Tensor, dx: &Tensor) -> Result<()> {
    skipping(device, mode, dx, grads, true)
}

fn skipping(device: &Device, mode: Mode, x: &Tensor, gates: &Tensor, back: bool) -> Result<()> {
    let (units, rows) = (x.dims[x.rank() - 1], x.dims[0]);
    let width = gates.len() / rows;
    let fitting = limit(device.capabilities()) as usize / (width * x.dtype.size());
    if fitting == 0 {
        return Err(too_large(device.capabilities(), "a row of a recurrent layer"));
    }
    for (first, count) in ranges(rows, fitting) {
        let (x, gates) =
            (part(x, first * units, count * units), part(gates, first * width, count * width));
        let names = if back { ["dx", "grads"] } else { ["x", "gates"] };
        let tensors = names.into_iter().zip([&x, &gates].map(Binding::from)).collect();
        let call = Skip { tensors, count: x.len(), units };
        let of = Skip::of(mode, x.dtype, back);
        call.enqueue(device, &of, Grid::linear(x.len(), WORKGROUP))?;
    }
    Ok(())
}

declare_program! {
    /// The work of [`spread`], or `back` that of [`gather`].
    struct Skip = "rnn skip"(mode: Mode, real: DType, back: bool);
    lists { tensors: List(if back { ["dx", "grads"] } else { ["x", "gates"] }.map(|n| (n, real))) }
    bindings {}
    params { count: usize, units: usize }
}

impl Skip {
    fn shader(mode: Mode, real: DType, back: bool) -> Shader {
        let way = if back { "gather" } else { "spread" };
        Self::declare(format!("rnn {way} {} {real}", mode.name()), mode, real, back)
            .define("WIDTH", if back { mode.slots() + 1 } else { mode.saved() }.to_string())
            .define("INPUTS", mode.gates().to_string())
            .body(if back {
                include_str!("../../../../shaders/rnn/gather.wgsl")
            } else {
                include_str!("../../../../shaders/rnn/spread.wgsl")
            })
    }
}

/// Calls `f` with the program of dropout. Its inputs are uniform numbers in [0, 1) and values; its
/// outputs are the factor of each value and the product. Its arguments are the share of values to
/// drop, their factor and the factor of the others.
pub fn dropout<R>(real: DType, f: impl FnOnce(&Signature<'_>) -> R) -> R {
    let text = match real {
        DType::F32 => {
            "x: float32, float32; c: 3; s0 = Less<float32>(x0, c0); s1 = SelectV2<float32>(s0, c1, \
             c2); s2 = Mul<float32>(s1, x1); return s1, s2"
        }
        _ => {
            "x: float32, float64; c: 3; s0 = Less<float32>(x0, c0); s1 = SelectV2<float32>(s0, c1, \
             c2); s2 = Cast<float32, float64>(s1); s3 = Mul<float64>(s2, x1); return s2, s3"
        }
    };
    let expression: Expression = text.parse().expect("an expression of the tables' rows");
    f(&Signature {
        op: text,
        inputs: expression.inputs(),
        outputs: &expression.output_types(),
        attrs: &["c0", "c1", "c2"],
        function: &|| expression.wgsl("dropout"),
        operations: expression.operations(),
    })
}

/// Every shader.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for real in [DType::F32, DType::F64] {
        all.extend(dropout(real, |s| s.linear_shaders()));
        for mode in Mode::ALL {
            for storage in [Storage::Vector, Storage::Tensors] {
                all.push(Pack::shader(mode, real, storage));
            }
            all.extend([false, true].map(|back| Skip::shader(mode, real, back)));
        }
    }
    all
}
