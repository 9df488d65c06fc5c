//! Who decides where a request goes.

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
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

    fn named(name: &str) -> Result<Self> {
        if name == DIRECT { Ok(Self::Direct) } else { Ok(Self::Weir(name.parse()?)) }
    }
}

/// All of them, as one argument.
pub(super) fn ways() -> impl TypedValueParser<Value = Way> {
    let names = Policy::ALL.map(Policy::name).into_iter().chain([DIRECT]);
    PossibleValuesParser::new(names).try_map(|name| Way::named(&name))
}
