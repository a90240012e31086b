//! Einsum's equation: parsed and checked as in TensorFlow's kernel, with its messages, and turned
//! into axes for given shapes.

use crate::error::{Error, Result};
use crate::layout::{Strides, dense_strides};
use crate::tensor::{Dims, shape_text};
use crate::{invalid, require};

/// One character of a subscript; an ellipsis takes three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Named(char),
    Ellipsis,
}

/// An equation, with one or two operands.
#[derive(Debug, Clone)]
pub(super) struct Equation {
    inputs: Vec<Vec<Symbol>>,
    output: Vec<Symbol>,
}

/// A label of an equation with shapes: a named one, or one dimension of the ellipsis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Named(char),
    /// Counted from the ellipsis' last dimension, by which shapes broadcast.
    Broadcast(usize),
}

/// The axes of an equation with shapes. Extents and strides are by axis; an axis that an operand
/// does not walk (it lacks the label, or has one element there) has stride 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axes {
    /// Extents.
    pub extents: Dims,
    /// Each operand's strides; those of a repeated label are summed, which walks the diagonal.
    pub strides: Vec<Strides>,
    /// The axes of the output's dimensions, in its order.
    pub output: Vec<usize>,
}

fn symbols(subscript: &str) -> Vec<Symbol> {
    let mut out = Vec::new();
    let mut rest = subscript.chars();
    while let Some(c) = rest.next() {
        if c == '.' {
            // TensorFlow looks only at the first dot.
            rest.next();
            rest.next();
            out.push(Symbol::Ellipsis);
        } else {
            out.push(Symbol::Named(c));
        }
    }
    out
}

impl Equation {
    /// Parses the attribute.
    pub fn parse(equation: &str) -> Result<Self> {
        let sides: Vec<_> = equation.split("->").collect();
        let [inputs, output] = sides[..] else {
            invalid!("Expecting exactly one '->' in einsum equation: {equation}");
        };
        let inputs: Vec<_> = inputs.split(',').map(symbols).collect();
        require!(
            matches!(inputs.len(), 1 | 2),
            "Expecting 1 or 2 input subscripts in equation '{equation}' but got: {}",
            inputs.len()
        );
        Ok(Self { inputs, output: symbols(output) })
    }

    /// The equation's axes for operands of these shapes.
    pub fn bind(&self, shapes: &[&[usize]]) -> Result<Axes> {
        require!(
            shapes.len() == self.inputs.len(),
            "Expected {} inputs but got: {}",
            self.inputs.len(),
            shapes.len()
        );
        let mut labels: Vec<Label> = Vec::new();
        let mut extents = Dims::new();
        let mut walked: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut broadcast = 0;
        let mut fits = true;
        for (i, (subscript, &dims)) in self.inputs.iter().zip(shapes).enumerate() {
            let mut walk = Vec::new();
            for (axis, label) in expand(i, subscript, dims)?.into_iter().enumerate() {
                let extent = dims[axis];
                if let Label::Broadcast(d) = label {
                    broadcast = broadcast.max(d + 1);
                }
                let known = labels.iter().position(|l| *l == label);
                let at = known.unwrap_or(labels.len());
                if known.is_none() {
                    labels.push(label);
                    extents.push(extent);
                } else if let Label::Named(_) = label {
                    require!(
                        extents[at] == extent,
                        "Expected dimension {} at axis {axis} of the input shaped {} but got \
                         dimension {extent}",
                        extents[at],
                        shape_text(dims)
                    );
                } else if extents[at] == 1 {
                    extents[at] = extent;
                } else {
                    fits &= extent == 1 || extent == extents[at];
                }
                walk.push((at, extent));
            }
            walked.push(walk);
        }
        let output = self.place_output(&labels, broadcast)?;
        require!(
            fits,
            "Invalid broadcasting dimensions: {} vs. {}",
            shape_text(shapes[0]),
            shape_text(shapes[1])
        );
        let strides = walked.iter().zip(shapes).map(|(walk, dims)| {
            let mut strides: Strides = labels.iter().map(|_| 0).collect();
            for ((axis, extent), stride) in walk.iter().zip(dense_strides(dims)) {
                strides[*axis] += if *extent == 1 { 0 } else { stride };
            }
            strides
        });
        Ok(Axes { strides: strides.collect(), extents, output })
    }

    /// The axes of the output. Labels that no input has are left out, as in TensorFlow.
    fn place_output(&self, labels: &[Label], broadcast: usize) -> Result<Vec<usize>> {
        if broadcast > 0 && !self.output.contains(&Symbol::Ellipsis) {
            invalid!(
                "Output contains {broadcast} broadcasting dimension(s) but no ellipsis (...) was \
                 found in the output subscripts."
            );
        }
        let mut output = Vec::new();
        let mut unknown = Vec::new();
        for symbol in &self.output {
            match symbol {
                Symbol::Ellipsis => output.extend((0..broadcast).rev().map(Label::Broadcast)),
                Symbol::Named(c) if labels.contains(&Label::Named(*c)) => {
                    output.push(Label::Named(*c))
                }
                Symbol::Named(c) if unknown.contains(c) => {
                    let message = format!("the output repeats label '{c}', which no input has");
                    return Err(Error::Unimplemented(message));
                }
                Symbol::Named(c) => unknown.push(*c),
            }
        }
        let axis = |label: &Label| labels.iter().position(|l| l == label);
        Ok(output.iter().filter_map(axis).collect())
    }
}

/// A label for each dimension of operand `i`.
fn expand(i: usize, subscript: &[Symbol], dims: &[usize]) -> Result<Vec<Label>> {
    let (rank, count) = (dims.len(), subscript.len());
    if !subscript.contains(&Symbol::Ellipsis) {
        require!(rank == count, "Expected input {i} to have rank {count} but got: {rank}");
    } else {
        require!(
            rank + 1 >= count,
            "Expected input {i} to have rank at least {} but got: {rank}",
            count - 1
        );
    }
    let mut out = Vec::new();
    for symbol in subscript {
        match symbol {
            Symbol::Named(c) => out.push(Label::Named(*c)),
            Symbol::Ellipsis => out.extend((0..rank + 1 - count).rev().map(Label::Broadcast)),
        }
    }
    // A second ellipsis is not valid in numpy; the shape function refuses it in graphs.
    require!(out.len() == rank, "Expected input {i} to have rank {} but got: {rank}", out.len());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(equation: &str, shapes: &[&[usize]]) -> Axes {
        Equation::parse(equation).unwrap().bind(shapes).unwrap()
    }

    #[test]
    fn ellipses_broadcast_from_the_right() {
        let got = axes("i...,...j->...ij", &[&[2, 5, 1], &[4, 3]]);
        // The axes are i, the two dimensions of the ellipsis, and j.
        assert_eq!(got.extents[..], [2, 5, 4, 3]);
        assert_eq!(got.strides[0][..], [5, 1, 0, 0]);
        assert_eq!(got.strides[1][..], [0, 0, 3, 1]);
        assert_eq!(got.output, [1, 2, 0, 3]);
    }

    #[test]
    fn repeated_labels_walk_the_diagonal() {
        let got = axes("iji->ji", &[&[3, 2, 3]]);
        assert_eq!(
            (&got.extents[..], &got.strides[0][..], &got.output[..]),
            (&[3, 2][..], &[7, 3][..], &[1, 0][..])
        );
    }

    #[test]
    fn labels_of_the_output_alone_vanish() {
        assert_eq!(axes("i->ij", &[&[3]]).output, [0]);
        assert!(Equation::parse("i->jj").unwrap().bind(&[&[3]]).is_err());
    }
}
