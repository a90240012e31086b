//! Graphs as SVG pictures: boxes in layers from top to bottom, and wires between them. This module
//! knows nothing of TensorFlow: `dump` decides what a box shows.
//!
//! A wire that would pass many layers is not drawn. Instead, the box at its end gets a line of
//! text, which is easier to read than wires along the whole of a training graph.

mod layers;
mod placement;

use std::fmt::Write;

use layers::Layers;
use placement::{Placement, Size};

/// The largest number of boxes in a picture. A picture with more boxes says so.
pub const MAX_BOXES: usize = 2000;

/// The largest number of lines in a box for wires that are not drawn.
const MAX_REFERENCES: usize = 8;

const FONT: f32 = 11.0;
const LINE: f32 = 14.0;
/// The average width of a character of a sans-serif font, in units of its size.
const CHARACTER: f32 = 0.56;
const PADDING: f32 = 7.0;
const MARGIN: f32 = 20.0;
/// The height of the title and the legend.
const HEADER: f32 = 52.0;
/// The outlines of groups, which take turns.
const GROUPS: [&str; 6] = ["#dc2626", "#9333ea", "#ea580c", "#0d9488", "#db2777", "#4d7c0f"];

/// How a box is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A node of the device.
    Device,
    /// A node that replaces several.
    Fused,
    /// A node that is elsewhere, or not placed yet.
    Other,
    /// A constant.
    Constant,
}

impl Style {
    const ALL: [Self; 4] = [Self::Device, Self::Fused, Self::Other, Self::Constant];

    /// The style's name in the legend.
    const fn name(self) -> &'static str {
        match self {
            Self::Device => "on WGPU",
            Self::Fused => "fused, on WGPU",
            Self::Other => "elsewhere",
            Self::Constant => "constants",
        }
    }

    /// The fill and the outline.
    const fn colours(self) -> (&'static str, &'static str) {
        match self {
            Self::Device => ("#dbeafe", "#3b82f6"),
            Self::Fused => ("#dcfce7", "#16a34a"),
            Self::Other => ("#f3f4f6", "#9ca3af"),
            Self::Constant => ("#fef9c3", "#d6c98a"),
        }
    }
}

/// The contents of a box.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The name of what it stands for.
    pub name: String,
    /// The first line.
    pub head: String,
    /// The other lines, in a smaller font.
    pub lines: Vec<String>,
    /// The text at the end of a wire from this box that is not drawn.
    pub reference: String,
    /// The text that a browser shows under the pointer.
    pub tooltip: String,
    /// The style in which the box is drawn.
    pub style: Style,
    /// The number of the group of boxes to which it belongs. Their outlines are thick and of one
    /// colour.
    pub group: Option<usize>,
}

/// A wire between two boxes, both given by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// The box where it begins.
    pub from: usize,
    /// The box where it ends.
    pub to: usize,
    /// Whether it carries no value; such wires are dashed.
    pub control: bool,
}

/// A picture to be drawn.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// The line above the picture.
    pub title: String,
    /// The boxes.
    pub boxes: Vec<Shown>,
    /// The wires.
    pub wires: Vec<Wire>,
}

impl Picture {
    /// The picture as an SVG document. The same picture gives the same text.
    pub fn svg(&self) -> String {
        let count = self.boxes.len().min(MAX_BOXES);
        let mut wires: Vec<Wire> =
            self.wires.iter().copied().filter(|w| w.from < count && w.to < count).collect();
        wires.sort_unstable_by_key(|w| (w.from, w.to, w.control));
        wires.dedup_by_key(|w| (w.from, w.to));
        let layers = Layers::of(count, &wires);
        let mut shown = self.boxes[..count].to_vec();
        let mut references = vec![Vec::new(); count];
        for (wire, _) in wires.iter().zip(&layers.drawn).filter(|(_, drawn)| !**drawn) {
            let word = if wire.control { "after" } else { "from" };
            references[wire.to].push(format!("{word} {}", shown[wire.from].reference));
        }
        for (shown, mut references) in shown.iter_mut().zip(references) {
            if references.len() > MAX_REFERENCES {
                let more = references.split_off(MAX_REFERENCES - 1).len();
                references.push(format!("and {more} more"));
            }
            shown.lines.extend(references);
        }
        let sizes: Vec<Size> = shown.iter().map(size).collect();
        let placement = Placement::of(&layers, &sizes, &wires);

        let title = if count < self.boxes.len() {
            format!("{}: the first {count} of {} nodes", self.title, self.boxes.len())
        } else {
            format!("{}: {count} nodes", self.title)
        };
        let width = (placement.width + 2.0 * MARGIN)
            .max(text_width(&title, FONT + 3.0) + 2.0 * MARGIN)
            .max(560.0);
        let height = placement.height + 2.0 * MARGIN + HEADER;
        let mut svg = String::new();
        // A write to a String cannot fail.
        let _ = writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">
<rect width="100%" height="100%" fill="white"/>
<text x="{MARGIN}" y="{MARGIN}" font-size="{:.0}" font-weight="bold">{}</text>"#,
            FONT + 3.0,
            escaped(&title)
        );
        self.legend(&mut svg, count);
        let _ = writeln!(svg, r#"<g transform="translate({MARGIN} {})">"#, MARGIN + HEADER);
        for (wire, route) in wires.iter().zip(&placement.routes) {
            if let Some((first, rest)) = route.split_first() {
                let dash = if wire.control { r#" stroke-dasharray="4 3""# } else { "" };
                let _ = writeln!(
                    svg,
                    r##"<path d="{}" fill="none" stroke="#6b7280" stroke-opacity="0.7"{dash}/>"##,
                    curve(*first, rest)
                );
            }
        }
        for ((shown, size), centre) in shown.iter().zip(&sizes).zip(&placement.boxes) {
            draw(&mut svg, shown, *size, *centre);
        }
        svg.push_str("</g>\n</svg>\n");
        svg
    }

    /// The styles that occur, each with its number of boxes.
    fn legend(&self, svg: &mut String, count: usize) {
        let mut x = MARGIN;
        for style in Style::ALL {
            let boxes = self.boxes[..count].iter().filter(|b| b.style == style).count();
            if boxes == 0 {
                continue;
            }
            let (fill, outline) = style.colours();
            let label = format!("{boxes} {}", style.name());
            let y = MARGIN + 12.0;
            let _ = writeln!(
                svg,
                r#"<rect x="{x:.0}" y="{y}" width="14" height="12" rx="2" fill="{fill}" stroke="{outline}"/><text x="{:.0}" y="{:.0}">{label}</text>"#,
                x + 19.0,
                y + 10.0
            );
            x += 40.0 + text_width(&label, FONT);
        }
    }
}

fn text_width(text: &str, font: f32) -> f32 {
    text.chars().count() as f32 * font * CHARACTER
}

/// The font sizes of a box's head and of its other lines.
fn fonts(style: Style) -> (f32, f32) {
    if style == Style::Constant { (FONT - 2.0, FONT - 3.0) } else { (FONT, FONT - 2.0) }
}

fn size(shown: &Shown) -> Size {
    let (head, small) = fonts(shown.style);
    // Bold characters are wider.
    let lines = shown.lines.iter().map(|l| text_width(l, small));
    let width = lines.fold(text_width(&shown.head, head) * 1.08, f32::max);
    let height = LINE + shown.lines.len() as f32 * (LINE - 2.0);
    Size {
        width: (width + 2.0 * PADDING).max(30.0),
        height: height + if small < FONT - 2.0 { 2.0 } else { PADDING },
    }
}

fn draw(svg: &mut String, shown: &Shown, size: Size, (x, y): (f32, f32)) {
    let (fill, outline) = shown.style.colours();
    let grouped = shown.group.map(|group| GROUPS[group % GROUPS.len()]);
    let (outline, thick) = grouped.map_or((outline, ""), |c| (c, r#" stroke-width="2.5""#));
    let (head, small) = fonts(shown.style);
    let weight = if shown.style == Style::Constant { "" } else { r#" font-weight="bold""# };
    let Size { width, height } = size;
    let left = x - width / 2.0;
    let _ = write!(
        svg,
        r#"<g text-anchor="middle"><title>{}</title><rect x="{left:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="3" fill="{fill}" stroke="{outline}"{thick}/><text x="{x:.1}" y="{:.1}" font-size="{head}"{weight}>{}</text>"#,
        escaped(&shown.tooltip),
        y + LINE,
        escaped(&shown.head)
    );
    for (i, line) in shown.lines.iter().enumerate() {
        let at = y + LINE + (i + 1) as f32 * (LINE - 2.0);
        let _ = write!(
            svg,
            r##"<text x="{x:.1}" y="{at:.1}" font-size="{small}" fill="#374151">{}</text>"##,
            escaped(line)
        );
    }
    svg.push_str("</g>\n");
}

/// A path through points that leaves and enters each vertically.
fn curve(first: (f32, f32), rest: &[(f32, f32)]) -> String {
    let mut path = format!("M{:.1} {:.1}", first.0, first.1);
    let (mut x, mut y) = first;
    for &(to_x, to_y) in rest {
        if (x - to_x).abs() < 0.5 {
            let _ = write!(path, "L{to_x:.1} {to_y:.1}");
        } else {
            let middle = f32::midpoint(y, to_y);
            let _ = write!(path, "C{x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}");
        }
        (x, y) = (to_x, to_y);
    }
    path
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters.
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(n: usize) -> Vec<Shown> {
        let shown = |i| Shown {
            head: format!("Op{i}"),
            lines: vec![format!("name<{i}>")],
            reference: format!("name<{i}>"),
            name: String::new(),
            group: None,
            tooltip: String::new(),
            style: Style::ALL[i % 4],
        };
        (0..n).map(shown).collect()
    }

    fn wire(from: usize, to: usize) -> Wire {
        Wire { from, to, control: false }
    }

    #[test]
    fn a_picture_has_every_box_and_wire_once() {
        let control = Wire { control: true, ..wire(0, 3) };
        let wires = vec![wire(0, 1), wire(0, 1), wire(0, 2), wire(1, 3), wire(2, 3), control];
        let svg = Picture { title: "a & b".into(), boxes: boxes(4), wires }.svg();
        assert_eq!(svg.matches("<path").count(), 5, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "{svg}");
        assert!(svg.contains("a &amp; b: 4 nodes"), "{svg}");
        for i in 0..4 {
            assert_eq!(svg.matches(&format!(">Op{i}<")).count(), 1, "{svg}");
            assert_eq!(svg.matches(&format!(">name&lt;{i}&gt;<")).count(), 1, "{svg}");
        }
    }

    #[test]
    fn a_long_wire_is_text() {
        let n = 30;
        let mut wires: Vec<Wire> = (1..n).map(|i| wire(i - 1, i)).collect();
        wires.push(wire(0, n - 1));
        let svg = Picture { title: String::new(), boxes: boxes(n), wires }.svg();
        assert_eq!(svg.matches("<path").count(), n - 1);
        assert!(svg.contains(">from name&lt;0&gt;<"), "{svg}");
    }

    #[test]
    fn a_cycle_and_nothing_are_drawn() {
        let svg = Picture {
            title: String::new(),
            boxes: boxes(3),
            wires: vec![wire(0, 1), wire(1, 0), wire(2, 2)],
        }
        .svg();
        assert_eq!(svg.matches("<path").count(), 1, "{svg}");
        assert!(Picture::default().svg().ends_with("</svg>\n"));
    }

    #[test]
    fn a_large_graph_is_cut() {
        let n = MAX_BOXES + 10;
        let wires = (1..n).flat_map(|i| [wire(i / 2, i), wire(i / 7, i)]).collect();
        let svg = Picture { title: "large".into(), boxes: boxes(n), wires }.svg();
        assert!(svg.contains("large: the first 2000 of 2010 nodes"));
        assert_eq!(svg.matches("<title>").count(), MAX_BOXES);
    }
}
