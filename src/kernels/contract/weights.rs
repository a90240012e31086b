//! Right operands that are quantized weights: codes of 8 or 4 bits, which loads decode. The decoded
//! weights are nowhere in memory.
//!
//! Codes are a matrix as it lies in memory. Either its rows or its columns are the contracted
//! index. A [`Decoder`] says what turns a code into a weight: differences, products and quotients
//! with parameters, which have an element for each row, for each column, or for each group of rows
//! or columns. The last parameter is then the index that tells the group of each row or column.
//! Weights are computed in f32 and are not rounded to the type of the left operand.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::element::lane;
use super::text::vec4s_of;
use super::tile_variant::Lanes;
use super::{BLayout, Contraction};
use crate::device::{Binding, Key, Params};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::windows::part;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Names of the parameters' bindings.
const NAMES: [&str; MOST_PARAMETERS] = ["q1", "q2", "q3", "q4"];
/// The most parameters: every adapter binds them together with the operands of a product.
pub const MOST_PARAMETERS: usize = 4;
/// Names of the numbers that the text reads.
const NUMBERS: [&str; 7] = [
    "code_row",
    "code_rows",
    "code_columns",
    "code_groups",
    "first_row",
    "first_column",
    "skipped_rows",
];

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

    /// Rows and columns of the bytes of so many rows and columns of codes.
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
    const fn grouped(self) -> Option<usize> {
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

    /// The index of the element for row `r`, column `c` and group `g`.
    fn index(self, c: &str, g: &str) -> String {
        match self {
            Self::Row => "r".to_owned(),
            Self::Column => c.to_owned(),
            Self::GroupColumn => format!("{g} * p.code_columns + {c}"),
            Self::ColumnGroup => format!("({c}) * p.code_groups + {g}"),
            Self::RowGroup => format!("r * p.code_groups + {g}"),
            Self::GroupRow => format!("{g} * p.code_rows + r"),
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
            dtype,
            first: [0; 2],
            skipped: 0,
        })
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

    /// The distances of steps and columns in the bytes: columns of codes are never apart.
    pub(super) const fn strides(&self) -> [usize; 2] {
        if self.by_columns { [0, self.row()] } else { [self.row(), 0] }
    }

    /// The number of tensors.
    pub fn tensors(&self) -> usize {
        self.parameters.len()
    }

    /// The codes of a part that begins at a step and a column of the contraction, and its weights.
    pub(super) fn part(
        &self,
        codes: &Tensor,
        [step, column]: [usize; 2],
        [steps, columns]: [usize; 2],
    ) -> (Tensor, Self) {
        let ([row, column], rows) =
            if self.by_columns { ([column, step], columns) } else { ([step, column], steps) };
        let first = [self.first[0] + row, self.first[1] + column];
        let of = |row: usize| self.packing.bytes([row, 0])[0];
        let skipped = match self.packing {
            CodePacking::Rows => first[0] / 2,
            _ => first[0],
        };
        let (at, end) = (skipped - self.skipped, of(first[0] + rows) - self.skipped);
        let bytes = part(codes, at * self.row(), (end - at) * self.row());
        (bytes, Self { first, skipped, ..self.clone() })
    }

    /// How the codes are loaded, from `columns` columns of them.
    pub(super) fn lanes(&self, codes: &Tensor, columns: usize) -> Lanes {
        let four = [self.extents[1], self.first[1], columns].iter().all(|n| n.is_multiple_of(4));
        match (four && codes.address.is_multiple_of(4), self.by_columns) {
            (false, _) => Lanes::One,
            (true, false) => Lanes::Edge,
            (true, true) => Lanes::Depth,
        }
    }

    /// The properties that text depends on.
    pub(super) fn form(&self, codes: DType) -> WeightsForm {
        let four = |t: &Tensor, extents: Extents| {
            matches!(extents, Extents::Column | Extents::GroupColumn)
                && t.address.is_multiple_of(4 * t.dtype.size() as u64)
                && t.dtype.size() <= 4
                && self.extents[1].is_multiple_of(4)
        };
        let steps = self.decoder.steps.iter().zip(&self.parameters);
        let index = self.parameters[self.decoder.steps.len()..].iter().map(|t| (t.dtype, false));
        WeightsForm {
            packing: self.packing,
            decoder: self.decoder.clone(),
            by_columns: self.by_columns,
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
            .fold(params, |params, number| params.u32(number))
    }
}

impl Contraction {
    /// The same with codes for `b`.
    #[must_use]
    pub fn quantized(self, weights: QuantizedWeights) -> Self {
        let (b_step, b_column) = if weights.by_columns { (1, self.depth()) } else { (self.n, 1) };
        let weights = Some(Arc::new(weights));
        Self { weights, b_step, b_column, b_layout: BLayout::Dense, ..self }
    }

    /// The type of the values that loads of `b` give.
    pub(super) fn b_type(&self) -> DType {
        self.weights.as_ref().map_or(self.b.dtype, |weights| weights.dtype)
    }
}

/// The properties of weights that shader text depends on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WeightsForm {
    pub packing: CodePacking,
    pub decoder: Arc<Decoder>,
    pub by_columns: bool,
    /// The type of the bytes.
    pub codes: DType,
    /// The type of each parameter, and whether four neighbours are loaded at once.
    pub parameters: SmallVec<[(DType, bool); MOST_PARAMETERS]>,
}

impl WeightsForm {
    /// Sample number `at` for the list of variants: each packing with each decoder in turn.
    pub fn sample(at: usize, lanes: Lanes) -> Self {
        let decoders = ["", "/ c", "/ r", "- gc, * gc", "- cg, * cg", "- rg, * rg", "- gr, * gr"];
        let decoder: Decoder = decoders[at % decoders.len()].parse().expect("a decoder");
        let four = |(_, of): &(char, Extents)| *of == Extents::Column && lanes != Lanes::One;
        let parameters = decoder.steps.iter().map(|step| (DType::F32, four(step)));
        let index = decoder.grouped().map(|_| (DType::F32, false));
        Self {
            packing: CodePacking::ALL[at % CodePacking::ALL.len()].1,
            by_columns: lanes == Lanes::Depth || lanes == Lanes::One && at % 2 == 1,
            codes: [DType::I8, DType::U8][at / 2 % 2],
            parameters: parameters.chain(index).collect(),
            decoder: Arc::new(decoder),
        }
    }

    /// Adds the properties to a pipeline's key.
    pub fn key(&self, key: Key) -> Key {
        let key = key
            .name(&self.decoder.text)
            .number(self.packing as u32 | u32::from(self.by_columns) << 2)
            .dtype(self.codes);
        let of = |key: Key, (t, four): &(DType, bool)| key.dtype(*t).number(u32::from(*four));
        self.parameters.iter().fold(key, of)
    }

    /// Binds the codes and the parameters, and declares `load_b(k, n)` or, for lanes of four,
    /// `load4_b(k, n)`: the weights of four neighbouring columns of codes.
    pub fn bind(&self, shader: Shader, lanes: Lanes) -> Shader {
        let mut shader = shader.bind_raw("b", "u32", 1);
        for ((dtype, four), name) in self.parameters.iter().zip(NAMES) {
            shader = if *four { vec4s_of(shader, name, *dtype) } else { shader.bind(name, *dtype) };
        }
        let text = if lanes == Lanes::One { self.load() } else { self.load_four() };
        shader.body(&(self.group() + &text))
    }

    /// Declares the numbers.
    pub fn declare(shader: Shader) -> Shader {
        shader.u32s(&NUMBERS)
    }

    /// `fn code_group(i)`: the group of row or column `i`. Negative groups count from the end.
    fn group(&self) -> String {
        if self.decoder.grouped().is_none() {
            return String::new();
        }
        let index = NAMES[self.decoder.steps.len()];
        format!(
            "fn code_group(i: u32) -> u32 {{\n    let group = i32(load_{index}(i));\n    return \
             u32(select(group, group + i32(p.code_groups), group < 0));\n}}\n\n"
        )
    }

    /// The head of a load: the row and the column of the code and its word. A byte's address is in
    /// `at`.
    fn head(&self) -> String {
        let [row, column] = if self.by_columns { ["n", "k"] } else { ["k", "n"] };
        let (byte_row, byte_column) = match self.packing {
            CodePacking::Bytes => ("r", "c"),
            CodePacking::Rows => ("(r >> 1u)", "c"),
            CodePacking::Columns => ("r", "(c >> 1u)"),
        };
        format!(
            "    let r = {row} + p.first_row;\n    let c = {column} + p.first_column;\n    let at \
             = p.off_b + ({byte_row} - p.skipped_rows) * p.code_row + {byte_column};\n    let word \
             = b[at >> 2u];\n"
        )
    }

    const fn is_signed(&self) -> bool {
        matches!(self.codes, DType::I8)
    }

    /// The load of one weight.
    fn load(&self) -> String {
        let (width, nibble) = match self.packing {
            CodePacking::Bytes => (8, ""),
            CodePacking::Rows => (4, " + (r & 1u) * 4u"),
            CodePacking::Columns => (4, " + (c & 1u) * 4u"),
        };
        let word = if self.is_signed() { "bitcast<i32>(word)" } else { "word" };
        let mut text = format!(
            "fn load_b(k: u32, n: u32) -> Scalar {{\n{}    var weight = \
             f32(extractBits({word}, (at & 3u) * 8u{nibble}, {width}u));\n",
            self.head()
        );
        for ((op, of), name) in self.decoder.steps.iter().zip(NAMES) {
            let group = ["code_group(r)", "code_group(c)"][of.grouped().unwrap_or(0)];
            let index = of.index("c", group);
            let _ = writeln!(text, "    weight = weight {op} f32(load_{name}({index}));");
        }
        text + "    return weight;\n}\n"
    }

    /// The load of four weights of one row of codes. A word holds all of them.
    fn load_four(&self) -> String {
        let (width, apart, first) = match self.packing {
            CodePacking::Bytes => (8, 8, "0u"),
            CodePacking::Rows => (4, 8, "(r & 1u) * 4u"),
            CodePacking::Columns => (4, 4, "(at & 2u) * 8u"),
        };
        let shifts = |of: &dyn Fn(u32) -> u32| {
            (0..4).map(|j| format!("{}u", of(j))).collect::<Vec<_>>().join(", ")
        };
        let codes = if self.is_signed() {
            let up = shifts(&|j| 32 - width - j * apart);
            format!(
                "(vec4<i32>(bitcast<i32>(codes)) << vec4<u32>({up})) >> vec4<u32>({}u)",
                32 - width
            )
        } else {
            let down = shifts(&|j| j * apart);
            format!("(vec4<u32>(codes) >> vec4<u32>({down})) & vec4<u32>({}u)", (1 << width) - 1)
        };
        let mut text = format!(
            "fn load4_b(k: u32, n: u32) -> Vec4 {{\n{}    let codes = word >> ({first});\n    var \
             weight = vec4<f32>({codes});\n",
            self.head()
        );
        let groups = match self.decoder.grouped() {
            None => String::new(),
            Some(0) => "    let g = code_group(r);\n".to_owned(),
            Some(_) => {
                (0..4).map(|j| format!("    let g{} = code_group(c + {j}u);\n", lane(j))).collect()
            }
        };
        text += &groups;
        for (((op, of), name), (_, four)) in
            self.decoder.steps.iter().zip(NAMES).zip(&self.parameters)
        {
            let by_column = of.grouped() == Some(1);
            let load = if *four {
                format!("load4_{name}({})", of.index("c", "g"))
            } else if *of == Extents::Row {
                format!("f32(load_{name}(r))")
            } else {
                let each = (0..4).map(|j| {
                    let g = if by_column { format!("g{}", lane(j)) } else { "g".to_owned() };
                    format!("f32(load_{name}({}))", of.index(&format!("c + {j}u"), &g))
                });
                each.collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(text, "    weight = weight {op} vec4<f32>({load});");
        }
        text + "    return weight;\n}\n"
    }
}
