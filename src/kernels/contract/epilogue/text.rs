//! The text of an epilogue: its operands' bindings, its function and the calls.

use super::{Broadcast, CONSTANTS, Epilogue, EpilogueVariant, MAX_EXTRAS, NAMES, SECOND};
use crate::device::Key;
use crate::dtype::DType;
use crate::kernels::contract::element::lane;
use crate::kernels::contract::parts;
use crate::kernels::expression::Expression;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::shader::{Field, Shader};

impl EpilogueVariant {
    /// An epilogue with sample operands, for the list of variants.
    pub(crate) fn sample(epilogue: &Epilogue, broadcasts: &[Broadcast], vec4s: bool) -> Self {
        let types = &epilogue.expression().inputs()[1..];
        let four = |t: DType, c: Broadcast| vec4s && c.is_along_columns() && t.is_single();
        Self {
            function: epilogue.function.clone(),
            extras: types.iter().zip(broadcasts).map(|(t, c)| (*t, *c, four(*t, *c))).collect(),
        }
    }

    /// Adds the properties that distinguish its text to a pipeline's key.
    pub(crate) fn key(&self, mut key: Key) -> Key {
        key = key.name(&self.function.text);
        for (_, broadcast, vec4s) in &self.extras {
            key = key.number(*broadcast as u32 | u32::from(*vec4s) << 4);
        }
        key
    }

    /// The type of the result.
    pub(crate) fn output(&self) -> DType {
        self.function.expression.output_type(0)
    }

    /// The name of the result for its second value, if it has one.
    pub(in crate::kernels::contract) fn second(&self) -> Option<&'static str> {
        (self.function.expression.outputs().len() > 1).then_some(SECOND)
    }

    /// Declares bindings, parameters and the function `epilogue`. `bind_vec4s` binds an operand of
    /// which four elements are loaded at once, by `load4_NAME`, or a result of which four are
    /// stored.
    pub(crate) fn declare(
        &self,
        shader: Shader,
        bind_vec4s: impl Fn(Shader, &'static str, DType) -> Shader,
    ) -> Shader {
        let mut shader = self.bind_all(shader, NAMES, &bind_vec4s);
        if let Some(name) = self.second() {
            shader = bind_vec4s(shader, name, self.output());
        }
        self.declare_function(shader)
    }

    /// The same with operands for each of several parts, see
    /// [`crate::kernels::contract::siblings`].
    pub(in crate::kernels::contract) fn declare_parts(
        &self,
        mut shader: Shader,
        count: usize,
        bind_vec4s: impl Fn(Shader, &'static str, DType) -> Shader,
    ) -> Shader {
        let names = &parts::EXTRAS[..count];
        for names in names {
            shader = self.bind_all(shader, *names, &bind_vec4s);
        }
        for (at, ((dtype, _, vec4s), name)) in self.extras.iter().zip(NAMES).enumerate() {
            let own: Vec<&str> = names.iter().map(|names| names[at]).collect();
            let value = dtype.value();
            shader = shader.body(&match vec4s {
                true => parts::load("load4", name, &own, &format!("vec4<{value}>")),
                false => parts::load("load", name, &own, value),
            });
        }
        self.declare_function(shader)
    }

    fn bind_all(
        &self,
        shader: Shader,
        names: [&'static str; MAX_EXTRAS],
        bind_vec4s: &impl Fn(Shader, &'static str, DType) -> Shader,
    ) -> Shader {
        self.extras.iter().zip(names).fold(
            shader,
            |shader, ((dtype, _, vec4s), name)| match vec4s {
                true => bind_vec4s(shader, name, *dtype),
                false => shader.bind(name, *dtype),
            },
        )
    }

    fn declare_function(&self, mut shader: Shader) -> Shader {
        shader = shader.u32s(&["channel_inner", "channels_all"]);
        let ends = Ends { sums: 1, sink: Sink::Memory };
        let function = Expression::wgsl_all(&[("epilogue", &self.function.expression, ends)]);
        for name in &CONSTANTS[..self.function.expression.constants()] {
            shader = shader.param(*name, Field::F32);
        }
        shader.body(&function.text)
    }

    /// `fn finish(v, line, n)`: the epilogue of four columns from n on of the row that starts at
    /// `line`. Values that it reads beyond the last column are not stored. `single` is for results
    /// without a batch, whose columns are the channels.
    pub(crate) fn finish(&self, column: &str, single: bool) -> String {
        let at = |k: u32| format!("line + (n + {k}u){column}");
        let channel = |k: u32| if single { format!("n + {k}u") } else { channel_of(&at(k)) };
        let call = |k: u32| self.call(&format!("v.{}", lane(k)), &at(k), &channel(k), lane(k));
        let (reads, value) = (self.reads(&at(0), &channel(0)), self.output().value());
        let head = "fn finish(v: Vec4, line: u32, n: u32) -> Stored {\n";
        if self.second().is_some() {
            let calls: String = (0..4).map(|k| format!("    let v{k} = {};\n", call(k))).collect();
            let member = |y: &str| format!("vec4<{value}>(v0.{y}, v1.{y}, v2.{y}, v3.{y})");
            return format!(
                "struct Stored {{\n    value: vec4<{value}>,\n    second: \
                 vec4<{value}>,\n}}\n\n{head}{reads}{calls}    return Stored({}, {});\n}}\n",
                member("y0"),
                member("y1")
            );
        }
        let calls: String = (0..4).map(|k| format!("        {},\n", call(k))).collect();
        format!(
            "alias Stored = vec4<{value}>;\n\n{head}{reads}    return Stored(\n{calls}    );\n}}\n"
        )
    }

    /// The statements that read the operands once for four neighbours. The first neighbour is the
    /// result's element `at` of channel `channel`.
    pub(crate) fn reads(&self, at: &str, channel: &str) -> String {
        self.channel_reads(channel) + &self.full_reads(at)
    }

    /// The statements of [`EpilogueVariant::reads`] that are the same for all positions.
    pub(crate) fn channel_reads(&self, channel: &str) -> String {
        self.read_lines(|broadcast, vec4s, name| match broadcast {
            Broadcast::Scalar => Some(format!("    let {name}_v = load_{name}(0u);\n")),
            Broadcast::Channel if vec4s => {
                Some(format!("    let {name}_v = load4_{name}({channel});\n"))
            }
            _ => None,
        })
    }

    /// The other statements of [`EpilogueVariant::reads`].
    pub(crate) fn full_reads(&self, at: &str) -> String {
        self.read_lines(|broadcast, vec4s, name| {
            (vec4s && broadcast == Broadcast::Full)
                .then(|| format!("    let {name}_v = load4_{name}({at});\n"))
        })
    }

    fn read_lines(&self, line: impl Fn(Broadcast, bool, &str) -> Option<String>) -> String {
        self.extras
            .iter()
            .zip(NAMES)
            .filter_map(|((_, broadcast, vec4s), name)| line(*broadcast, *vec4s, name))
            .collect()
    }

    /// The call for the contraction's value `x`, the result's element `at` of channel `channel`;
    /// `lane` selects from the values that [`EpilogueVariant::reads`] read.
    pub(crate) fn call(&self, x: &str, at: &str, channel: &str, lane: &str) -> String {
        let extras =
            self.extras.iter().zip(NAMES).map(|((_, broadcast, vec4s), name)| match broadcast {
                Broadcast::Scalar => format!("{name}_v"),
                _ if *vec4s => format!("{name}_v.{lane}"),
                Broadcast::Channel => format!("load_{name}({channel})"),
                Broadcast::Row => format!("load_{name}(({at}) / p.channels_all)"),
                Broadcast::Full => format!("load_{name}({at})"),
            });
        let constants =
            CONSTANTS[..self.function.expression.constants()].iter().map(|c| format!("p.{c}"));
        let arguments: Vec<String> =
            std::iter::once(x.to_owned()).chain(extras).chain(constants).collect();
        format!("epilogue({})", arguments.join(", "))
    }
}

/// The channel of the result's element `at`.
pub(crate) fn channel_of(at: &str) -> String {
    format!("({at}) / p.channel_inner % p.channels_all")
}
