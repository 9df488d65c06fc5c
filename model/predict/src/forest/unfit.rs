//! Why a graph is not evaluated as a forest.

use weir_schema::onnx::WireError;

/// Why a graph stays with ONNX Runtime.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// The configuration says so.
    #[error("the configuration asks for onnx runtime")]
    Configured,
    /// The bytes are no graph.
    #[error(transparent)]
    Unreadable(#[from] WireError),
    /// It holds an operator that is not known here.
    #[error("operator {0} is not known to the forest")]
    Operator(String),
    /// It is put together in a way that is not known here.
    #[error("{0}")]
    Form(&'static str),
    /// A tree asks too many questions in a row.
    #[error("a tree of depth {depth}, of at most {most}")]
    Depth {
        /// Questions from the root to a leaf.
        depth: usize,
        /// Questions that are laid out.
        most: usize,
    },
    /// Its trees would take too much room.
    #[error("too many trees to lay out")]
    Size,
    /// It answers otherwise than ONNX Runtime.
    #[error("{target} of a row is {forest} by the forest and {onnx} by onnx runtime")]
    Differs {
        /// Target of the values.
        target: &'static str,
        /// Value of the forest, in milliseconds.
        forest: f32,
        /// Value of ONNX Runtime, in milliseconds.
        onnx: f32,
    },
    /// ONNX Runtime did not answer when they were compared.
    #[error("onnx runtime did not answer: {0}")]
    NoComparison(String),
}

impl Unfit {
    /// One stable word for metrics and tests.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Unreadable(_) => "unreadable",
            Self::Operator(_) => "operator",
            Self::Form(_) => "form",
            Self::Depth { .. } => "too_deep",
            Self::Size => "too_large",
            Self::Differs { .. } => "disagrees",
            Self::NoComparison(_) => "no_comparison",
        }
    }
}
