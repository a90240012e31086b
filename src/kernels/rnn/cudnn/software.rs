//! Steps on software adapters with subgroups of eight or more. Such an adapter loads lane by lane,
//! which costs as much as dozens of products of whole subgroups. So eight invocations load for the
//! whole workgroup the values that all its invocations read, and a workgroup takes the most
//! sequences that still leave a workgroup for each of two processors. This halves the time of an
//! LSTM's steps.

use crate::device::Profile;
use crate::dtype::DType;
use crate::kind::Kind;
use crate::shader::Shader;

/// Invocations that load for each other.
const EIGHT: usize = 8;
/// Workgroups that keep such an adapter busy, once each has enough sequences that loads of weights
/// are no longer most of its work.
const BUSY: usize = 2;
const FEWEST_ROWS: usize = 4;
/// The most sequences of a workgroup.
pub const MOST_ROWS: u32 = 16;

/// Whether this module's text is for an adapter and type.
pub fn is_for(profile: &Profile, real: DType) -> bool {
    profile.shares_loads() && real == DType::F32
}

/// The fewest workgroups that `batch` sequences should make.
pub fn busy(batch: usize) -> usize {
    (batch / FEWEST_ROWS).clamp(1, BUSY)
}

/// A shader that knows its invocation's place in its subgroup, for such adapters alone.
pub fn marked(shader: Shader) -> Shader {
    shader.builtin("subgroup_invocation_id", "subgroup_lane").only([Kind::Software])
}

/// The sums over `others` other units. `load` reads the value of other unit {k} for sequence {i},
/// and `add` adds {value} times {w} to its sum.
pub fn sums(rows: u32, load: &str, add: &str) -> String {
    let each = |line: &str| -> String {
        (0..rows).map(|i| format!("        {}\n", line.replace("{i}", &i.to_string()))).collect()
    };
    let weight =
        |k: &str| format!("        let w{k} = weights[weights_at + (k + {k}u) * p.units + own];\n");
    let mut text =
        "let own = min(unit, p.units - 1u);\n    let whole = others / 8u * 8u;\n    for \
                    (var k = 0u; k < whole; k += 8u) {\n"
            .to_owned();
    text += &each(&format!("let other{{i}} = {};", load.replace("{k}", "k + subgroup_lane % 8u")));
    for lane in 0..EIGHT {
        text += &weight(&lane.to_string());
        let value = format!("subgroupBroadcast(other{{i}}, {lane}u)");
        text += &each(&add.replace("{value}", &value).replace("{w}", &format!("w{lane}")));
    }
    text += "    }\n    for (var k = whole; k < others; k += 1u) {\n";
    text += &weight("0");
    text += &each(&add.replace("{value}", &load.replace("{k}", "k")).replace("{w}", "w0"));
    text + "    }"
}
