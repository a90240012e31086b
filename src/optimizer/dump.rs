//! The files in the folder of `TF_WGPU_DUMP`: graphs as text and as pictures, the time of each
//! pass, and the decisions about each node.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::decisions::{Decision, decisions};
use super::graph::{Graph, Node, NodeId};
use super::journal::{Journal, Placed};
use super::passes::Step;
use super::picture::{Picture, Shown, Style, Wire};
use super::shape::TensorInfo;
use crate::dump::{Counter, Folder};
use crate::kernels::fused::replaced::called_ops;

/// The largest number of characters in a line of a box.
const WIDEST: usize = 34;
/// The largest number of lines for the functions that a fused node calls.
const MAX_LINES: usize = 6;

const COLUMNS: &[&str] =
    &["graph", "step", "round", "pass", "ms", "verifying_ms", "nodes", "edits"];

const REGION_COLUMNS: &[&str] = &["graph", "node", "op", "region", "reason"];

const FUSION_COLUMNS: &[&str] = &["graph", "node", "op", "replaces", "reason", "pass", "neighbour"];

/// The files of one optimization, number 7 here: `graphs/0007_before` and `graphs/0007_after` as
/// `.txt` and `.svg`, and `graphs/0007_03_elementwise.txt` for the third step that changed the
/// graph. `fusions.tsv` has a row for each fused node, with the nodes that it replaces, and for
/// each other node, with the reason why it is not part of one. `regions.tsv` has the region of each
/// node, or the reason why it is in none.
pub struct Dump<'a> {
    folder: &'a Folder,
    number: String,
    steps: u32,
    /// The graph before regions were made.
    whole: Option<Picture>,
}

impl<'a> Dump<'a> {
    /// Writes the graph before the optimization.
    pub fn begin(folder: &'a Folder, graph: &Graph) -> Self {
        static GRAPHS: Counter = Counter::new();
        let dump = Self { folder, number: GRAPHS.next(), steps: 0, whole: None };
        dump.write("before", graph, &picture(graph, &dump.name("before")));
        dump
    }

    /// Writes the graph after a step that changed it, and the step's times.
    pub fn step(&mut self, step: &Step, graph: &Graph) {
        let ms = |time: std::time::Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
        let at = if step.edits == 0 {
            String::new()
        } else {
            self.steps += 1;
            let at = format!("{:02}", self.steps);
            let path = format!("graphs/{}_{at}_{}.txt", self.number, step.pass);
            self.folder.write(&path, graph.to_text());
            at
        };
        self.folder.append(
            "passes.tsv",
            COLUMNS,
            &[
                &self.number,
                &at,
                &step.round,
                &step.pass,
                &ms(step.run),
                &ms(step.verifying),
                &graph.len(),
                &step.edits,
            ],
        );
    }

    /// Writes the decisions about the nodes of a graph in which no region was made yet.
    pub fn decide(&mut self, graph: &Graph) {
        self.whole = Some(picture(graph, &self.name("after")));
        for Decision { id, replaced, refusal, by } in decisions(graph) {
            let node = graph.node(id);
            let replaced: Vec<String> =
                replaced.iter().map(|node| format!("{} {}", node.op, node.name)).collect();
            let (pass, neighbour) = by.unwrap_or_default();
            let reason = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
            self.folder.append(
                "fusions.tsv",
                FUSION_COLUMNS,
                &[
                    &self.number,
                    &node.name(),
                    &node.op(),
                    &replaced.join("; "),
                    &reason,
                    &pass,
                    &neighbour,
                ],
            );
        }
    }

    /// Writes the graph after the optimization, and the places of nodes in regions. Its picture
    /// shows these nodes.
    pub fn end(mut self, graph: &Graph) {
        let whole = self.whole.take();
        let mut whole = whole.unwrap_or_else(|| picture(graph, &self.name("after")));
        if let Some(journal) = graph.journal() {
            mark(&mut whole, journal);
            for (node, Placed { op, region }) in journal.placed() {
                let reason = region.as_ref().err().map(ToString::to_string).unwrap_or_default();
                let region = region.as_deref().unwrap_or_default();
                let row: &[&dyn std::fmt::Display] = &[&self.number, node, op, &region, &reason];
                self.folder.append("regions.tsv", REGION_COLUMNS, row);
            }
        }
        self.write("after", graph, &whole);
    }

    /// The name of the files that say what was at some time.
    fn name(&self, when: &str) -> String {
        format!("{}_{when}", self.number)
    }

    fn write(&self, when: &str, graph: &Graph, picture: &Picture) {
        let name = self.name(when);
        self.folder.write(&format!("graphs/{name}.txt"), graph.to_text());
        self.folder.write(&format!("graphs/{name}.svg"), picture.svg());
    }
}

/// Shows the nodes of regions as groups, and tells why other nodes are in none.
fn mark(picture: &mut Picture, journal: &Journal) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for shown in &mut picture.boxes {
        match journal.placed().get(&*shown.name).map(|placed| &placed.region) {
            Some(Ok(region)) => {
                let next = numbers.len();
                let number = *numbers.entry(region).or_insert(next);
                shown.group = Some(number);
                shown.lines.push(format!("region {number}"));
            }
            Some(Err(why)) if shown.style != Style::Other => {
                let why = format!("no region: {why}");
                let words: Vec<&str> = why.split(' ').collect();
                shown.lines.extend(wrapped(&words, MAX_LINES));
            }
            _ => {}
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
        // A write to a String cannot fail.
        let _ = write!(tooltip, "\n{part}");
    }
    let (name, reference) = (node.name().to_owned(), short(node.name()));
    if node.op() == "Const" {
        let head = value(graph, id)
            .unwrap_or_else(|| infos.first().cloned().unwrap_or_else(|| "Const".to_owned()));
        let style = Style::Constant;
        return Shown { name, head, lines: Vec::new(), reference, tooltip, style, group: None };
    }
    let mut lines = vec![reference.clone()];
    let calls = called_ops(&|name| Some(node.attr(name)?.string()?.to_owned()));
    lines.extend(wrapped(&calls, MAX_LINES));
    if !infos.is_empty() {
        lines.extend(wrapped(&infos, 3));
    }
    let device = node.device().rsplit("device:").next().unwrap_or("");
    if !node.on_wgpu() && !device.is_empty() {
        lines.push(format!("on {device}"));
    }
    let head = node.op().to_owned();
    Shown { name, head, lines, reference, tooltip, style: style(node), group: None }
}

fn style(node: &Node) -> Style {
    match (node.op().starts_with("_Wgpu"), node.on_wgpu()) {
        (true, _) => Style::Fused,
        (false, true) => Style::Device,
        _ => Style::Other,
    }
}

/// The last two parts of a name. A long name is cut at the front.
fn short(name: &str) -> String {
    let start = name.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    let last: Vec<char> = name[start..].chars().collect();
    if last.len() <= WIDEST {
        return last.into_iter().collect();
    }
    std::iter::once('…').chain(last[last.len() - WIDEST + 1..].iter().copied()).collect()
}

/// The words, joined by spaces, in at most `most` lines.
fn wrapped(words: &[impl AsRef<str>], most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        let word = word.as_ref();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDEST => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
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

/// A constant of few elements in readable form.
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
    fn a_dump_has_the_graph_before_and_after_and_behind_each_step_that_changed_it() {
        let path = std::env::temp_dir().join(format!("tensorflow-wgpu-g{}", std::process::id()));
        let folder = Folder::new(path.clone());
        let graph = Graph::from_text(GRAPH).unwrap();
        let mut dump = Dump::begin(&folder, &graph);
        for (pass, edits) in [("lists", 0), ("cleanup", 2)] {
            let times = std::time::Duration::from_micros(1500);
            let step = Step { round: 1, pass, run: times, verifying: times, edits };
            dump.step(&step, &graph);
        }
        let number = dump.number.clone();
        dump.decide(&graph);
        dump.end(&graph);
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap();
        let graphs = ["before.txt", "01_cleanup.txt", "after.txt", "before.svg", "after.svg"]
            .map(|name| read(&format!("graphs/{number}_{name}")));
        let (count, table) = (path.join("graphs").read_dir().unwrap().count(), read("passes.tsv"));
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(count, graphs.len());
        for text in &graphs[..3] {
            assert_eq!(Graph::from_text(text).unwrap().to_bytes(), graph.to_bytes());
        }
        assert!(graphs[3].contains("_before: 5 nodes") && graphs[4].contains("_after: 5 nodes"));
        let rows: Vec<&str> = table.lines().skip(1).collect();
        let row = format!("{number}\t\t1\tlists\t1.500\t1.500\t5\t0");
        assert_eq!((rows.len(), rows[0]), (2, &*row));
    }
}
