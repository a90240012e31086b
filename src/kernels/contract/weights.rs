//! Right operands that are quantized weights: codes of 8 or 4 bits, which loads decode. The decoded
//! weights are nowhere in memory.
//!
//! Codes are a matrix as it lies in memory. Either its rows or its columns are the contracted
//! index. A [`Decoder`] says what turns a code into a weight: differences, products and quotients
//! with parameters, which have an element for each row, for each column, or for each group of rows
//! or columns. The last parameter is then the index that tells the group of each row or column.
//! Weights are computed in f32 and are not rounded to the type of the left operand.
//!
//! The codes may be a tensor of heads, `[heads, rows, width]`, that was quantized as if it were a
//! matrix of the same number of rows ([`QuantizedWeights::of_heads`]).

mod text;

use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::{Binding, Params};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::windows::part;
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// The most parameters: every adapter binds them together with the operands of a product.
pub const MOST_PARAMETERS: usize = 4;
/// The most codes of a tensor of heads. Each part of the weights binds all of them, and every
/// adapter binds 128 MiB.
pub const MOST_CODES_OF_HEADS: usize = 96 << 20;

/// Where codes lie in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePacking {
    /// A byte for each code.
    Bytes,
    /// A byte holds the codes of two neighbouring rows.
    Rows,
    /// A byte holds the codes of two neighbouring columns.
    Columns,
}

impl CodePacking {
    const ALL: [(&'static str, Self); 3] =
        [("bytes", Self::Bytes), ("rows", Self::Rows), ("columns", Self::Columns)];

    /// Its name in attributes.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Rows and columns of the bytes of codes with these extents.
    const fn bytes(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Bytes => [rows, columns],
            Self::Rows => [rows.div_ceil(2), columns],
            Self::Columns => [rows, columns.div_ceil(2)],
        }
    }
}

impl FromStr for CodePacking {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, packing)| *packing).ok_or_else(|| unknown("packing", text))
    }
}

fn unknown(what: &str, text: &str) -> Error {
    Error::InvalidArgument(format!("{text:?} is no {what} of quantized weights"))
}

/// The dimensions of a parameter: rows, columns, and groups of the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extents {
    /// An element for each row.
    Row,
    /// An element for each column.
    Column,
    /// Columns of groups of rows.
    GroupColumn,
    /// The same, transposed.
    ColumnGroup,
    /// Rows of groups of columns.
    RowGroup,
    /// The same, transposed.
    GroupRow,
}

impl Extents {
    const ALL: [(&'static str, Self); 6] = [
        ("r", Self::Row),
        ("c", Self::Column),
        ("gc", Self::GroupColumn),
        ("cg", Self::ColumnGroup),
        ("rg", Self::RowGroup),
        ("gr", Self::GroupRow),
    ];

    /// Whether rows (0) or columns (1) are grouped.
    pub const fn grouped(self) -> Option<usize> {
        match self {
            Self::Row | Self::Column => None,
            Self::GroupColumn | Self::ColumnGroup => Some(0),
            Self::RowGroup | Self::GroupRow => Some(1),
        }
    }

    /// The number of rows or columns that have elements of their own.
    const fn along(self, [rows, columns]: [usize; 2]) -> usize {
        match self {
            Self::Row | Self::RowGroup | Self::GroupRow => rows,
            Self::Column | Self::GroupColumn | Self::ColumnGroup => columns,
        }
    }

    /// The dimensions of the same parameter, or of its transpose, for the transposed codes.
    pub const fn transposed(self) -> Self {
        match self {
            Self::Row => Self::Column,
            Self::Column => Self::Row,
            Self::GroupColumn => Self::GroupRow,
            Self::ColumnGroup => Self::RowGroup,
            Self::RowGroup => Self::ColumnGroup,
            Self::GroupRow => Self::GroupColumn,
        }
    }
}

/// The steps that turn a code into a weight. As text, each is an operator and the dimensions of its
/// parameter: `- gc, * gc` subtracts a zero point and multiplies by a scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoder {
    steps: SmallVec<[(char, Extents); MOST_PARAMETERS]>,
    text: String,
}

impl Decoder {
    /// The decoder of these steps.
    pub fn new(steps: &[(char, Extents)]) -> Self {
        let name = |extents: Extents| Extents::ALL[extents as usize].0;
        let of: Vec<_> = steps.iter().map(|(op, e)| format!("{op} {}", name(*e))).collect();
        Self { steps: SmallVec::from_slice(steps), text: of.join(", ") }
    }

    /// The text of the attribute.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether rows (0) or columns (1) are grouped.
    fn grouped(&self) -> Option<usize> {
        self.steps.iter().find_map(|(_, extents)| extents.grouped())
    }

    /// Whether rows of codes and of parameters can be taken out of codes that are packed like this:
    /// see [`QuantizedWeights::gathered`].
    pub fn has_rows(&self, packing: CodePacking) -> bool {
        let is_apart = |(_, extents): &(char, Extents)| *extents != Extents::GroupRow;
        packing != CodePacking::Rows && self.grouped() != Some(0) && self.steps.iter().all(is_apart)
    }

    /// The number of parameters, with the index of the groups.
    pub fn parameters(&self) -> usize {
        self.steps.len() + usize::from(self.grouped().is_some())
    }
}

impl FromStr for Decoder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let step = |step: &str| {
            let (op, name) = step.split_once(' ')?;
            let (_, extents) = Extents::ALL.iter().find(|(n, _)| *n == name)?;
            Some((op.parse().ok().filter(|op| "-*/".contains(*op))?, *extents))
        };
        let steps: Option<Vec<_>> =
            if text.is_empty() { Some(Vec::new()) } else { text.split(", ").map(step).collect() };
        let decoder = Self::new(&steps.ok_or_else(|| unknown("decoder", text))?);
        let mut groups = decoder.steps.iter().filter_map(|(_, extents)| extents.grouped());
        let first = groups.next();
        let fits = groups.all(|g| Some(g) == first) && decoder.parameters() <= MOST_PARAMETERS;
        if fits { Ok(decoder) } else { Err(unknown("decoder", text)) }
    }
}

/// Quantized weights, without their codes.
#[derive(Debug, Clone)]
pub struct QuantizedWeights {
    packing: CodePacking,
    decoder: Arc<Decoder>,
    /// Rows and columns of codes.
    extents: [usize; 2],
    groups: usize,
    parameters: SmallVec<[Tensor; MOST_PARAMETERS]>,
    /// Whether columns are the contracted index.
    pub by_columns: bool,
    /// The number of columns of one head, if the codes are a tensor of heads.
    head: Option<usize>,
    /// The type of the products' operands.
    pub dtype: DType,
    /// The row and the column from which this part of the weights begins, and the rows of bytes
    /// before it that are not bound.
    first: [usize; 2],
    skipped: usize,
}

impl QuantizedWeights {
    /// The weights of a matrix of bytes. `extent` is the number of codes in its packed dimension,
    /// `dtype` the type of the products' operands.
    pub fn new(
        (packing, decoder, extent): (CodePacking, &Arc<Decoder>, usize),
        codes: &[usize],
        parameters: &[Tensor],
        (dtype, by_columns): (DType, bool),
    ) -> Result<Self> {
        let &[rows, columns] = codes else {
            return Err(unknown("matrix of codes", &shape_text(codes)));
        };
        let extents = match packing {
            CodePacking::Bytes => [rows, columns],
            CodePacking::Rows => [extent, columns],
            CodePacking::Columns => [rows, extent],
        };
        require!(
            packing.bytes(extents) == [rows, columns],
            "{extent} codes do not fill the bytes of {}",
            shape_text(codes)
        );
        require!(
            parameters.len() == decoder.parameters(),
            "{} parameters for {:?}",
            parameters.len(),
            decoder.text
        );
        let mut groups = None;
        for ((_, of), parameter) in decoder.steps.iter().zip(parameters) {
            let (along, len) = (of.along(extents), parameter.len());
            let own = if of.grouped().is_none() { 1 } else { len / along.max(1) };
            let same = of.grouped().is_none() || *groups.get_or_insert(own) == own;
            require!(
                own * along == len && same,
                "a parameter of shape {} for weights of {extents:?}",
                shape_text(&parameter.dims)
            );
        }
        if let Some(axis) = decoder.grouped() {
            let index = &parameters[decoder.steps.len()];
            require!(
                index.len() == extents[axis],
                "{} indices of groups for weights of {extents:?}",
                index.len()
            );
        }
        Ok(Self {
            packing,
            decoder: decoder.clone(),
            extents,
            groups: groups.unwrap_or(1),
            parameters: SmallVec::from(parameters),
            by_columns,
            head: None,
            dtype,
            first: [0; 2],
            skipped: 0,
        })
    }

    /// The same codes as a tensor `[heads, rows, width]`. In the matrix of the product, the columns
    /// of one head follow the columns of the head before it. A code keeps its place in memory, and
    /// with it the row and column of its parameters.
    pub fn of_heads(self, width: usize) -> Result<Self> {
        let [rows, columns] = self.extents;
        require!(
            width > 0 && columns.is_multiple_of(width) && rows * columns <= MOST_CODES_OF_HEADS,
            "heads of {width} columns in {rows} rows and {columns} columns of codes"
        );
        Ok(Self { head: Some(width), ..self })
    }

    /// Rows and columns of the right operand.
    pub const fn matrix(&self) -> [usize; 2] {
        let [rows, columns] = self.extents;
        if self.by_columns { [columns, rows] } else { [rows, columns] }
    }

    /// Bytes of a row of codes.
    pub(super) const fn row(&self) -> usize {
        self.packing.bytes(self.extents)[1]
    }

    /// The distances of steps and columns in the bytes: columns of codes are never apart, and
    /// codes of heads stay together.
    pub(super) const fn strides(&self) -> [usize; 2] {
        match self.head {
            Some(_) => [0; 2],
            None if self.by_columns => [0, self.row()],
            None => [self.row(), 0],
        }
    }

    /// The bytes of `codes` beyond the first one that each part of the weights has.
    pub(super) fn base(&self, codes: &Tensor) -> usize {
        if self.head.is_some() { codes.len() - 1 } else { self.row() - 1 }
    }

    /// The number of tensors.
    pub fn tensors(&self) -> usize {
        self.parameters.len()
    }

    /// The codes of a part that begins at a step and a column of the contraction, and its weights.
    pub fn part(
        &self,
        codes: &Tensor,
        [step, column]: [usize; 2],
        [steps, columns]: [usize; 2],
    ) -> (Tensor, Self) {
        let ([row, column], rows) =
            if self.by_columns { ([column, step], columns) } else { ([step, column], steps) };
        let first = [self.first[0] + row, self.first[1] + column];
        if self.head.is_some() {
            return (codes.clone(), Self { first, ..self.clone() });
        }
        let of = |row: usize| self.packing.bytes([row, 0])[0];
        let skipped = match self.packing {
            CodePacking::Rows => first[0] / 2,
            _ => first[0],
        };
        let (at, end) = (skipped - self.skipped, of(first[0] + rows) - self.skipped);
        let bytes = part(codes, at * self.row(), (end - at) * self.row());
        (bytes, Self { first, skipped, ..self.clone() })
    }

    /// The same for a matrix of some of the rows: `gather` makes a tensor of those rows of a matrix
    /// with as many rows as the codes. Gives the codes, and the weights with rows as the contracted
    /// index.
    ///
    /// # Errors
    /// `InvalidArgument` if two rows share a byte, if rows are grouped, or if codes are a tensor
    /// of heads; the errors of `gather`.
    pub fn gathered(
        &self,
        codes: &Tensor,
        mut gather: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<(Tensor, Self)> {
        let fits = self.decoder.has_rows(self.packing) && self.head.is_none();
        require!(fits, "rows of weights of {:?}", self.decoder.text);
        let rows = self.extents[0];
        let own = gather(&codes.reshaped(&[rows, self.row()]))?;
        let steps = self.decoder.steps.iter().map(|(_, extents)| Some(*extents));
        let mut parameters = Vec::new();
        for (parameter, extents) in self.parameters.iter().zip(steps.chain([None])) {
            parameters.push(match extents {
                Some(Extents::Row) => gather(&parameter.reshaped(&[rows, 1]))?,
                Some(Extents::RowGroup) => gather(&parameter.reshaped(&[rows, self.groups]))?,
                _ => parameter.clone(),
            });
        }
        let properties = (self.packing, &self.decoder, self.extents[1]);
        let weights = Self::new(properties, &own.dims, &parameters, (self.dtype, false))?;
        Ok((own, weights))
    }

    /// Whether four codes of a row are loaded at once, from `columns` columns of them.
    pub(super) fn in_fours(&self, codes: &Tensor, columns: usize) -> bool {
        let head = self.head.unwrap_or(0);
        let extents = [self.extents[1], self.first[1], columns, head];
        extents.iter().all(|n| n.is_multiple_of(4)) && codes.address.is_multiple_of(4)
    }

    /// The properties that text depends on, where codes are loaded one by one or in fours.
    pub(super) fn form(&self, codes: DType, in_fours: bool) -> WeightsForm {
        let aligned = |t: &Tensor| t.address.is_multiple_of(4 * t.dtype.size() as u64);
        let four = |t: &Tensor, extents: Extents| {
            let is_along = matches!(extents, Extents::Column | Extents::GroupColumn);
            in_fours && is_along && aligned(t)
        };
        let steps = self.decoder.steps.iter().zip(&self.parameters);
        let of_columns = in_fours && self.decoder.grouped() == Some(1);
        let index = self.parameters[self.decoder.steps.len()..].iter();
        let index = index.map(|t| (t.dtype, of_columns && aligned(t)));
        WeightsForm {
            packing: self.packing,
            decoder: self.decoder.clone(),
            by_columns: self.by_columns,
            has_heads: self.head.is_some(),
            codes,
            parameters: steps.map(|((_, e), t)| (t.dtype, four(t, *e))).chain(index).collect(),
        }
    }

    /// Bindings of the parameters.
    pub(super) fn bindings<'a>(&'a self, form: &'a WeightsForm) -> impl Iterator<Item = Binding> {
        self.parameters.iter().zip(&form.parameters).map(|(t, (_, four))| {
            Binding::raw(t, t.dtype.size() as u32 * if *four { 4 } else { 1 })
        })
    }

    /// Appends the numbers that the text reads.
    pub(super) fn params(&self, params: Params) -> Params {
        let ([rows, columns], [row, column]) = (self.extents, self.first);
        [self.row(), rows, columns, self.groups, row, column, self.skipped]
            .into_iter()
            .chain(self.head)
            .fold(params, |params, number| params.u32(number))
    }
}

/// The properties of weights that shader text depends on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WeightsForm {
    pub packing: CodePacking,
    pub decoder: Arc<Decoder>,
    pub by_columns: bool,
    /// Whether the codes are a tensor of heads.
    pub has_heads: bool,
    /// The type of the bytes.
    pub codes: DType,
    /// The type of each parameter, and whether four neighbours are loaded at once.
    pub parameters: SmallVec<[(DType, bool); MOST_PARAMETERS]>,
}
