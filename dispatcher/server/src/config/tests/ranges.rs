//! The schema says what the check asks for.

use serde_json::{Value, json};

use crate::config::{Config, RawConfig, schema};

/// Every number of the schema that has bounds: its path in the file, and them.
fn bounded(path: &str, part: &Value, schema: &Value, found: &mut Vec<(String, [Option<f64>; 2])>) {
    let options = part.get("anyOf").and_then(Value::as_array);
    let part = options.and_then(|options| options.first()).unwrap_or(part);
    let target = part.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|path| schema.pointer(path.trim_start_matches('#')));
    let part = target.unwrap_or(part);
    let bounds = ["minimum", "maximum"].map(|name| part.get(name).and_then(Value::as_f64));
    if bounds.iter().any(Option::is_some) {
        found.push((path.to_owned(), bounds));
    }
    for (key, inner) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
        bounded(&format!("{path}/{key}"), inner, schema, found);
    }
    if let Some(items) = part.get("items") {
        bounded(&format!("{path}/0"), items, schema, found);
    }
    if let Some(named) = part.get("additionalProperties") {
        bounded(&format!("{path}/standard"), named, schema, found);
    }
}

/// What the check says of a key when it has this value.
fn said_of(pointer: &str, value: f64) -> Vec<String> {
    let digest = "ab".repeat(32);
    let mut file = serde_json::to_value(RawConfig::default()).unwrap();
    file["keys"] = json!([{
        "tenant": "a", "sha256": digest, "max_band": 1, "requests_per_minute": 60, "burst": 5,
    }]);
    file["limits"]["requests_per_minute"] = 60.into();
    file["limits"]["burst"] = 5.into();
    file["pools"][0]["dns"] = json!({"host": "pods", "port": 8000, "every_s": 5});
    file["pools"][0]["prefill"] = json!({"pool": "prompts", "local_tokens": 256});
    let place = file.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not in the file"));
    *place =
        if value.fract() == 0.0 && !place.is_f64() { json!(value as i64) } else { json!(value) };
    let key = pointer.trim_start_matches('/').replace('/', ".").replace(".0", "[0]");
    let raw: RawConfig = match serde_json::from_value(file) {
        Ok(raw) => raw,
        Err(error) => return vec![error.to_string()],
    };
    let problems = Config::check(&raw).err().map(|problems| problems.lines()).unwrap_or_default();
    problems.into_iter().filter(|line| line.starts_with(&format!("{key}: "))).collect()
}

#[test]
fn the_ranges_of_the_schema_are_those_of_the_check() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let mut found = vec![];
    bounded("", &schema, &schema, &mut found);
    assert!(found.len() > 40, "{found:?}");
    for (path, [least, most]) in found {
        for (bound, beyond) in [(least, -1.0), (most, 1.0)] {
            let Some(bound) = bound else { continue };
            assert_ne!(said_of(&path, bound + beyond), [""; 0], "{path}: {bound} is not the end");
            // What these may be goes by another key, which their description names.
            let related = [
                "/queue/max_bytes",
                "/scrape/stale_after_ms",
                "/spool/max_bytes",
                "/trainer/max_samples",
            ];
            if !related.contains(&path.as_str()) {
                assert_eq!(said_of(&path, bound), [""; 0], "{path}: {bound} is in the range");
            }
        }
    }
}

#[test]
fn what_has_no_default_is_required() {
    let page = crate::config::reference::markdown();
    for key in ["model", "url", "host", "tenant"] {
        let line = page.lines().find(|line| line.starts_with(&format!("| `{key}` | text | ")));
        assert!(line.unwrap().starts_with(&format!("| `{key}` | text | required |")), "{line:?}");
    }
    assert!(page.contains("| `eta` | number, at most 1 | `0.2` |"), "written as people do");
    assert!(page.contains("| `threads` | whole number, 1 to 256 | `1` |"));
}
