//! Graphs written to files, as text and as pictures, for people.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::graph::{Graph, Node, NodeId};
use super::picture::{Picture, Shown, Style, Wire};
use super::shape::TensorInfo;

/// Most characters of a line in a box.
const WIDEST: usize = 34;
/// Most lines for the functions that a fused node calls.
const MAX_LINES: usize = 6;

/// The files of one optimization: `0007_before.txt` and `.svg`, `0007_after.txt` and `.svg`.
#[derive(Debug)]
pub struct Dump {
    folder: PathBuf,
    number: u32,
}

impl Dump {
    /// Writes the graph as it came into `folder`, which is made. Trouble with files is a line in
    /// the log.
    pub fn begin(folder: &Path, graph: &Graph) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dump =
            Self { folder: folder.to_owned(), number: COUNT.fetch_add(1, Ordering::Relaxed) };
        if let Err(e) = std::fs::create_dir_all(folder) {
            log::warn!("{}: {e}", folder.display());
        }
        dump.write("before", graph);
        dump
    }

    /// Writes the graph as it became.
    pub fn end(self, graph: &Graph) {
        self.write("after", graph);
    }

    fn write(&self, when: &str, graph: &Graph) {
        let name = format!("{:04}_{when}", self.number);
        for (extension, text) in [("txt", graph.to_text()), ("svg", picture(graph, &name).svg())] {
            let path = self.folder.join(format!("{name}.{extension}"));
            if let Err(e) = std::fs::write(&path, text) {
                log::warn!("{}: {e}", path.display());
            }
        }
    }
}

/// The graph as a picture.
pub fn picture(graph: &Graph, title: &str) -> Picture {
    let order = graph.order();
    let ids: Vec<NodeId> = order.map_or_else(|| graph.ids().collect(), |order| order.to_vec());
    let mut place = vec![0; graph.capacity()];
    for (at, id) in ids.iter().enumerate() {
        place[id.index()] = at;
    }
    let mut wires = Vec::new();
    for id in &ids {
        let node = graph.node(*id);
        let wire = |from: NodeId, control| Wire {
            from: place[from.index()],
            to: place[id.index()],
            control,
        };
        wires.extend(node.inputs().iter().map(|i| wire(i.node, false)));
        wires.extend(node.controls().iter().map(|c| wire(*c, true)));
    }
    Picture {
        title: title.to_owned(),
        boxes: ids.iter().map(|id| shown(graph, *id)).collect(),
        wires,
    }
}

fn shown(graph: &Graph, id: NodeId) -> Shown {
    let node = graph.node(id);
    let text =
        ["expression", "program"].iter().find_map(|name| node.attr(name)?.string()).unwrap_or("");
    let infos: Vec<String> = node.infos.iter().map(info).collect();
    let mut tooltip = format!("{}\n{}", node.name(), node.device());
    for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        // Writing to a String cannot fail.
        let _ = write!(tooltip, "\n{part}");
    }
    let reference = short(node.name());
    if node.op() == "Const" {
        let head = value(graph, id)
            .unwrap_or_else(|| infos.first().cloned().unwrap_or_else(|| "Const".to_owned()));
        return Shown { head, lines: Vec::new(), reference, tooltip, style: Style::Constant };
    }
    let mut lines = vec![reference.clone()];
    lines.extend(functions(text));
    if !infos.is_empty() {
        lines.extend(wrapped(&infos, 3));
    }
    let device = node.device().rsplit("device:").next().unwrap_or("");
    if !node.on_wgpu() && !device.is_empty() {
        lines.push(format!("on {device}"));
    }
    Shown { head: node.op().to_owned(), lines, reference, tooltip, style: style(node) }
}

fn style(node: &Node) -> Style {
    match (node.op().starts_with("_Wgpu"), node.on_wgpu()) {
        (true, _) => Style::Fused,
        (false, true) => Style::Device,
        _ => Style::Other,
    }
}

/// The last two parts of a name, cut in front where they are long.
fn short(name: &str) -> String {
    let start = name.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    let last: Vec<char> = name[start..].chars().collect();
    if last.len() <= WIDEST {
        return last.into_iter().collect();
    }
    std::iter::once('…').chain(last[last.len() - WIDEST + 1..].iter().copied()).collect()
}

/// The scalar and other functions that an expression or a program calls, in lines.
fn functions(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        // A call's name is followed by its types, a reduction's by a colon.
        if matches!(c, '<' | '(' | ':') && word.starts_with(|c: char| c.is_ascii_uppercase()) {
            names.push(std::mem::take(&mut word));
        }
        word.clear();
    }
    wrapped(&names, MAX_LINES)
}

/// Words joined by spaces in at most `most` lines.
fn wrapped(words: &[String], most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDEST => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        lines[most - 1].push_str(" …");
    }
    lines
}

fn info(info: &TensorInfo) -> String {
    let dtype = info.dtype.map_or("?", |t| t.name());
    let Some(shape) = &info.shape else { return dtype.to_owned() };
    let dims: Vec<String> =
        shape.iter().map(|d| d.known().map_or_else(|| "?".to_owned(), |n| n.to_string())).collect();
    format!("{dtype}[{}]", dims.join(","))
}

/// A constant of few elements as people write it.
fn value(graph: &Graph, id: NodeId) -> Option<String> {
    let value = graph.constant(super::graph::Output { node: id, port: 0 })?;
    if value.dims.iter().product::<usize>() > 4 || value.dtype.is_complex() {
        return None;
    }
    let items: Vec<String> = value.to_f64().iter().map(|v| format!("{v}")).collect();
    let text =
        if value.dims.is_empty() { items.join("") } else { format!("[{}]", items.join(",")) };
    (text.len() <= 24).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = "
        preserve y
        a/very/long/name/of/an/input/which_is_too_long_for_one_line = Placeholder {dtype: float32} \
                         @CPU:0 -> float32[?, 4]
        half = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
        layer/x = \
                         _WgpuFusedElementwise(a/very/long/name/of/an/input/\
                         which_is_too_long_for_one_line, half) {expression: \"x: float32, \
                         float32; c: 0; s0 = Mul<float32>(x0, x1); s1 = Exp<float32>(s0); return \
                         s1\"} -> float32[?, 4]
        y = Relu(layer/x, ^z) {T: float32}
        z = NoOp
    ";

    #[test]
    fn a_graph_is_drawn_with_what_people_ask_for() {
        let graph = Graph::from_text(GRAPH).unwrap();
        let picture = picture(&graph, "example");
        let find = |head: &str| picture.boxes.iter().position(|b| b.head == head).unwrap();
        let (input, half, fused) =
            (find("Placeholder"), find("0.5"), find("_WgpuFusedElementwise"));
        let input_lines = ["…/which_is_too_long_for_one_line", "float32[?,4]", "on CPU:0"];
        assert_eq!(picture.boxes[input].lines[1..], input_lines[1..]);
        assert!(picture.boxes[input].lines[0].chars().count() <= WIDEST);
        assert_eq!(picture.boxes[fused].lines, ["layer/x", "Mul Exp", "float32[?,4]"]);
        let styles = [input, half, fused, find("Relu")].map(|i| picture.boxes[i].style);
        assert_eq!(styles, [Style::Other, Style::Constant, Style::Fused, Style::Device]);
        assert_eq!(picture.wires.iter().filter(|w| w.control).count(), 1);
        assert_eq!(picture.wires.len(), 4);
    }

    #[test]
    fn a_dump_is_four_files() {
        let folder =
            std::env::temp_dir().join(format!("tensorflow-wgpu-dump-{}", std::process::id()));
        let graph = Graph::from_text(GRAPH).unwrap();
        Dump::begin(&folder, &graph).end(&graph);
        let read = |extension: &str| {
            let mut paths: Vec<PathBuf> =
                folder.read_dir().unwrap().map(|e| e.unwrap().path()).collect();
            paths.retain(|p| p.extension().is_some_and(|e| e == extension));
            paths.sort();
            paths.into_iter().map(|p| std::fs::read_to_string(p).unwrap()).collect::<Vec<_>>()
        };
        let (texts, pictures) = (read("txt"), read("svg"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((texts.len(), pictures.len()), (2, 2));
        assert_eq!(Graph::from_text(&texts[0]).unwrap().to_bytes(), graph.to_bytes());
        assert!(
            pictures[0].contains("_after: 5 nodes") && pictures[1].contains("_before: 5 nodes")
        );
    }

    #[test]
    fn functions_are_found_in_expressions_and_programs() {
        let text = "Max: x: float32; c: 0; return x0 | full: s0 = Sub<float32>(x0, x1); s1 = \
                    Cast<float32, float16>(s0)";
        assert_eq!(functions(text), ["Max Sub Cast"]);
    }
}
