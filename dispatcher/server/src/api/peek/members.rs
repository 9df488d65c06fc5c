//! Finds the members of a body that are read, without serde: for long prompts that is most of what reading a body costs.
//!
//! Believed are only bodies as programs write them: UTF-8 on one line, plain keys, nothing given twice, not nested too deep. Of
//! anything else, sound or not, nothing is said, and serde says what it is. Whatever is believed serde would have read the same;
//! the tests hold the two against each other.

use std::cell::RefCell;

use simdutf8::basic::from_utf8;
use smallvec::SmallVec;

use super::{Fields, Raw, known::Known};
use crate::walk::Walk;

thread_local! {
    static TOOLS: RefCell<Known> = RefCell::default();
}

/// The values of a body's members; `None` when serde is to be asked.
pub(super) fn read(body: &[u8]) -> Option<Fields<'_>> {
    let mut walk = Walk::of(from_utf8(body).ok()?);
    let mut fields = Fields::default();
    let mut nulls: SmallVec<[&str; 8]> = SmallVec::new();
    walk.takes(b'{')?;
    loop {
        let key = walk.key()?;
        let value = match key {
            "tools" | "functions" => TOOLS.with_borrow_mut(|tools| tools.value(&mut walk)),
            _ => walk.value(),
        }?;
        if let Some(slot) = fields.slot(key) {
            if slot.is_some() || nulls.contains(&key) {
                return None;
            }
            if value == "null" && !matches!(key, "priority" | "kv_transfer_params") {
                nulls.push(key);
            } else {
                *slot = Some(Raw(value));
            }
        }
        match walk.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    (walk.is_over() && walk.is_believed()).then_some(fields)
}

#[cfg(test)]
mod tests;
