//! The schemas in `proto/`, and their round trips.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::wire;

/// Tests against the running TensorFlow compare `proto/descriptors.bin`, because they cannot read
/// schemas.
#[test]
fn the_descriptors_are_those_of_the_schemas() {
    let mut files: Vec<_> =
        std::fs::read_dir("proto").unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "proto"));
    files.sort();
    assert_eq!(files.len(), 13, "the twelve messages of the graph C API, and the profiler's");
    let mut descriptors = protox::compile(files, ["proto"]).unwrap();
    descriptors.file.iter_mut().for_each(|f| f.source_code_info = None);
    let bytes = descriptors.encode_to_vec();
    let path = "proto/descriptors.bin";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(
        std::fs::read(path).is_ok_and(|b| b == bytes),
        "{path} is stale: run the test with UPDATE_EXPECT=1"
    );
}

/// Graphs as TensorFlow serialized them.
fn real_graphs() -> Vec<(String, Bytes)> {
    let dir =
        std::fs::read_dir("tests/data/graphs").expect("the graphs of tests/python/make_graphs.py");
    let mut graphs: Vec<_> = dir
        .map(|e| e.unwrap().path())
        .map(|p| (p.display().to_string(), Bytes::from(std::fs::read(p).unwrap())))
        .collect();
    graphs.sort();
    assert!(!graphs.is_empty());
    graphs
}

#[test]
fn real_graphs_survive_byte_for_byte() {
    for (name, bytes) in real_graphs() {
        let graph = Graph::parse(&bytes).unwrap();
        assert!(graph.len() > 1, "{name}");
        assert_eq!(graph.to_bytes(), bytes, "{name}");
    }
}

/// A field that no schema of ours has.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    (1000u32..100_000, any::<u64>(), prop::collection::vec(any::<u8>(), 0..20), 0..4).prop_map(
        |(field, number, bytes, kind)| {
            let mut out = Vec::new();
            match kind {
                0 => {
                    encode_key(field, WireType::Varint, &mut out);
                    encode_varint(number, &mut out);
                }
                1 => {
                    encode_key(field, WireType::SixtyFourBit, &mut out);
                    out.extend(number.to_le_bytes());
                }
                2 => {
                    encode_key(field, WireType::ThirtyTwoBit, &mut out);
                    out.extend((number as u32).to_le_bytes());
                }
                _ => wire::put(&mut out, field, &bytes),
            }
            out
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Unknown fields of graphs, nodes and attributes keep their bytes, also in nodes that change.
    #[test]
    fn unknown_fields_survive(
        which in any::<prop::sample::Index>(),
        node in any::<prop::sample::Index>(),
        [in_graph, in_node, in_attr] in [unknown_field(), unknown_field(), unknown_field()],
    ) {
        let graphs = real_graphs();
        let (_, bytes) = which.get(&graphs);
        let records: Vec<_> = wire::records(bytes).map(Result::unwrap).collect();
        let nodes: Vec<usize> = (0..records.len()).filter(|i| records[*i].field == 1).collect();
        let chosen = *node.get(&nodes);
        let mut message = in_graph;
        for (i, record) in records.iter().enumerate() {
            if i == chosen {
                let mut attr = Vec::new();
                wire::put(&mut attr, 1, b"_unknown");
                wire::put(&mut attr, 2, &in_attr);
                let mut changed = record.value.to_vec();
                changed.extend(&in_node);
                wire::put(&mut changed, 5, &attr);
                wire::put(&mut message, 1, &changed);
            } else {
                message.extend(record.bytes);
            }
        }
        let message = Bytes::from(message);
        let mut graph = Graph::parse(&message).unwrap();
        let moved: Vec<u8> = {
            // Fields beyond nodes follow the nodes.
            let (nodes, rest): (Vec<_>,
                Vec<_>) = wire::records(&message).map(Result::unwrap).partition(|r| r.field == 1);
            nodes.iter().chain(&rest).flat_map(|r| r.bytes.to_vec()).collect()
        };
        prop_assert_eq!(&graph.to_bytes(), &moved);
        let id = graph.ids().nth(nodes.iter().position(|n| *n == chosen).unwrap()).unwrap();
        graph.set_attr(id, "_changed", 1i64);
        let rewritten = graph.to_bytes();
        let contains = |needle: &[u8]| rewritten.windows(needle.len()).any(|w| w == needle);
        prop_assert!(contains(&in_node) && contains(&in_attr));
        prop_assert_eq!(Graph::parse(&Bytes::from(rewritten)).unwrap().len(), graph.len());
    }
}
