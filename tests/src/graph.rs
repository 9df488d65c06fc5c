//! A bundle that passes every check and answers NaN in service: written by hand, since no trainer
//! would.
//!
//! Its graph is `priors x role x exp(input_tokens)`. Its golden row has role 1 and an empty prompt, for
//! which that is the priors; a pod that does both has role 0, and 0 x exp(100) is 0 x infinity. Field
//! numbers are those of `onnx.proto`.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_schema::{
    FEATURE_COUNT, Feature,
    manifest::{CURRENT_FILE, INPUT_NAME, MANIFEST_FILE, MODEL_FILE, OUTPUT_NAME, bundle_name},
    schema_hash,
};

/// Writes the bundle as version 1 and makes it the current one.
///
/// # Panics
/// When the disk refuses.
pub fn write_nan_bundle(bundles: &Path) {
    let dir = bundles.join(bundle_name(1));
    fs::create_dir_all(&dir).expect("a folder can be made");
    let (model, mut row) = (model(), [0.0_f32; FEATURE_COUNT]);
    for (feature, value) in
        [(Feature::Role, 1.0), (Feature::PriorTtftMs, 30.0), (Feature::PriorTpotMs, 15.0)]
    {
        row[feature as usize] = value;
    }
    let error =
        json!({"rows": 1, "mape": 0.1, "rmse_log": 0.1, "prior_mape": 0.2, "ratio_p90": 1.1});
    let manifest = json!({
        "version": 1, "schema": schema_hash(), "sha256": format!("{:x}", Sha256::digest(&model)),
        "trained_at_unix_ms": 1, "features": [], "rows": [1, 1], "trees": 0,
        "holdout": {"ttft": error, "tpot": error},
        "golden": [{"row": row, "ttft_ms": 30.0, "tpot_ms": 15.0}],
    });
    fs::write(dir.join(MODEL_FILE), model).expect("the bundle can be written");
    fs::write(dir.join(MANIFEST_FILE), manifest.to_string()).expect("the bundle can be written");
    fs::write(bundles.join(CURRENT_FILE), bundle_name(1)).expect("the bundle can be written");
}

/// Makes the manifest of a bundle fit its graph again, and lets `change` change it.
///
/// # Panics
/// When there is no bundle.
pub fn sign(bundle: &Path, change: impl FnOnce(&mut Value)) {
    let path = bundle.join(MANIFEST_FILE);
    let text = fs::read(&path).expect("there is a manifest");
    let mut manifest: Value = serde_json::from_slice(&text).expect("a manifest is JSON");
    let model = fs::read(bundle.join(MODEL_FILE)).expect("there is a graph");
    manifest["sha256"] = format!("{:x}", Sha256::digest(model)).into();
    change(&mut manifest);
    fs::write(path, manifest.to_string()).expect("the manifest can be written");
}

fn model() -> Vec<u8> {
    let pairs = [
        ("prior_columns", [Feature::PriorTtftMs as i64, Feature::PriorTpotMs as i64]),
        ("role_columns", [Feature::Role as i64; 2]),
        ("input_columns", [Feature::InputTokens as i64; 2]),
    ];
    let nodes = [
        gather("prior_columns", "priors"),
        gather("role_columns", "role"),
        gather("input_columns", "input"),
        node("Exp", &["input"], "huge", &[]),
        node("Mul", &["role", "huge"], "factor", &[]),
        node("Mul", &["priors", "factor"], OUTPUT_NAME, &[]),
    ];
    let mut graph = Vec::new();
    nodes.iter().for_each(|node| bytes(&mut graph, 1, node));
    bytes(&mut graph, 2, b"latency");
    for (name, columns) in pairs {
        bytes(&mut graph, 5, &integers(name, &columns));
    }
    bytes(&mut graph, 11, &value_info(INPUT_NAME, FEATURE_COUNT as u64));
    bytes(&mut graph, 12, &value_info(OUTPUT_NAME, 2));
    let mut opset = Vec::new();
    bytes(&mut opset, 1, b"");
    number(&mut opset, 2, 17);
    let mut model = Vec::new();
    number(&mut model, 1, 8);
    bytes(&mut model, 7, &graph);
    bytes(&mut model, 8, &opset);
    model
}

fn gather(columns: &str, output: &str) -> Vec<u8> {
    let mut axis = Vec::new();
    bytes(&mut axis, 1, b"axis");
    number(&mut axis, 3, 1);
    number(&mut axis, 20, 2);
    node("Gather", &[INPUT_NAME, columns], output, &axis)
}

/// An operator; `attribute` may be empty.
fn node(operator: &str, inputs: &[&str], output: &str, attribute: &[u8]) -> Vec<u8> {
    let mut node = Vec::new();
    inputs.iter().for_each(|input| bytes(&mut node, 1, input.as_bytes()));
    bytes(&mut node, 2, output.as_bytes());
    bytes(&mut node, 4, operator.as_bytes());
    if !attribute.is_empty() {
        bytes(&mut node, 5, attribute);
    }
    node
}

fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let mut tensor = Vec::new();
    number(&mut tensor, 1, values.len() as u64);
    number(&mut tensor, 2, 7);
    bytes(&mut tensor, 8, name.as_bytes());
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    bytes(&mut tensor, 9, &raw);
    tensor
}

/// A matrix of floats with any number of rows.
fn value_info(name: &str, columns: u64) -> Vec<u8> {
    let [mut rows, mut width, mut shape, mut tensor, mut kind, mut info] =
        std::array::from_fn(|_| Vec::new());
    bytes(&mut rows, 2, b"rows");
    number(&mut width, 1, columns);
    bytes(&mut shape, 1, &rows);
    bytes(&mut shape, 1, &width);
    number(&mut tensor, 1, 1);
    bytes(&mut tensor, 2, &shape);
    bytes(&mut kind, 1, &tensor);
    bytes(&mut info, 1, name.as_bytes());
    bytes(&mut info, 2, &kind);
    info
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
