//! What waits and cannot go: prompts of a lower band that fill a pod's whole cache and so fit on none that has anything.
//!
//! They are of a few sizes, so that they stand in several lanes, and have no objective, so that nothing gives them up.

use weir_core::{PodClass, PromptSize, Request, RequestId, Time};

/// Sizes, as shares of a pod's cache.
const SHARES: [f64; 4] = [0.99, 0.98, 0.97, 0.96];
/// Bytes of each; a real one is larger, and nothing looks at it.
const BODY_BYTES: u32 = 64;

/// A request that cannot go while every pod has something.
pub(super) fn stuck(id: RequestId, now: Time, class: &PodClass) -> Request {
    let room = f64::from(class.kv_blocks) * f64::from(class.block_tokens);
    let share = SHARES.get(id.0 as usize % SHARES.len()).copied().unwrap_or(1.0);
    Request {
        max_output_tokens: Some(16 << (id.0 % 4)),
        body_bytes: BODY_BYTES,
        ..Request::new(id, now, PromptSize::Tokens((room * share) as u32))
    }
}
