//! The positions of boxes and wires: an order within each layer with few crossings, then
//! coordinates close to those of the neighbours.

use super::Wire;
use super::layers::Layers;

/// The space between boxes side by side.
const GAP: f32 = 14.0;
/// The space between layers.
const RISE: f32 = 26.0;
/// The width of a wire that passes a layer.
const PASSAGE: f32 = 6.0;
/// The number of times that the layers are ordered and moved, alternately downwards and upwards.
const SWEEPS: usize = 16;

/// The width and height of a box.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub width: f32,
    pub height: f32,
}

/// The coordinates of boxes and wires, and the size of the whole.
#[derive(Debug)]
pub(super) struct Placement {
    pub width: f32,
    pub height: f32,
    /// The middle of each box's upper edge.
    pub boxes: Vec<(f32, f32)>,
    /// The points of each wire; none if it is not drawn.
    pub routes: Vec<Vec<(f32, f32)>>,
}

/// The items in the layers: first the boxes, then the places where wires pass. All wires from one
/// box share their passages.
struct Items {
    layer: Vec<usize>,
    size: Vec<Size>,
    /// The neighbours in the layer above and in the layer below.
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    /// The items of each wire, from its first box to its last.
    paths: Vec<Vec<usize>>,
}

impl Items {
    fn of(layers: &Layers, sizes: &[Size], wires: &[Wire]) -> Self {
        let count = sizes.len();
        let mut items = Self {
            layer: layers.layer.clone(),
            size: sizes.to_vec(),
            above: vec![Vec::new(); count],
            below: vec![Vec::new(); count],
            paths: Vec::new(),
        };
        let mut passages: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (&Wire { from, to, .. }, drawn) in wires.iter().zip(&layers.drawn) {
            let mut path = Vec::new();
            if *drawn {
                let needed = layers.layer[to] - layers.layer[from] - 1;
                for step in passages[from].len()..needed {
                    let passage = items.layer.len();
                    items.layer.push(layers.layer[from] + 1 + step);
                    items.size.push(Size { width: PASSAGE, height: 0.0 });
                    items.above.push(Vec::new());
                    items.below.push(Vec::new());
                    items.link(passages[from].last().copied().unwrap_or(from), passage);
                    passages[from].push(passage);
                }
                path.push(from);
                path.extend(&passages[from][..needed]);
                items.link(path[path.len() - 1], to);
                path.push(to);
            }
            items.paths.push(path);
        }
        items
    }

    fn link(&mut self, upper: usize, lower: usize) {
        self.below[upper].push(lower);
        self.above[lower].push(upper);
    }
}

impl Placement {
    /// Places the boxes of `sizes` and the wires between them.
    pub fn of(layers: &Layers, sizes: &[Size], wires: &[Wire]) -> Self {
        let items = Items::of(layers, sizes, wires);
        let depth = items.layer.iter().max().map_or(0, |l| l + 1);
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); depth];
        for (item, layer) in items.layer.iter().enumerate() {
            rows[*layer].push(item);
        }
        order(&items, &mut rows);
        let mut x = coordinates(&items, &rows);
        let left =
            (0..x.len()).map(|i| x[i] - items.size[i].width / 2.0).fold(f32::INFINITY, f32::min);
        let left = if left.is_finite() { left } else { 0.0 };
        x.iter_mut().for_each(|x| *x -= left);
        let width = (0..x.len()).map(|i| x[i] + items.size[i].width / 2.0).fold(0.0, f32::max);

        let mut y = 0.0;
        let tops: Vec<(f32, f32)> = rows
            .iter()
            .map(|row| {
                let height = row.iter().map(|i| items.size[*i].height).fold(0.0, f32::max);
                let top = y;
                y += height + RISE;
                (top, height)
            })
            .collect();
        // The boxes of a layer are centred on its middle line.
        let top = |item: usize| {
            let (top, height) = tops[items.layer[item]];
            top + (height - items.size[item].height) / 2.0
        };
        let points = |path: &Vec<usize>| {
            let mut points = Vec::new();
            for (i, item) in path.iter().enumerate() {
                let (from, height) = tops[items.layer[*item]];
                if i == 0 {
                    points.push((x[*item], top(*item) + items.size[*item].height));
                } else if i + 1 == path.len() {
                    points.push((x[*item], top(*item)));
                } else {
                    points.extend([(x[*item], from), (x[*item], from + height)]);
                }
            }
            points
        };
        Self {
            width,
            height: (y - RISE).max(0.0),
            boxes: (0..sizes.len()).map(|i| (x[i], top(i))).collect(),
            routes: items.paths.iter().map(points).collect(),
        }
    }
}

/// Orders the rows by the mean place of each item's neighbours in the row before, alternately
/// downwards and upwards.
fn order(items: &Items, rows: &mut [Vec<usize>]) {
    let mut place = vec![0.0_f32; items.layer.len()];
    let mark = |place: &mut Vec<f32>, row: &[usize]| {
        for (i, item) in row.iter().enumerate() {
            // The places are relative, for rows differ in length.
            place[*item] = (i as f32 + 0.5) / row.len() as f32;
        }
    };
    rows.iter().for_each(|row| mark(&mut place, row));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        for i in 0..rows.len() {
            let row = if down {
                &mut rows[i]
            } else {
                let last = rows.len() - 1;
                &mut rows[last - i]
            };
            let near = if down { &items.above } else { &items.below };
            let mean =
                |item: &usize| mean(near[*item].iter().map(|n| place[*n])).unwrap_or(place[*item]);
            let mut keyed: Vec<(f32, usize)> = row.iter().map(|item| (mean(item), *item)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *row = keyed.into_iter().map(|(_, item)| item).collect();
            mark(&mut place, row);
        }
    }
}

/// The x coordinate of every item's middle: as near as its row allows to the mean of its
/// neighbours.
fn coordinates(items: &Items, rows: &[Vec<usize>]) -> Vec<f32> {
    let mut x = vec![0.0; items.layer.len()];
    for row in rows {
        let wanted = vec![0.0; row.len()];
        spread(items, row, &wanted, &mut x);
    }
    for sweep in 0..SWEEPS {
        let last = sweep + 2 >= SWEEPS;
        for i in 0..rows.len() {
            let row = if sweep % 2 == 0 { &rows[i] } else { &rows[rows.len() - 1 - i] };
            let wanted: Vec<f32> = row
                .iter()
                .map(|item| {
                    let (above, below) = (items.above[*item].iter(), items.below[*item].iter());
                    let near = |n: &usize| x[*n];
                    let wish = match (last, sweep % 2) {
                        (true, _) => mean(above.chain(below).map(near)),
                        (_, 0) => mean(above.map(near)),
                        _ => mean(below.map(near)),
                    };
                    wish.unwrap_or(x[*item])
                })
                .collect();
            spread(items, row, &wanted, &mut x);
        }
    }
    x
}

/// Gives a row's items the places with the least squared distance from `wanted` that keep their
/// order and gaps. This is an isotonic regression, done by pooling neighbours that would overlap.
fn spread(items: &Items, row: &[usize], wanted: &[f32], x: &mut [f32]) {
    let mut shift = Vec::with_capacity(row.len());
    let mut at = 0.0;
    for (i, item) in row.iter().enumerate() {
        if i > 0 {
            at += (items.size[row[i - 1]].width + items.size[*item].width) / 2.0 + GAP;
        }
        shift.push(at);
    }
    // Pools of neighbours that share a place: the sum of their places and their number.
    let mut pools: Vec<(f32, usize)> = Vec::new();
    for (wish, shift) in wanted.iter().zip(&shift) {
        pools.push((wish - shift, 1));
        while let [.., (a, n), (b, m)] = pools[..] {
            if a * m as f32 <= b * n as f32 {
                break;
            }
            pools.truncate(pools.len() - 2);
            pools.push((a + b, n + m));
        }
    }
    let places = pools.iter().flat_map(|(sum, n)| std::iter::repeat_n(sum / *n as f32, *n));
    for ((item, place), shift) in row.iter().zip(places).zip(&shift) {
        x[*item] = place + shift;
    }
}

fn mean(values: impl Iterator<Item = f32>) -> Option<f32> {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), v| (sum + v, n + 1));
    (n > 0).then(|| sum / n as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: Size = Size { width: 40.0, height: 20.0 };

    fn placed(count: usize, wires: &[(usize, usize)]) -> Placement {
        let wires: Vec<Wire> =
            wires.iter().map(|&(from, to)| Wire { from, to, control: false }).collect();
        Placement::of(&Layers::of(count, &wires), &vec![BOX; count], &wires)
    }

    #[test]
    fn boxes_do_not_overlap() {
        let wires: Vec<(usize, usize)> =
            (1..60).flat_map(|i| [(i / 3, i), (i / 5, i), (i * 7 % i, i)]).collect();
        let placement = placed(60, &wires);
        for (i, a) in placement.boxes.iter().enumerate() {
            assert!(
                a.0 >= 19.9 && a.0 <= placement.width - 19.9 && a.1 <= placement.height - 19.9,
                "{a:?}"
            );
            for b in &placement.boxes[..i] {
                assert!(
                    (a.0 - b.0).abs() >= 40.0 + GAP - 0.1 || (a.1 - b.1).abs() >= 20.0 + RISE - 0.1,
                    "{a:?} {b:?}"
                );
            }
        }
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let placement = placed(5, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert!(
            placement.boxes.iter().all(|b| (b.0 - placement.boxes[0].0).abs() < 0.01),
            "{placement:?}"
        );
        assert_eq!(placement.routes[1], [(20.0, 66.0), (20.0, 92.0)]);
    }

    #[test]
    fn uncrossed_wires_stay_uncrossed() {
        // The boxes of two ladders come in the wrong order.
        let placement = placed(6, &[(0, 3), (3, 5), (1, 2), (2, 4)]);
        let x = |i: usize| placement.boxes[i].0;
        assert_eq!(x(0) < x(1), x(3) < x(2), "{placement:?}");
        assert_eq!(x(3) < x(2), x(5) < x(4), "{placement:?}");
    }
}
