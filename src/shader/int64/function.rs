//! Rewrites one function: expressions of 64-bit integers become calls of the library. Calls are
//! statements, so the statements that evaluate expressions are split before each call.

use naga::{
    AtomicFunction, Block, Expression, Function, GatherMode, Handle, Span, Statement, SwitchCase,
};

use super::calls::{Lowered, lower};
use super::scalars::Scalars;
use super::words::Words;

/// A function that is being rewritten.
pub(super) struct Rewriter<'a> {
    old: naga::Arena<Expression>,
    scalars: &'a Scalars,
    words: &'a mut Words,
    new: naga::Arena<Expression>,
    /// The new expression for each old one, once it is made.
    map: Vec<Option<Handle<Expression>>>,
    /// The number of new expressions when the current evaluation began, if there is one.
    evaluated: Option<usize>,
    /// The statements of the current block so far.
    block: Block,
}

impl<'a> Rewriter<'a> {
    /// Rewrites `function`, whose expressions had the types `scalars`.
    pub fn rewrite(
        function: &mut Function,
        scalars: &'a Scalars,
        words: &'a mut Words,
    ) -> Result<(), String> {
        let old = std::mem::take(&mut function.expressions);
        let map = vec![None; old.len()];
        let new = naga::Arena::new();
        let block = Block::new();
        let mut rewriter = Self { old, scalars, words, new, map, evaluated: None, block };
        rewriter.prepare()?;
        for (_, variable) in function.local_variables.iter_mut() {
            if let Some(init) = &mut variable.init {
                *init = rewriter.constant(*init)?;
            }
        }
        function.body = rewriter.block(std::mem::take(&mut function.body))?;
        let named = std::mem::take(&mut function.named_expressions);
        function.named_expressions = named
            .into_iter()
            .filter_map(|(handle, name)| Some((rewriter.map[handle.index()]?, name)))
            .collect();
        function.expressions = rewriter.new;
        Ok(())
    }

    /// Carries over the expressions that no evaluation statement covers: arguments, variables,
    /// constants, and results of other statements.
    fn prepare(&mut self) -> Result<(), String> {
        let handles: Vec<_> = self.old.iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            let expression = &self.old[handle];
            let given = matches!(
                expression,
                Expression::CallResult(_)
                    | Expression::AtomicResult { .. }
                    | Expression::WorkGroupUniformLoadResult { .. }
                    | Expression::SubgroupBallotResult
                    | Expression::SubgroupOperationResult { .. }
            );
            if given || expression.needs_pre_emit() {
                self.constant(handle)?;
            }
        }
        Ok(())
    }

    /// Carries over an expression that no statement evaluates, and its operands.
    fn constant(&mut self, handle: Handle<Expression>) -> Result<Handle<Expression>, String> {
        if let Some(known) = self.map[handle.index()] {
            return Ok(known);
        }
        let mut expression = self.old[handle].clone();
        if let Some(words) = super::words_of(&expression) {
            expression = Expression::Constant(self.words.constant(words));
        }
        let mut operands = Vec::new();
        let unknown = format!("not rewritten: {expression:?}");
        map_operands(&mut expression, &mut |operand| {
            operands.push(operand);
            Some(operand)
        })
        .ok_or(unknown)?;
        operands.into_iter().try_for_each(|operand| self.constant(operand).map(drop))?;
        map_operands(&mut expression, &mut |operand| self.map[operand.index()]);
        let made = self.new.append(expression, self.old.get_span(handle));
        self.map[handle.index()] = Some(made);
        Ok(made)
    }

    /// The new expression for an old one that comes earlier.
    fn of(&self, handle: Handle<Expression>) -> Result<Handle<Expression>, String> {
        self.map[handle.index()].ok_or_else(|| {
            format!("an expression is used before it is evaluated: {:?}", self.old[handle])
        })
    }

    /// Ends the current evaluation.
    fn flush(&mut self) {
        if let Some(start) = self.evaluated.take()
            && start < self.new.len()
        {
            self.block.push(Statement::Emit(self.new.range_from(start)), Span::UNDEFINED);
        }
    }

    /// Evaluates a new expression.
    fn emit(&mut self, expression: Expression, span: Span) -> Handle<Expression> {
        self.evaluated.get_or_insert(self.new.len());
        self.new.append(expression, span)
    }

    /// Calls a function of the library.
    fn call(
        &mut self,
        name: &str,
        arguments: Vec<Handle<Expression>>,
        span: Span,
    ) -> Result<Handle<Expression>, String> {
        self.flush();
        let function = self.words.function(name)?;
        let result = self.new.append(Expression::CallResult(function), span);
        self.block.push(Statement::Call { function, arguments, result: Some(result) }, span);
        Ok(result)
    }

    /// Makes the new expression for an old one that is evaluated here.
    fn evaluate(&mut self, handle: Handle<Expression>) -> Result<(), String> {
        let span = self.old.get_span(handle);
        let made = match lower(&self.old[handle], self.scalars)? {
            Lowered::Same => {
                let mut expression = self.old[handle].clone();
                map_operands(&mut expression, &mut |operand| self.map[operand.index()])
                    .ok_or_else(|| format!("not rewritten: {expression:?}"))?;
                self.emit(expression, span)
            }
            Lowered::Operand(operand) => self.of(operand)?,
            Lowered::Call { name, arguments, negated } => {
                let arguments =
                    arguments.into_iter().map(|a| self.of(a)).collect::<Result<_, _>>()?;
                let result = self.call(&name, arguments, span)?;
                if negated {
                    let op = naga::UnaryOperator::LogicalNot;
                    self.emit(Expression::Unary { op, expr: result }, span)
                } else {
                    result
                }
            }
        };
        self.map[handle.index()] = Some(made);
        Ok(())
    }

    /// Rewrites a block within the current one.
    fn block(&mut self, block: Block) -> Result<Block, String> {
        self.flush();
        let outer = std::mem::take(&mut self.block);
        for (statement, span) in block.span_into_iter() {
            self.statement(statement, span)?;
        }
        self.flush();
        Ok(std::mem::replace(&mut self.block, outer))
    }

    fn statement(&mut self, mut statement: Statement, span: Span) -> Result<(), String> {
        match &mut statement {
            Statement::Emit(range) => {
                return range.clone().try_for_each(|handle| self.evaluate(handle));
            }
            Statement::Block(inner) => *inner = self.block(std::mem::take(inner))?,
            Statement::If { condition, accept, reject } => {
                *condition = self.of(*condition)?;
                *accept = self.block(std::mem::take(accept))?;
                *reject = self.block(std::mem::take(reject))?;
            }
            Statement::Switch { selector, cases } => {
                *selector = self.of(*selector)?;
                for SwitchCase { body, .. } in cases {
                    *body = self.block(std::mem::take(body))?;
                }
            }
            Statement::Loop { body, continuing, break_if } => {
                *body = self.block(std::mem::take(body))?;
                *continuing = self.block(std::mem::take(continuing))?;
                if let Some(condition) = break_if {
                    *condition = self.of(*condition)?;
                }
            }
            other => {
                let map = &self.map;
                map_statement(other, &mut |operand| map[operand.index()])
                    .ok_or_else(|| format!("not rewritten: {other:?}"))?;
            }
        }
        self.flush();
        self.block.push(statement, span);
        Ok(())
    }
}

/// Replaces the operands of a statement that contains no blocks. None if an operand has no
/// replacement, or if none of our shaders uses this kind of statement.
fn map_statement(
    statement: &mut Statement,
    map: &mut dyn FnMut(Handle<Expression>) -> Option<Handle<Expression>>,
) -> Option<()> {
    let mut each = |operands: &mut [&mut Handle<Expression>]| {
        operands.iter_mut().try_for_each(|operand| map(**operand).map(|new| **operand = new))
    };
    match statement {
        Statement::Break
        | Statement::Continue
        | Statement::Kill
        | Statement::ControlBarrier(_)
        | Statement::MemoryBarrier(_)
        | Statement::Return { value: None } => Some(()),
        Statement::Return { value: Some(value) } => each(&mut [value]),
        Statement::Store { pointer, value } => each(&mut [pointer, value]),
        Statement::Atomic { pointer, fun, value, result } => {
            each(&mut [pointer, value])?;
            if let AtomicFunction::Exchange { compare: Some(compare) } = fun {
                each(&mut [compare])?;
            }
            result.as_mut().map_or(Some(()), |result| each(&mut [result]))
        }
        Statement::WorkGroupUniformLoad { pointer, result } => each(&mut [pointer, result]),
        Statement::Call { arguments, result, .. } => {
            arguments.iter_mut().chain(result).try_for_each(|operand| each(&mut [operand]))
        }
        Statement::SubgroupBallot { result, predicate } => {
            each(&mut [result])?;
            predicate.as_mut().map_or(Some(()), |predicate| each(&mut [predicate]))
        }
        Statement::SubgroupGather { mode, argument, result } => {
            each(&mut [argument, result])?;
            match mode {
                GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => Some(()),
                GatherMode::Broadcast(index)
                | GatherMode::Shuffle(index)
                | GatherMode::ShuffleDown(index)
                | GatherMode::ShuffleUp(index)
                | GatherMode::ShuffleXor(index)
                | GatherMode::QuadBroadcast(index) => each(&mut [index]),
            }
        }
        Statement::SubgroupCollectiveOperation { argument, result, .. } => {
            each(&mut [argument, result])
        }
        _ => None,
    }
}

/// Replaces the operands of an expression. None if an operand has no replacement, or if none of our
/// shaders uses this kind of expression.
pub(super) fn map_operands(
    expression: &mut Expression,
    map: &mut dyn FnMut(Handle<Expression>) -> Option<Handle<Expression>>,
) -> Option<()> {
    let mut each = |operands: &mut [&mut Handle<Expression>]| {
        operands.iter_mut().try_for_each(|operand| map(**operand).map(|new| **operand = new))
    };
    match expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. }
        | Expression::WorkGroupUniformLoadResult { .. }
        | Expression::SubgroupBallotResult
        | Expression::SubgroupOperationResult { .. } => Some(()),
        Expression::Compose { components, .. } => {
            components.iter_mut().try_for_each(|component| each(&mut [component]))
        }
        Expression::Access { base, index } => each(&mut [base, index]),
        Expression::AccessIndex { base: operand, .. }
        | Expression::Splat { value: operand, .. }
        | Expression::Swizzle { vector: operand, .. }
        | Expression::Load { pointer: operand }
        | Expression::Unary { expr: operand, .. }
        | Expression::Relational { argument: operand, .. }
        | Expression::As { expr: operand, .. }
        | Expression::ArrayLength(operand) => each(&mut [operand]),
        Expression::Binary { left, right, .. } => each(&mut [left, right]),
        Expression::Select { condition, accept, reject } => each(&mut [condition, accept, reject]),
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            each(&mut [arg])?;
            [arg1, arg2, arg3].into_iter().flatten().try_for_each(|operand| each(&mut [operand]))
        }
        _ => None,
    }
}
