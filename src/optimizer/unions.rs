//! Sets of numbers that are joined two by two.

use std::cell::Cell;

/// A division of the numbers from 0 into sets. One number of each set stands for the set.
#[derive(Debug, Default)]
pub struct Unions(Vec<Cell<usize>>);

impl Unions {
    /// Each number below `count` alone.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(Cell::new).collect())
    }

    /// The next number, alone.
    pub fn add(&mut self) -> usize {
        self.0.push(Cell::new(self.0.len()));
        self.0.len() - 1
    }

    /// The number that stands for the set of `number`.
    pub fn root(&self, mut number: usize) -> usize {
        loop {
            let above = self.0[number].get();
            if above == number {
                return number;
            }
            // Paths become shorter each time that they are followed.
            let next = self.0[above].get();
            self.0[number].set(next);
            number = next;
        }
    }

    /// Joins the sets of two numbers. The number that stands for the set of `first` stands for both
    /// then.
    pub fn join(&mut self, first: usize, second: usize) {
        let (first, second) = (self.root(first), self.root(second));
        self.0[second].set(first);
    }
}
