//! Who decides where a request goes.

use anyhow::{Result, bail};
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
        let known = || Policy::ALL.iter().map(|policy| policy.name());
        match known().zip(Policy::ALL).find(|(known, _)| *known == name) {
            Some((_, policy)) => Ok(Self::Weir(policy)),
            None if name == DIRECT => Ok(Self::Direct),
            None => bail!(
                "--policy: there is no policy {name:?}; known are {}, {DIRECT}",
                known().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}
