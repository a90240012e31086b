//! BatchNormWithGlobalNormalization and its gradient, which occur only in graphs from before
//! TensorFlow 1.0. Their programs are expressions. x and its gradient have four dimensions, of
//! which the last one is the channel; all other operands have one value for each channel.

use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::elementwise::ElementwiseProgram;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::reduce::reduce;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

const TYPES: &[DType] = types::F32_F16;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("BatchNormWithGlobalNormalization").types("T", TYPES).kernel(|attrs| {
        let norm = GlobalNorm::of(attrs)?;
        let program = norm.forward()?;
        Ok(move |ctx: &mut dyn OpContext| {
            let [x, mean, variance] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
            let [beta, gamma] = [ctx.input(3)?, ctx.input(4)?];
            let vectors = [(&mean, "mean"), (&variance, "var"), (&beta, "beta"), (&gamma, "gamma")];
            check(&x, &vectors)?;
            let y = ctx.output(0, x.dtype, &x.dims)?;
            program.run(ctx.device(), &[x, mean, variance, beta, gamma], &[y], &[norm.epsilon])
        })
    });
    r.op("BatchNormWithGlobalNormalizationGrad").types("T", TYPES).kernel(move |attrs| {
        let norm = GlobalNorm::of(attrs)?;
        let programs = norm.backward()?;
        Ok(move |ctx: &mut dyn OpContext| norm.run_backward(&programs, ctx))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let norms = TYPES.iter().flat_map(|dtype| {
        [false, true].map(|scaled| GlobalNorm { dtype: *dtype, epsilon: 0.0, scaled })
    });
    let programs = norms.flat_map(|norm| {
        let backward = norm.backward().expect("the expressions of this file are valid");
        let forward = norm.forward().expect("the expressions of this file are valid");
        [forward, backward.input, backward.products, backward.moments, backward.scale]
    });
    programs.flat_map(|program| program.shaders()).collect()
}

struct GlobalNorm {
    dtype: DType,
    /// The value of parameter 0 of every program.
    epsilon: f32,
    scaled: bool,
}

/// The programs of the gradient.
struct Backward {
    /// The gradient of x, from variance, gamma and the gradient.
    input: ElementwiseProgram,
    /// The gradient in float32, and its product with the distance from the mean: from x, mean and
    /// the gradient.
    products: ElementwiseProgram,
    /// The gradients of mean and variance, from both sums over the channel, variance and gamma.
    moments: ElementwiseProgram,
    /// The gradients of beta and gamma, from the same.
    scale: ElementwiseProgram,
}

/// A program of float32 between inputs and outputs of other types.
struct Body {
    expression: Expression,
    /// The inputs as float32.
    inputs: Vec<Value>,
}

impl Body {
    fn new(inputs: &[DType]) -> Result<Self> {
        let mut expression = Expression::new();
        let values: Vec<Value> = inputs.iter().map(|dtype| expression.input(*dtype)).collect();
        let cast = values.into_iter().map(|value| expression.cast(value, F32));
        let inputs = cast.collect::<Result<_>>()?;
        Ok(Self { expression, inputs })
    }

    fn call(&mut self, op: &str, args: &[Value]) -> Result<Value> {
        self.expression.call(op, F32, args)
    }

    fn program(mut self, outputs: &[Value], dtype: DType) -> Result<ElementwiseProgram> {
        for value in outputs {
            let value = self.expression.cast(*value, dtype)?;
            self.expression.output(value);
        }
        ElementwiseProgram::new(self.expression)
    }
}

impl GlobalNorm {
    fn of(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self {
            dtype: attrs.dtype("T")?,
            epsilon: attrs.float("variance_epsilon")?,
            scaled: attrs.bool("scale_after_normalization")?,
        })
    }

    /// `1 / sqrt(variance + epsilon)`.
    fn inverse_deviation(body: &mut Body, variance: Value) -> Result<Value> {
        let epsilon = body.expression.constant();
        let sum = body.call("AddV2", &[variance, epsilon])?;
        body.call("Rsqrt", &[sum])
    }

    /// The factor of a distance from the mean.
    fn slope(&self, body: &mut Body, variance: Value, gamma: Value) -> Result<Value> {
        let inverse = Self::inverse_deviation(body, variance)?;
        if self.scaled { body.call("Mul", &[inverse, gamma]) } else { Ok(inverse) }
    }

    /// `(x - mean) * slope + beta`.
    fn forward(&self) -> Result<ElementwiseProgram> {
        let mut body = Body::new(&[self.dtype; 5])?;
        let [x, mean, variance, beta, gamma] = body.inputs[..] else { unreachable!("five inputs") };
        let slope = self.slope(&mut body, variance, gamma)?;
        let distance = body.call("Sub", &[x, mean])?;
        let scaled = body.call("Mul", &[distance, slope])?;
        let y = body.call("AddV2", &[scaled, beta])?;
        body.program(&[y], self.dtype)
    }

    fn backward(&self) -> Result<Backward> {
        let mut body = Body::new(&[self.dtype; 3])?;
        let [variance, gamma, dy] = body.inputs[..] else { unreachable!("three inputs") };
        let slope = self.slope(&mut body, variance, gamma)?;
        let dx = body.call("Mul", &[dy, slope])?;
        let input = body.program(&[dx], self.dtype)?;

        let mut body = Body::new(&[self.dtype; 3])?;
        let [x, mean, dy] = body.inputs[..] else { unreachable!("three inputs") };
        let distance = body.call("Sub", &[x, mean])?;
        let product = body.call("Mul", &[dy, distance])?;
        let products = body.program(&[dy, product], F32)?;

        let of_sums = [F32, F32, self.dtype, self.dtype];
        let mut body = Body::new(&of_sums)?;
        let [sum, products_sum, variance, gamma] = body.inputs[..] else {
            unreachable!("four inputs")
        };
        let slope = self.slope(&mut body, variance, gamma)?;
        let product = body.call("Mul", &[sum, slope])?;
        let mean_gradient = body.call("Neg", &[product])?;
        // -0.5 * products * slope / (variance + epsilon)
        let scaled = body.call("Mul", &[products_sum, slope])?;
        let half = body.expression.constant();
        let halved = body.call("Mul", &[scaled, half])?;
        let sum = body.call("AddV2", &[variance, Value::Constant(0)])?;
        let variance_gradient = body.call("RealDiv", &[halved, sum])?;
        let moments = body.program(&[mean_gradient, variance_gradient], self.dtype)?;

        let mut body = Body::new(&of_sums[..3])?;
        let [sum, products_sum, variance] = body.inputs[..] else { unreachable!("three inputs") };
        let inverse = Self::inverse_deviation(&mut body, variance)?;
        let gamma_gradient = body.call("Mul", &[products_sum, inverse])?;
        let scale = body.program(&[sum, gamma_gradient], self.dtype)?;
        Ok(Backward { input, products, moments, scale })
    }

    /// Inputs: t, m, v, gamma, backprop. Outputs: dx, dm, dv, db, dg.
    fn run_backward(&self, programs: &Backward, ctx: &mut dyn OpContext) -> Result<()> {
        let [x, mean, variance] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let [gamma, dy] = [ctx.input(3)?, ctx.input(4)?];
        check(&x, &[(&mean, "mean"), (&variance, "var"), (&gamma, "gamma")])?;
        require!(
            dy.dims == x.dims,
            "out_backprop must have the shape of the input, got {}",
            shape_text(&dy.dims)
        );
        let (channels, epsilon) = (x.dims[3], self.epsilon);
        let dx = ctx.output(0, x.dtype, &x.dims)?;
        let input = [variance.clone(), gamma.clone(), dy.clone()];
        programs.input.run(ctx.device(), &input, &[dx], &[epsilon])?;
        let both = [ctx.temp(F32, &x.dims)?, ctx.temp(F32, &x.dims)?];
        programs.products.run(ctx.device(), &[x, mean, dy], &both, &[])?;
        let sums = [ctx.temp(F32, &[channels])?, ctx.temp(F32, &[channels])?];
        for (products, sum) in both.iter().zip(&sums) {
            reduce(ctx, "Sum", products, &[true, true, true, false], sum)?;
        }
        let mut gradients = Vec::new();
        for output in 1..5 {
            gradients.push(ctx.output(output, variance.dtype, &[channels])?);
        }
        let [sum, products] = sums;
        let of_sums = [sum, products, variance, gamma];
        let device = ctx.device();
        programs.moments.run(device, &of_sums, &gradients[..2], &[epsilon, -0.5])?;
        programs.scale.run(device, &of_sums[..3], &gradients[2..], &[epsilon])?;
        if !self.scaled {
            device.fill(gradients[3].address, gradients[3].bytes(), 0)?;
        }
        Ok(())
    }
}

fn check(x: &Tensor, vectors: &[(&Tensor, &str)]) -> Result<()> {
    require!(x.rank() == 4, "input must be 4-dimensional{}", shape_text(&x.dims));
    for (t, name) in vectors {
        require!(t.rank() == 1, "{name} must be 1-dimensional{}", shape_text(&t.dims));
        require!(
            t.dims[0] == x.dims[3],
            "{name} must have {} elements, got {}",
            x.dims[3],
            t.dims[0]
        );
    }
    Ok(())
}
