//! Who decides where a request goes.

use anyhow::{Context, Result};
use weir_core::Policy;

/// What stands between the requests and the pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Weir with a preset.
    Weir(Policy),
    /// Nothing: the only pod is asked itself.
    Direct,
}

/// Name of [`Way::Direct`].
const DIRECT: &str = "direct";

impl Way {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Weir(policy) => policy.name(),
            Self::Direct => DIRECT,
        }
    }

    /// # Errors
    /// When there is no such policy; the error lists them.
    pub(super) fn named(name: &str) -> Result<Self> {
        if name == DIRECT {
            return Ok(Self::Direct);
        }
        let named = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        named.map(Self::Weir).with_context(|| {
            let known = Policy::ALL.map(Policy::name).join(", ");
            format!("--policy: there is no policy {name:?}; known are {known}, {DIRECT}")
        })
    }
}
