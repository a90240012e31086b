//! The rows, a file for each group of families. Shapes are those of real models: ResNet50,
//! EfficientNetB0, a transformer of 12 layers of width 768, an LSTM, U-Net.

mod conv;
mod elementwise;
mod fused;
mod indexing;
mod linalg;
mod matmul;
mod movement;
mod normalize;
mod recurrent;
mod reduce;
mod training;
mod various;

use crate::case::{Case, Sizes};

/// Every row.
pub fn all(sizes: Sizes) -> Vec<Case> {
    [
        matmul::cases,
        conv::cases,
        elementwise::cases,
        fused::cases,
        reduce::cases,
        normalize::cases,
        movement::cases,
        indexing::cases,
        training::cases,
        various::cases,
    ]
    .into_iter()
    .flat_map(|cases| cases(sizes))
    .collect()
}
