//! TTFT and TPOT side by side.

use weir_schema::Target;

/// A value for each target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Both<T> {
    pub(crate) ttft: T,
    pub(crate) tpot: T,
}

impl<T> Both<T> {
    pub(crate) const fn get(&self, target: Target) -> &T {
        match target {
            Target::Ttft => &self.ttft,
            Target::Tpot => &self.tpot,
        }
    }

    pub(crate) const fn get_mut(&mut self, target: Target) -> &mut T {
        match target {
            Target::Ttft => &mut self.ttft,
            Target::Tpot => &mut self.tpot,
        }
    }

    pub(crate) fn map<U>(&self, mut convert: impl FnMut(&T) -> U) -> Both<U> {
        Both { ttft: convert(&self.ttft), tpot: convert(&self.tpot) }
    }
}
