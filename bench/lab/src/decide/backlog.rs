//! What waits and cannot go: prompts of a lower band that fill a pod's whole cache and so fit on none that has anything.
//!
//! They are of a few sizes, so that they stand in several lanes, and have no objective, so that nothing gives them up.

use std::sync::Arc;

use weir_core::{Band, PodClass, PromptSize, Request, RequestId, Slo, Time};

/// Sizes, as shares of a pod's cache.
const SHARES: [f64; 4] = [0.99, 0.98, 0.97, 0.96];
/// Bytes of each; a real one is larger, and nothing looks at it.
const BODY_BYTES: u32 = 64;

/// A request that cannot go while every pod has something.
pub(super) fn stuck(id: RequestId, now: Time, class: &PodClass) -> Request {
    let room = f64::from(class.kv_blocks) * f64::from(class.block_tokens);
    let share = SHARES.get(id.0 as usize % SHARES.len()).copied().unwrap_or(1.0);
    Request {
        id,
        arrived: now,
        prompt: PromptSize::Tokens((room * share) as u32),
        max_output_tokens: Some(16 << (id.0 % 4)),
        sequences: 1,
        slo: Slo::default(),
        band: Band(0),
        tenant: None,
        body_bytes: BODY_BYTES,
        blocks: Arc::from([]),
        streamed: true,
        ttl: None,
        immediate: false,
        by_header: false,
        name: Arc::default(),
    }
}
