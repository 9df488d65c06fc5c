//! Bundles for tests, written without a trainer: a small ONNX writer and the manifest that fits.
//!
//! Field numbers are those of `onnx.proto`.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use weir_schema::manifest::{INPUT_NAME, MANIFEST_FILE, MODEL_FILE, OUTPUT_NAME, bundle_name};
use weir_schema::{
    FEATURE_COUNT, Feature, Features, GoldenRow, Holdout, Manifest, Row, schema_hash,
};

/// A bundle before it is written; a test may spoil any part of it.
pub struct Fixture {
    pub manifest: Manifest,
    pub model: Vec<u8>,
}

impl Fixture {
    /// The row's priors times two constants.
    pub fn scaled(version: u64, ttft: f32, tpot: f32) -> Self {
        let expect = |row: &Row| priors(row, ttft, tpot);
        Self::new(version, scaled_graph(ttft, tpot), expect)
    }

    /// The row's priors times its KV usage: NaN where that is missing.
    pub fn by_kv_usage(version: u64) -> Self {
        let nodes = [
            gather("priors", "prior_columns"),
            gather("usage", "usage_columns"),
            node("Mul", "", &["priors", "usage"], OUTPUT_NAME, &[]),
        ];
        let usage = [Feature::KvUsage as i64; 2];
        let initializers = [prior_columns(), integers("usage_columns", &usage)];
        Self::new(version, model(&nodes, &initializers), |row| {
            let usage = Features(*row).get(Feature::KvUsage);
            priors(row, usage, usage)
        })
    }

    /// The form that the trainer writes: priors times exp of a tree ensemble. TTFT doubles above 1000
    /// input tokens, TPOT is always half as much again.
    pub fn trees(version: u64) -> Self {
        Self::new(version, trees_graph(&stumps()), |row| {
            let long = Features(*row).get(Feature::InputTokens) > 1000.0;
            priors(row, if long { 2.0 } else { 1.0 }, 1.5)
        })
    }

    /// Priors times exp of trees, the deepest of which asks so many questions in a row: the priors.
    pub fn of_depth(version: u64, depth: u64) -> Self {
        Self::new(version, trees_graph(&chain(depth)), |row| priors(row, 1.0, 1.0))
    }

    /// The priors, beside a value that is twice as wide as the one before it so many times over.
    pub fn doubling(version: u64, times: usize) -> Self {
        let names: Vec<String> = (0..=times).map(|at| format!("wide{at}")).collect();
        let mut nodes = vec![node("Identity", "", &[INPUT_NAME], "wide0", &[])];
        nodes.extend(names.windows(2).map(|pair| {
            let inputs = [pair[0].as_str(), pair[0].as_str()];
            node("Concat", "", &inputs, &pair[1], &[along_columns()])
        }));
        let last = names.last().map(String::as_str).unwrap_or_default();
        nodes.push(node("Gather", "", &[last, "prior_columns"], OUTPUT_NAME, &[along_columns()]));
        Self::new(version, model(&nodes, &[prior_columns()]), |row| priors(row, 1.0, 1.0))
    }

    /// A bundle around any model, with the outputs of `expect` as golden rows.
    pub fn new(version: u64, model: Vec<u8>, expect: impl Fn(&Row) -> [f32; 2]) -> Self {
        let golden = [row(100.0, 20.0, 500.0), row(40.0, 9.0, 4000.0)].map(|row| {
            let [ttft_ms, tpot_ms] = expect(&row);
            let row = row.iter().map(|value| value.is_finite().then_some(*value)).collect();
            GoldenRow { row, ttft_ms, tpot_ms }
        });
        let manifest = Manifest {
            version,
            schema: schema_hash().into(),
            sha256: String::new(),
            trained_at_unix_ms: 1,
            features: Vec::new(),
            rows: [2, 2],
            trees: 2,
            holdout: Holdout::default(),
            golden: golden.into(),
            gains: Vec::new(),
            classes: Vec::new(),
        };
        let mut fixture = Self { manifest, model };
        fixture.sign();
        fixture
    }

    /// Makes the manifest fit a model that was changed.
    pub fn sign(&mut self) {
        self.manifest.sha256 = format!("{:x}", Sha256::digest(&self.model));
    }

    /// Writes the bundle below `root` and returns its directory.
    pub fn write(&self, root: &Path) -> PathBuf {
        let dir = root.join(bundle_name(self.manifest.version));
        std::fs::create_dir_all(&dir).unwrap();
        let manifest = serde_json::to_vec(&self.manifest).unwrap();
        std::fs::write(dir.join(MANIFEST_FILE), manifest).unwrap();
        std::fs::write(dir.join(MODEL_FILE), &self.model).unwrap();
        dir
    }
}

/// A row with the given priors and input tokens, full KV, and everything else missing.
pub fn row(prior_ttft_ms: f32, prior_tpot_ms: f32, input_tokens: f32) -> Row {
    let mut features = Features::default();
    features.set(Feature::KvUsage, 1.0);
    features.set(Feature::InputTokens, input_tokens);
    features.set(Feature::PriorTtftMs, prior_ttft_ms);
    features.set(Feature::PriorTpotMs, prior_tpot_ms);
    features.0
}

fn priors(row: &Row, ttft: f32, tpot: f32) -> [f32; 2] {
    let features = Features(*row);
    [features.get(Feature::PriorTtftMs) * ttft, features.get(Feature::PriorTpotMs) * tpot]
}

fn trees_graph(ensemble: &[Vec<u8>]) -> Vec<u8> {
    let nodes = [
        gather("priors", "prior_columns"),
        node("TreeEnsembleRegressor", "ai.onnx.ml", &[INPUT_NAME], "logs", ensemble),
        node("Exp", "", &["logs"], "ratios", &[]),
        node("Mul", "", &["priors", "ratios"], OUTPUT_NAME, &[]),
    ];
    model(&nodes, &[prior_columns()])
}

/// The graph of [`Fixture::scaled`].
pub fn scaled_graph(ttft: f32, tpot: f32) -> Vec<u8> {
    let nodes = [
        gather("priors", "prior_columns"),
        node("Mul", "", &["priors", "factors"], OUTPUT_NAME, &[]),
    ];
    let raw: Vec<u8> = [ttft, tpot].iter().flat_map(|value| value.to_le_bytes()).collect();
    model(&nodes, &[prior_columns(), tensor("factors", 1, &[1, 2], &raw)])
}

/// A model with the agreed input and output.
pub fn model(nodes: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    model_of(nodes, initializers, (INPUT_NAME, FEATURE_COUNT as u64))
}

/// A model with another input.
pub fn model_of(nodes: &[Vec<u8>], initializers: &[Vec<u8>], input: (&str, u64)) -> Vec<u8> {
    let mut graph = Vec::new();
    nodes.iter().for_each(|node| bytes(&mut graph, 1, node));
    bytes(&mut graph, 2, b"latency");
    initializers.iter().for_each(|tensor| bytes(&mut graph, 5, tensor));
    bytes(&mut graph, 11, &value_info(input.0, input.1));
    bytes(&mut graph, 12, &value_info(OUTPUT_NAME, 2));
    let mut model = Vec::new();
    number(&mut model, 1, 8);
    bytes(&mut model, 7, &graph);
    for (domain, version) in [("", 17), ("ai.onnx.ml", 3)] {
        let mut opset = Vec::new();
        bytes(&mut opset, 1, domain.as_bytes());
        number(&mut opset, 2, version);
        bytes(&mut model, 8, &opset);
    }
    model
}

/// An operator with one output.
pub fn node(
    op: &str,
    domain: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[Vec<u8>],
) -> Vec<u8> {
    let mut node = Vec::new();
    inputs.iter().for_each(|input| bytes(&mut node, 1, input.as_bytes()));
    bytes(&mut node, 2, output.as_bytes());
    bytes(&mut node, 4, op.as_bytes());
    attributes.iter().for_each(|attribute| bytes(&mut node, 5, attribute));
    bytes(&mut node, 7, domain.as_bytes());
    node
}

fn gather(output: &str, columns: &str) -> Vec<u8> {
    node("Gather", "", &[INPUT_NAME, columns], output, &[along_columns()])
}

fn along_columns() -> Vec<u8> {
    let mut axis = attribute("axis", 2);
    number(&mut axis, 3, 1);
    axis
}

fn prior_columns() -> Vec<u8> {
    integers("prior_columns", &[Feature::PriorTtftMs as i64, Feature::PriorTpotMs as i64])
}

fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, 7, &[values.len() as u64], &raw)
}

/// A tensor with its data in it.
pub fn tensor(name: &str, data_type: u64, dims: &[u64], raw: &[u8]) -> Vec<u8> {
    let mut tensor = Vec::new();
    dims.iter().for_each(|dim| number(&mut tensor, 1, *dim));
    number(&mut tensor, 2, data_type);
    bytes(&mut tensor, 8, name.as_bytes());
    bytes(&mut tensor, 9, raw);
    tensor
}

/// A tensor whose data is said to lie in another file.
pub fn external_tensor(name: &str) -> Vec<u8> {
    let mut tensor = tensor(name, 1, &[1, 2], &[]);
    let mut entry = Vec::new();
    bytes(&mut entry, 1, b"location");
    bytes(&mut entry, 2, b"/etc/passwd");
    bytes(&mut tensor, 13, &entry);
    number(&mut tensor, 14, 1);
    tensor
}

/// Two trees: a split on the input tokens for the first target, one leaf for the second.
fn stumps() -> Vec<Vec<u8>> {
    let split = ("BRANCH_LEQ", Feature::InputTokens as u64, 1000.0, [1, 2]);
    let nodes = [(0, 0, split), (0, 1, LEAF), (0, 2, LEAF), (1, 0, LEAF)];
    ensemble(&nodes, &[(0, 1, 0, 0.0), (0, 2, 0, 2_f32.ln()), (1, 0, 1, 1.5_f32.ln())])
}

/// A tree for the first target that asks for so many thresholds of the input tokens in a row, whose leaves change nothing, and one
/// leaf for the second.
fn chain(depth: u64) -> Vec<Vec<u8>> {
    // The node after the last question is the first leaf, and every question has one of its own after that.
    let question = |at| ("BRANCH_LT", Feature::InputTokens as u64, 0.0, [depth + 1 + at, at + 1]);
    let splits = (0..depth).map(|at| (0, at, question(at)));
    let ends = (depth..=2 * depth).map(|at| (0, at, LEAF));
    let nodes: Vec<_> = splits.chain(ends).chain([(1, 0, LEAF)]).collect();
    let leaves: Vec<_> =
        (depth..=2 * depth).map(|at| (0, at, 0, 0.0)).chain([(1, 0, 1, 0.0)]).collect();
    ensemble(&nodes, &leaves)
}

/// Mode, feature, threshold, and the nodes for yes and no.
type Asked = (&'static str, u64, f32, [u64; 2]);

const LEAF: Asked = ("LEAF", 0, 0.0, [0, 0]);

/// The attributes of an ensemble of two targets: nodes by tree and id, and what the leaves add by tree, id and target.
fn ensemble(nodes: &[(u64, u64, Asked)], leaves: &[(u64, u64, u64, f32)]) -> Vec<Vec<u8>> {
    let ints = |name: &str, values: &mut dyn Iterator<Item = u64>| {
        let mut attribute = attribute(name, 7);
        values.for_each(|value| number(&mut attribute, 8, value));
        attribute
    };
    let floats = |name: &str, values: &mut dyn Iterator<Item = f32>| {
        let mut attribute = attribute(name, 6);
        bytes(&mut attribute, 7, &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
        attribute
    };
    let mut modes = attribute("nodes_modes", 8);
    nodes.iter().for_each(|(.., asked)| bytes(&mut modes, 9, asked.0.as_bytes()));
    let mut targets = attribute("n_targets", 2);
    number(&mut targets, 3, 2);
    vec![
        modes,
        targets,
        ints("nodes_treeids", &mut nodes.iter().map(|node| node.0)),
        ints("nodes_nodeids", &mut nodes.iter().map(|node| node.1)),
        ints("nodes_featureids", &mut nodes.iter().map(|node| node.2.1)),
        floats("nodes_values", &mut nodes.iter().map(|node| node.2.2)),
        ints("nodes_truenodeids", &mut nodes.iter().map(|node| node.2.3[0])),
        ints("nodes_falsenodeids", &mut nodes.iter().map(|node| node.2.3[1])),
        ints("target_treeids", &mut leaves.iter().map(|leaf| leaf.0)),
        ints("target_nodeids", &mut leaves.iter().map(|leaf| leaf.1)),
        ints("target_ids", &mut leaves.iter().map(|leaf| leaf.2)),
        floats("target_weights", &mut leaves.iter().map(|leaf| leaf.3)),
    ]
}

fn attribute(name: &str, kind: u64) -> Vec<u8> {
    let mut attribute = Vec::new();
    bytes(&mut attribute, 1, name.as_bytes());
    number(&mut attribute, 20, kind);
    attribute
}

fn value_info(name: &str, columns: u64) -> Vec<u8> {
    let (mut batch, mut width, mut shape) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut batch, 2, b"rows");
    number(&mut width, 1, columns);
    bytes(&mut shape, 1, &batch);
    bytes(&mut shape, 1, &width);
    let (mut tensor, mut kind, mut info) = (Vec::new(), Vec::new(), Vec::new());
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
