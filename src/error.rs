//! The one error type. Its variants are TensorFlow's canonical codes, so that an error crosses the
//! C boundary without losing its class. Its message names the expected and the actual value.

/// Result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in one of TensorFlow's error classes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller's shapes, types, attributes or values do not fit the op
    /// (`tf.errors.InvalidArgumentError`).
    #[error("{0}")]
    InvalidArgument(String),
    /// Device or host memory is exhausted, or a tensor exceeds a limit of the adapter
    /// (`ResourceExhaustedError`).
    #[error("{0}")]
    ResourceExhausted(String),
    /// Valid for TensorFlow, but not supported by this device (`UnimplementedError`).
    #[error("{0}")]
    Unimplemented(String),
    /// The state does not allow the operation, such as an uninitialized variable
    /// (`FailedPreconditionError`).
    #[error("{0}")]
    FailedPrecondition(String),
    /// An index or iterator past its end (`OutOfRangeError`).
    #[error("{0}")]
    OutOfRange(String),
    /// A named object does not exist (`NotFoundError`).
    #[error("{0}")]
    NotFound(String),
    /// The GPU was lost or cannot be used at the moment (`UnavailableError`).
    #[error("{0}")]
    Unavailable(String),
    /// A bug in this crate, in wgpu or in a driver (`InternalError`).
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// The same class with `context` put before the message, as in `"MatMul: shapes differ"`.
    #[must_use]
    pub fn context(self, context: impl std::fmt::Display) -> Self {
        self.map_message(|m| format!("{context}: {m}"))
    }

    /// The same class with another message.
    #[must_use]
    pub fn map_message(self, f: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::InvalidArgument(m) => Self::InvalidArgument(f(m)),
            Self::ResourceExhausted(m) => Self::ResourceExhausted(f(m)),
            Self::Unimplemented(m) => Self::Unimplemented(f(m)),
            Self::FailedPrecondition(m) => Self::FailedPrecondition(f(m)),
            Self::OutOfRange(m) => Self::OutOfRange(f(m)),
            Self::NotFound(m) => Self::NotFound(f(m)),
            Self::Unavailable(m) => Self::Unavailable(f(m)),
            Self::Internal(m) => Self::Internal(f(m)),
        }
    }
}

/// Returns early with [`Error::InvalidArgument`] and a formatted message.
#[macro_export]
macro_rules! invalid {
    ($($arg:tt)*) => { return Err($crate::error::Error::InvalidArgument(format!($($arg)*))) };
}

/// Returns early with [`Error::InvalidArgument`] unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($arg:tt)*) => { if !$condition { $crate::invalid!($($arg)*) } };
}
