//! Checks that a node has the inputs, ports and types of its op's definition.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::definition::OpDefinition;
use crate::kernels::definitions;
use crate::optimizer::graph::{Graph, Node, NodeId};
use crate::optimizer::proto::attr_value::Value;
use crate::optimizer::proto::op_def::ArgDef;

/// The types of the inputs or of the outputs, with lists flattened; `None` for a type that is not
/// ours. The whole is `None` if the node lacks an attribute that determines them.
type Types = Option<Vec<Option<DType>>>;

/// Checks a node, as far as its op is known.
///
/// # Errors
/// `Internal`, with the input or port that does not fit the definition.
pub fn check(graph: &Graph, id: NodeId) -> Result<()> {
    let node = graph.node(id);
    let (inputs, outputs) = signature(graph, node);
    let failed =
        |what: String| Err(Error::Internal(format!("{} of op {} {what}", node.name(), node.op())));
    if let Some(inputs) = inputs {
        if inputs.len() != node.inputs().len() {
            return failed(format!(
                "has {} inputs, its definition {}",
                node.inputs().len(),
                inputs.len()
            ));
        }
        for (at, (want, input)) in inputs.iter().zip(node.inputs()).enumerate() {
            let got = graph.info(*input).dtype;
            if let (Some(want), Some(got)) = (want, got)
                && *want != got
            {
                return failed(format!(
                    "wants {} as input {at}, but {} gives {}",
                    want.name(),
                    graph.node(input.node).name(),
                    got.name()
                ));
            }
        }
    }
    if let Some(outputs) = outputs {
        for (at, (want, info)) in outputs.iter().zip(node.infos()).enumerate() {
            if let (Some(want), Some(got)) = (want, info.dtype)
                && *want != got
            {
                return failed(format!("gives {} at {at}, not {}", want.name(), got.name()));
            }
        }
        if let Some((port, reader)) = graph.last_port_read(id)
            && port as usize >= outputs.len()
        {
            return failed(format!(
                "has {} outputs, but {} reads number {port}",
                outputs.len(),
                graph.node(reader).name()
            ));
        }
    }
    Ok(())
}

/// The types of a node's inputs and outputs.
fn signature(graph: &Graph, node: &Node) -> (Types, Types) {
    let flat = |arguments: Arguments<'_>| -> Types {
        Some(arguments?.into_iter().flat_map(|(_, types)| types).collect())
    };
    let (inputs, outputs) = arguments(graph, node);
    (flat(inputs), flat(outputs))
}

/// The names of a node's inputs or outputs, each with its types; `None` as for [`Types`].
type Arguments<'g> = Option<Vec<(&'g str, Vec<Option<DType>>)>>;

/// The inputs and outputs of a node.
pub fn arguments<'g>(graph: &'g Graph, node: &Node) -> (Arguments<'g>, Arguments<'g>) {
    if let Some(def) = ours(node.op()) {
        let types = |args: &[&'static str]| {
            let of = |arg: &&'static str| {
                let (name, kind) = arg.split_once(": ")?;
                let types = match kind.split_once(" * ") {
                    Some((count, kind)) => repeated(node, count, kind)?,
                    None => named(node, kind)?,
                };
                Some((name, types))
            };
            args.iter().map(of).collect()
        };
        return (types(def.inputs), types(def.outputs));
    }
    let Some(def) = graph.op_def(node.op()) else { return (None, None) };
    let types = |args: &'g [ArgDef]| {
        let of = |arg: &'g ArgDef| {
            if arg.is_ref {
                return None;
            }
            let fixed = vec![DType::from_tf(arg.r#type)];
            let one =
                |kind: &str| if kind.is_empty() { Some(fixed.clone()) } else { named(node, kind) };
            let types = if !arg.type_list_attr.is_empty() {
                named(node, &arg.type_list_attr)?
            } else if !arg.number_attr.is_empty() {
                let count = usize::try_from(node.attr(&arg.number_attr)?.int()?).ok()?;
                let [dtype] = one(&arg.type_attr)?[..] else { return None };
                vec![dtype; count]
            } else {
                one(&arg.type_attr)?
            };
            Some((&*arg.name, types))
        };
        args.iter().map(of).collect()
    };
    (types(&def.input_arg), types(&def.output_arg))
}

/// The definition of one of our ops.
fn ours(op: &str) -> Option<&'static OpDefinition> {
    if !op.starts_with("_Wgpu") {
        return None;
    }
    definitions().find(|def| def.name == op)
}

/// The types that an attribute gives, or the type with this name in TensorFlow.
fn named(node: &Node, kind: &str) -> Types {
    match node.attr(kind).map(|attr| attr.value()) {
        Some(Some(Value::Type(number))) => Some(vec![DType::from_tf(*number)]),
        Some(Some(Value::List(list))) => {
            Some(list.r#type.iter().map(|number| DType::from_tf(*number)).collect())
        }
        Some(_) => None,
        None => match kind {
            "float" => Some(vec![Some(DType::F32)]),
            "double" => Some(vec![Some(DType::F64)]),
            _ => DType::ALL.into_iter().find(|dtype| dtype.name() == kind).map(|d| vec![Some(d)]),
        },
    }
}

/// The type `kind`, repeated as often as the attribute `count` says.
fn repeated(node: &Node, count: &str, kind: &str) -> Types {
    let count = usize::try_from(node.attr(count)?.int()?).ok()?;
    let [dtype] = named(node, kind)?[..] else { return None };
    Some(vec![dtype; count])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> String {
        let graph = Graph::from_text(text).unwrap();
        let outcome: Result<()> = graph.ids().try_for_each(|id| check(&graph, id));
        outcome.err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn inputs_ports_and_types_are_those_of_the_definition() {
        let text = |node: &str, reader: &str| {
            format!(
                "a = Placeholder -> float32[2]\nb = Placeholder -> int32[2]\nn = {node}\n{reader}"
            )
        };
        let fused = "_WgpuFusedElementwise(a, a) {T_in: [float32, float32], T_out: \
                     [float32]} -> float32[2]";
        assert_eq!(check_text(&text(fused, "r = Neg(n)")), "");
        let one = check_text(&text(&fused.replace("(a, a)", "(a)"), ""));
        assert!(one.contains("has 1 inputs, its definition 2"), "{one}");
        let other = check_text(&text(&fused.replace("(a, a)", "(a, b)"), ""));
        assert!(other.contains("wants float32 as input 1, but b gives int32"), "{other}");
        let port = check_text(&text(fused, "r = Neg(n:1)"));
        assert!(port.contains("has 1 outputs, but r reads number 1"), "{port}");
        let result = check_text(&text(&fused.replace("-> float32", "-> int32"), ""));
        assert!(result.contains("gives float32 at 0, not int32"), "{result}");
    }
}
