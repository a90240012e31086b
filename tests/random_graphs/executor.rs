//! Executes a graph as TensorFlow's executor does, with loops of TensorFlow 1.
//!
//! A node runs once in each iteration of its frame, when all its inputs are there, in a random
//! order. A dead input, or one that waits for a dead node, makes a node dead. A `Merge` runs for
//! its first live input, and is dead if all inputs are dead. An `Enter` begins a frame, a live
//! `NextIteration` begins the next iteration. An `Exit` that is dead in the last iteration is dead
//! outside once the frame is done.

use std::collections::BTreeMap;

use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::local::Input;
use tensorflow_wgpu::optimizer::attr::Attr;
use tensorflow_wgpu::optimizer::graph::{Graph, NodeId};

use super::super::numeric::Random;
use super::generate::Case;
use super::run::{Engine, evaluate, tensor};

/// How often each node with a side effect ran.
pub type Effects = BTreeMap<String, usize>;

/// The values of the fetches. Handles of variables are their numbers.
pub fn run(
    graph: &Graph,
    case: &Case,
    random: &mut Random,
    engine: &mut Engine<'_>,
) -> Vec<HostTensor> {
    run_with_effects(graph, case, random, engine).0
}

/// Returns the effects, too.
pub fn run_with_effects(
    graph: &Graph,
    case: &Case,
    random: &mut Random,
    engine: &mut Engine<'_>,
) -> (Vec<HostTensor>, Effects) {
    graph.check_frames().unwrap_or_else(|e| panic!("{e}\n{}", graph.to_text()));
    let mut executor = Executor::new(graph);
    for id in graph.ids().filter(|id| graph.used(*id).next().is_none()) {
        executor.ready.push((OUTSIDE, id));
    }
    loop {
        while !executor.ready.is_empty() {
            let next = executor.ready.swap_remove(random.below(executor.ready.len()));
            executor.run(next, case, engine);
        }
        if !executor.end_frame() {
            break;
        }
    }
    let fetched = |name: &String| {
        let id = graph.find(name).unwrap_or_else(|| panic!("the fetch {name} is gone"));
        match executor.outside.get(&id) {
            Some(Some(outputs)) => tensor(outputs[0].as_ref().expect("it is alive")).clone(),
            _ => panic!("the fetch {name} does not run:\n{}", graph.to_text()),
        }
    };
    let all = executor.frames.iter().all(|frame| frame.is_done || frame.parent.is_none());
    assert!(all && executor.outside_is_done(), "nodes wait forever:\n{}", graph.to_text());
    (case.fetches.iter().map(|(name, _)| fetched(name)).collect(), executor.effects)
}

/// An iteration of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    frame: usize,
    iteration: usize,
}

const OUTSIDE: Step = Step { frame: 0, iteration: 0 };

/// The outputs of a node: None for a dead node. Each output of a live node may be dead.
type Outputs = Option<Vec<Option<Input>>>;

#[derive(Default)]
struct Frame {
    /// The step that contains its `Enter`s.
    parent: Option<Step>,
    /// The `Enter`s that did not run.
    missing: usize,
    constants: Vec<(NodeId, Outputs)>,
    /// The last iteration.
    last: usize,
    dead_exits: Vec<NodeId>,
    is_done: bool,
}

/// A node in an iteration before it runs.
struct Waiting {
    /// The number of edges without a value yet; for a `Merge` only control edges.
    missing: usize,
    is_dead: bool,
    inputs: Vec<Option<Input>>,
    /// For a `Merge`: the number of dead inputs, and the live one.
    dead: usize,
    live: Option<usize>,
    has_run: bool,
}

/// The reader of an edge, with the output that it reads and its index there; `None` for control.
type Edge = (NodeId, Option<(usize, usize)>);

struct Executor<'g> {
    graph: &'g Graph,
    /// For each node its users, with the output and the number of the input; None for control
    /// edges.
    edges: BTreeMap<NodeId, Vec<Edge>>,
    frames: Vec<Frame>,
    by_name: BTreeMap<(String, Step), usize>,
    waiting: BTreeMap<(Step, NodeId), Waiting>,
    ready: Vec<(Step, NodeId)>,
    outside: BTreeMap<NodeId, Outputs>,
    effects: Effects,
}

impl<'g> Executor<'g> {
    fn new(graph: &'g Graph) -> Self {
        let mut edges: BTreeMap<NodeId, Vec<_>> = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            for (at, input) in node.inputs().iter().enumerate() {
                edges.entry(input.node).or_default().push((id, Some((input.port as usize, at))));
            }
            for control in node.controls() {
                edges.entry(*control).or_default().push((id, None));
            }
        }
        Self {
            graph,
            edges,
            frames: vec![Frame::default()],
            by_name: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ready: Vec::new(),
            outside: BTreeMap::new(),
            effects: Effects::new(),
        }
    }

    fn run(&mut self, (step, id): (Step, NodeId), case: &Case, engine: &mut Engine<'_>) {
        let node = self.graph.node(id);
        let waiting = self.waiting.get_mut(&(step, id));
        let (inputs, is_dead, live) = waiting.map_or((Vec::new(), false, None), |waiting| {
            waiting.has_run = true;
            (std::mem::take(&mut waiting.inputs), waiting.is_dead, waiting.live)
        });
        let outputs = (!is_dead).then(|| {
            let inputs: Vec<Input> = inputs.into_iter().flatten().collect();
            if matches!(node.op(), "Assert" | "Print") {
                *self.effects.entry(node.name().to_owned()).or_default() += 1;
            }
            match live {
                Some(live) => {
                    let index = HostTensor::i32(&[], &[live as i32]);
                    inputs.into_iter().chain([index.into()]).map(Some).collect()
                }
                None => evaluate(self.graph, id, inputs, case, engine),
            }
        });
        match node.op() {
            "Enter" => self.enter(step, id, outputs),
            "Exit" if outputs.is_some() => {
                let parent = self.frames[step.frame].parent.expect("an Exit is in a loop");
                self.send(id, &outputs, parent);
            }
            "Exit" => {
                let frame = &mut self.frames[step.frame];
                if step.iteration == frame.last {
                    frame.dead_exits.push(id);
                }
            }
            "NextIteration" if outputs.is_some() => {
                let next = Step { iteration: step.iteration + 1, ..step };
                assert!(next.iteration < 100, "a loop has no end:\n{}", self.graph.to_text());
                let frame = &mut self.frames[step.frame];
                if next.iteration > frame.last {
                    frame.last = next.iteration;
                    frame.dead_exits.clear();
                    for (enter, value) in frame.constants.clone() {
                        self.send(enter, &value, next);
                    }
                }
                self.send(id, &outputs, next);
            }
            "NextIteration" => {}
            _ => self.send(id, &outputs, step),
        }
    }

    fn enter(&mut self, step: Step, id: NodeId, outputs: Outputs) {
        let name = |id: NodeId| {
            self.graph.node(id).attr("frame_name").and_then(Attr::string).expect("a frame")
        };
        let enters = self.graph.ids().filter(|other| self.graph.node(*other).op() == "Enter");
        let missing = enters.filter(|other| name(*other) == name(id)).count();
        let key = (name(id).to_owned(), step);
        let next = self.frames.len();
        let frame = *self.by_name.entry(key).or_insert(next);
        if frame == next {
            self.frames.push(Frame { parent: Some(step), missing, ..Frame::default() });
        }
        self.frames[frame].missing -= 1;
        let is_constant = self.graph.node(id).attr("is_constant").and_then(Attr::bool);
        let mut last = 0;
        if is_constant == Some(true) {
            self.frames[frame].constants.push((id, outputs.clone()));
            last = self.frames[frame].last;
        }
        for iteration in 0..=last {
            self.send(id, &outputs, Step { frame, iteration });
        }
    }

    /// Passes a node's outputs to its users.
    fn send(&mut self, from: NodeId, outputs: &Outputs, to: Step) {
        if to == OUTSIDE {
            let earlier = self.outside.insert(from, outputs.clone());
            assert!(earlier.is_none(), "{} runs twice", self.graph.node(from).name());
        }
        let is_enter = self.graph.node(from).op() == "Enter";
        for (user, edge) in self.edges.get(&from).cloned().unwrap_or_default() {
            let node = self.graph.node(user);
            let is_merge = node.op() == "Merge";
            let data = node.inputs().len();
            let missing = node.controls().len() + if is_merge { 0 } else { data };
            let waiting = self.waiting.entry((to, user)).or_insert_with(|| Waiting {
                missing,
                is_dead: false,
                inputs: vec![None; if is_merge { 1 } else { data }],
                dead: 0,
                live: None,
                has_run: false,
            });
            let value =
                edge.and_then(|(port, _)| outputs.as_ref().and_then(|all| all[port].clone()));
            let is_ready = match edge {
                Some((_, at)) if is_merge => {
                    if let Some(value) = value {
                        assert!(waiting.live.is_none(), "two branches of {} run", node.name());
                        waiting.live = Some(at);
                        waiting.inputs[0] = Some(value);
                    } else {
                        waiting.dead += 1;
                    }
                    // In a loop that does not begin, no next step will come.
                    waiting.is_dead = waiting.live.is_none() && (waiting.dead == data || is_enter);
                    waiting.live.is_some() || waiting.is_dead
                }
                None if is_merge => {
                    waiting.missing -= 1;
                    waiting.live.is_some() || waiting.is_dead
                }
                _ => {
                    waiting.missing -= 1;
                    let is_dead = if edge.is_some() { value.is_none() } else { outputs.is_none() };
                    waiting.is_dead |= is_dead;
                    if let Some((_, at)) = edge {
                        waiting.inputs[at] = value;
                    }
                    true
                }
            };
            if is_ready && waiting.missing == 0 && !waiting.has_run {
                waiting.has_run = true;
                self.ready.push((to, user));
            }
        }
    }

    /// Ends a frame in which nothing happens any more, if there is one.
    fn end_frame(&mut self) -> bool {
        let is_busy = |at: usize| {
            self.frames.iter().any(|f| !f.is_done && f.parent.is_some_and(|p| p.frame == at))
        };
        let ends = (1..self.frames.len()).find(|at| {
            let frame = &self.frames[*at];
            !frame.is_done && frame.missing == 0 && !is_busy(*at)
        });
        let Some(ended) = ends else { return false };
        let frame = &mut self.frames[ended];
        frame.is_done = true;
        let parent = frame.parent.expect("a loop is in a frame");
        for exit in std::mem::take(&mut frame.dead_exits) {
            self.send(exit, &None, parent);
        }
        let first = Step { frame: ended, iteration: 0 };
        let next = Step { frame: ended + 1, iteration: 0 };
        let stuck: Vec<&str> = self
            .waiting
            .iter()
            .filter(|((step, _), waiting)| *step >= first && *step < next && !waiting.has_run)
            .map(|((_, id), _)| self.graph.node(*id).name())
            .collect();
        assert!(stuck.is_empty(), "{stuck:?} wait forever:\n{}", self.graph.to_text());
        true
    }

    /// Whether every node outside of loops ran.
    fn outside_is_done(&self) -> bool {
        self.waiting.iter().all(|((step, _), waiting)| *step != OUTSIDE || waiting.has_run)
    }
}
