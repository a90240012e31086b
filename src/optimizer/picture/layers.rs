//! The layer of each box, and the wires that are drawn.

use super::Wire;

/// The largest number of layers over which a wire is drawn.
const LONGEST: usize = 10;

/// The layers of a graph's boxes.
#[derive(Debug)]
pub(super) struct Layers {
    /// The layer of each box; 0 is the top.
    pub layer: Vec<usize>,
    /// Whether each wire is drawn, because it leads downwards over few layers.
    pub drawn: Vec<bool>,
}

impl Layers {
    /// Puts each box below the boxes that lead to it. A chain of boxes without inputs, such as a
    /// variable's handle and its read, stands just above its first reader.
    pub fn of(count: usize, wires: &[Wire]) -> Self {
        let (order, position) = order(count, wires);
        let mut above = vec![Vec::new(); count];
        let mut users = vec![Vec::new(); count];
        for wire in wires.iter().filter(|w| position[w.from] < position[w.to]) {
            above[wire.to].push(wire.from);
            if !wire.control {
                users[wire.from].push(wire.to);
            }
        }
        let mut layer = vec![0; count];
        let sink = |layer: &mut Vec<usize>, node: usize| {
            let lowest = above[node].iter().map(|u| layer[*u] + 1).max();
            layer[node] = layer[node].max(lowest.unwrap_or(0));
        };
        order.iter().for_each(|node| sink(&mut layer, *node));
        // Variables' handles, their reads, constants and casts of them are chains without inputs.
        let mut light = vec![false; count];
        for &node in &order {
            light[node] = above[node].len() <= 1 && above[node].iter().all(|u| light[*u]);
        }
        for &node in order.iter().rev().filter(|n| light[**n]) {
            if let Some(first) = users[node].iter().map(|v| layer[*v]).min() {
                layer[node] = first - 1;
            }
        }
        // Boxes that only wait for such chains move down with them.
        order.iter().for_each(|node| sink(&mut layer, *node));
        let drawn = wires
            .iter()
            .map(|w| position[w.from] < position[w.to] && layer[w.to] - layer[w.from] <= LONGEST)
            .collect();
        Self { layer, drawn }
    }
}

/// The boxes in an order in which wires lead forwards, and each box's position in it. A wire that
/// closes a cycle leads backwards.
fn order(count: usize, wires: &[Wire]) -> (Vec<usize>, Vec<usize>) {
    let mut above = vec![Vec::new(); count];
    for wire in wires {
        above[wire.to].push(wire.from);
    }
    let mut order = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    for root in 0..count {
        // The search is depth first without recursion, for graphs are deep. The number is that of
        // the next predecessor to visit.
        let mut path = vec![(root, 0)];
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        while let Some((node, next)) = path.last_mut() {
            if let Some(&from) = above[*node].get(*next) {
                *next += 1;
                if !std::mem::replace(&mut seen[from], true) {
                    path.push((from, 0));
                }
            } else {
                order.push(*node);
                path.pop();
            }
        }
    }
    let mut position = vec![0; count];
    for (i, node) in order.iter().enumerate() {
        position[*node] = i;
    }
    (order, position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(count: usize, wires: &[(usize, usize)], control: &[(usize, usize)]) -> Layers {
        let wire = |control| move |&(from, to): &(usize, usize)| Wire { from, to, control };
        Layers::of(
            count,
            &wires
                .iter()
                .map(wire(false))
                .chain(control.iter().map(wire(true)))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn boxes_lie_below_what_they_use_and_sources_near_their_use() {
        // 0 → 1 → 2 → 3, and 4 → 5 → 3: a variable and its read.
        let found = layers(6, &[(0, 1), (1, 2), (2, 3), (4, 5), (5, 3)], &[]);
        assert_eq!(found.layer, [0, 1, 2, 3, 1, 2]);
        assert_eq!(found.drawn, [true; 5]);
    }

    #[test]
    fn what_waits_for_a_read_keeps_it_not_at_the_top() {
        let found = layers(7, &[(0, 1), (1, 2), (2, 3), (4, 5), (5, 3)], &[(5, 6)]);
        assert_eq!(found.layer, [0, 1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn one_wire_of_a_cycle_is_not_drawn() {
        let found = layers(3, &[(0, 1), (1, 2), (2, 0)], &[]);
        assert_eq!(found.drawn.iter().filter(|d| **d).count(), 2);
    }
}
