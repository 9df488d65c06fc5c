use weir_schema::manifest::OUTPUT_NAME;

use super::*;
use crate::fixture::{Fixture, external_tensor, model, model_of, node, row, scaled_graph, tensor};
use crate::runtime::tests::loaded;

/// The reason for which a fixture is refused after `spoil` had its way with it.
fn refused(spoil: impl FnOnce(&mut Fixture)) -> &'static str {
    let root = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::scaled(7, 1.5, 2.0);
    spoil(&mut fixture);
    let error = Bundle::load(&loaded(), &fixture.write(root.path())).unwrap_err();
    assert!(!error.to_string().is_empty());
    error.reason()
}

/// The reason for which a model is refused although its manifest fits.
fn refused_model(model: Vec<u8>) -> &'static str {
    refused(|fixture| {
        fixture.model = model;
        fixture.sign();
    })
}

#[test]
fn a_sound_bundle_loads_and_answers() {
    let root = tempfile::tempdir().unwrap();
    let mut bundle = Bundle::load(&loaded(), &Fixture::trees(3).write(root.path())).unwrap();
    assert_eq!(bundle.version(), 3);
    let rows = [row(10.0, 2.0, 999.0), row(10.0, 2.0, 1001.0), row(30.0, 4.0, f32::NAN)];
    let medians = bundle.evaluator.evaluate(&rows).unwrap();
    let expected = [[10.0, 3.0], [20.0, 3.0], [60.0, 6.0]];
    for (got, want) in medians.iter().flatten().zip(expected.iter().flatten()) {
        assert!((got - want).abs() < 1e-4 * want, "{medians:?}");
    }
    assert!(bundle.evaluator.evaluate(&[]).unwrap().is_empty());
}

/// A fixture loaded by what is wanted, with ONNX Runtime or without.
fn loaded_by(fixture: &Fixture, choice: Choice, with: bool) -> Result<Bundle, BundleError> {
    let root = tempfile::tempdir().unwrap();
    let runtime = with.then(loaded);
    Bundle::load_by(&Evaluators { choice, runtime }, &fixture.write(root.path()))
}

#[test]
fn a_bundle_of_known_form_is_served_by_the_forest_unless_ort_is_wanted() {
    let trees = Fixture::trees(7);
    for (choice, with, evaluator) in [
        (Choice::Auto, true, (Source::Forest, "")),
        (Choice::Auto, false, (Source::Forest, "")),
        (Choice::Forest, true, (Source::Forest, "")),
        (Choice::Forest, false, (Source::Forest, "")),
        (Choice::Ort, true, (Source::Onnx, "configured")),
    ] {
        let mut bundle = loaded_by(&trees, choice, with).unwrap();
        let by = bundle.evaluator();
        assert_eq!((by.source, by.reason.as_str()), evaluator, "{choice:?}");
        let medians = bundle.evaluator.evaluate(&[row(10.0, 2.0, 1001.0)]).unwrap();
        assert!((medians[0][0] - 20.0).abs() < 1e-3 && (medians[0][1] - 3.0).abs() < 1e-3);
    }
    assert_eq!(loaded_by(&trees, Choice::Ort, false).unwrap_err().reason(), "no_evaluator");
}

#[test]
fn a_graph_that_the_forest_does_not_understand_stays_with_onnx_runtime_and_says_why() {
    let other = Fixture::by_kv_usage(7);
    let by = loaded_by(&other, Choice::Auto, true).unwrap().evaluator();
    assert_eq!((by.source, by.reason.as_str()), (Source::Onnx, "form"));
    assert!(by.detail.contains("Mul"), "{}", by.detail);
    let refused = |choice, with| loaded_by(&other, choice, with).unwrap_err().reason();
    assert_eq!(refused(Choice::Forest, true), "forest_refused");
    assert_eq!(refused(Choice::Auto, false), "no_evaluator");
}

#[test]
fn without_onnx_runtime_the_golden_rows_are_the_proof() {
    let mut other = Fixture::trees(7);
    other.manifest.golden[1].tpot_ms *= 1.001;
    assert_eq!(loaded_by(&other, Choice::Auto, false).unwrap_err().reason(), "golden_mismatch");
    other.manifest.golden.clear();
    assert_eq!(loaded_by(&other, Choice::Auto, false).unwrap_err().reason(), "no_golden_rows");
}

#[test]
fn a_missing_bundle_or_file_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let absent = Bundle::load(&loaded(), &root.path().join("v000000000001")).unwrap_err();
    assert_eq!(absent.reason(), "missing");
    let dir = Fixture::scaled(7, 1.5, 2.0).write(root.path());
    std::fs::remove_file(dir.join(MODEL_FILE)).unwrap();
    assert_eq!(Bundle::load(&loaded(), &dir).unwrap_err().reason(), "missing");
    std::fs::create_dir(dir.join(MODEL_FILE)).unwrap();
    assert_eq!(Bundle::load(&loaded(), &dir).unwrap_err().reason(), "unreadable");
}

#[test]
fn a_corrupt_manifest_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = Fixture::scaled(7, 1.5, 2.0).write(root.path());
    std::fs::write(dir.join(MANIFEST_FILE), b"{\"version\": 7,").unwrap();
    assert_eq!(Bundle::load(&loaded(), &dir).unwrap_err().reason(), "corrupt_manifest");
    assert_eq!(refused(|fixture| fixture.manifest.version = 0), "corrupt_manifest");
}

#[test]
fn a_file_past_its_cap_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let dir = Fixture::scaled(7, 1.5, 2.0).write(root.path());
    let huge = std::fs::File::create(dir.join(MODEL_FILE)).unwrap();
    huge.set_len(MODEL_CAP + 1).unwrap();
    assert_eq!(Bundle::load(&loaded(), &dir).unwrap_err().reason(), "too_large");
}

#[test]
fn a_bundle_for_other_features_or_with_another_graph_is_refused() {
    assert_eq!(refused(|fixture| fixture.manifest.schema = "old".into()), "schema_mismatch");
    assert_eq!(refused(|fixture| fixture.model.push(0)), "sha256_mismatch");
}

#[test]
fn a_graph_that_does_not_reproduce_its_golden_rows_is_refused() {
    assert_eq!(refused_model(scaled_graph(1.5, 2.001)), "golden_mismatch");
    assert_eq!(refused_model(scaled_graph(-1.5, 2.0)), "not_finite");
    assert_eq!(refused_model(scaled_graph(f32::NAN, 2.0)), "not_finite");
    assert_eq!(refused(|fixture| fixture.manifest.golden.clear()), "no_golden_rows");
    let short = |fixture: &mut Fixture| {
        fixture.manifest.golden[0].row.pop();
    };
    assert_eq!(refused(short), "golden_width");
}

#[test]
fn a_truncated_graph_is_refused_at_every_length() {
    let whole = Fixture::trees(7).model;
    let root = tempfile::tempdir().unwrap();
    let runtime = loaded();
    for length in 0..whole.len() {
        let mut fixture = Fixture::trees(7);
        fixture.model.truncate(length);
        fixture.sign();
        let dir = fixture.write(root.path());
        let reason = Bundle::load(&runtime, &dir).unwrap_err().reason();
        // Cut between two fields it is a protobuf still, and lacks its graph or its operator sets.
        let known = ["corrupt_model", "session_refused"];
        assert!(known.contains(&reason), "{reason} at {length} of {}", whole.len());
    }
}

#[test]
fn a_graph_with_anything_but_a_tree_models_operators_is_refused() {
    let other = node("Add", "", &["features", "features"], OUTPUT_NAME, &[]);
    assert_eq!(refused_model(model(&[other], &[])), "disallowed_op");
    let foreign = node("Mul", "com.example", &["features", "features"], OUTPUT_NAME, &[]);
    assert_eq!(refused_model(model(&[foreign], &[])), "disallowed_op");
    // A subgraph in an attribute: field 6 of the attribute, empty.
    let nested = node("Identity", "", &["features"], OUTPUT_NAME, &[vec![6 << 3 | 2, 0]]);
    assert_eq!(refused_model(model(&[nested], &[])), "disallowed_op");
    // A function: field 25 of the model, empty.
    let mut with_function = scaled_graph(1.5, 2.0);
    with_function.extend([0xca, 0x01, 0]);
    assert_eq!(refused_model(with_function), "disallowed_op");
}

/// The reasons for which a fixture is refused by each evaluator, where it is.
fn refusals(fixture: &Fixture) -> [Option<&'static str>; 3] {
    [(Choice::Ort, true), (Choice::Auto, true), (Choice::Forest, false)]
        .map(|(choice, with)| loaded_by(fixture, choice, with).err().map(|error| error.reason()))
}

#[test]
fn a_tree_that_would_take_the_stack_is_refused_before_onnx_runtime_reads_it() {
    assert_eq!(refusals(&Fixture::of_depth(7, 8)), [None; 3]);
    assert_eq!(refusals(&Fixture::of_depth(7, 64)), [None, None, Some("no_evaluator")]);
    for depth in [65, 20_000] {
        assert_eq!(refusals(&Fixture::of_depth(7, depth)), [Some("too_deep"); 3]);
    }
}

#[test]
fn a_graph_that_would_take_all_memory_is_refused_before_onnx_runtime_runs_it() {
    assert_eq!(refusals(&Fixture::doubling(7, 3)), [None; 3]);
    for times in [23, 60, 900] {
        assert_eq!(refusals(&Fixture::doubling(7, times)), [Some("too_much"); 3]);
    }
    let endless = tensor("w", 1, &[1 << 40], &[]);
    let mul = node("Mul", "", &["features", "w"], OUTPUT_NAME, &[]);
    assert_eq!(refused_model(model(&[mul], &[endless])), "too_much");
}

#[test]
fn a_graph_that_two_readers_may_understand_in_two_ways_is_refused() {
    let mul = |attributes: &[Vec<u8>]| {
        let mul = node("Mul", "", &["features", "w"], OUTPUT_NAME, attributes);
        refused_model(model(
            &[mul],
            &[tensor("w", 1, &[1], &[0; 4]), tensor("w", 1, &[1], &[0; 4])],
        ))
    };
    assert_eq!(mul(&[]), "corrupt_model");
    let identity = |attributes: &[Vec<u8>]| {
        refused_model(model(&[node("Identity", "", &["features"], OUTPUT_NAME, attributes)], &[]))
    };
    // Name (1) `a`, then i (3), f (2) and type (20).
    let [int, both] =
        [vec![10, 1, b'a', 24, 1, 0xa0, 1, 2], vec![10, 1, b'a', 24, 1, 21, 0, 0, 0, 0]];
    assert_eq!(identity(&[int.clone(), int.clone()]), "corrupt_model", "twice");
    assert_eq!(identity(&[both]), "corrupt_model", "of two kinds");
    assert_eq!(identity(&[int[..5].to_vec()]), "corrupt_model", "of a kind that is not said");
    assert_eq!(identity(&[int]), "session_refused");
}

#[test]
fn a_graph_that_reads_another_file_is_refused() {
    let mul = node("Mul", "", &["features", "w"], OUTPUT_NAME, &[]);
    assert_eq!(refused_model(model(&[mul], &[external_tensor("w")])), "external_data");
    let mut constant = vec![5 << 3 | 2];
    let value = external_tensor("w");
    constant.push(u8::try_from(value.len()).unwrap());
    constant.extend(value);
    let constant = node("Constant", "", &[], OUTPUT_NAME, &[constant]);
    assert_eq!(refused_model(model(&[constant], &[])), "external_data");
}

#[test]
fn a_graph_with_other_inputs_or_outputs_is_refused() {
    let columns = || tensor("columns", 7, &[2], &[15_i64, 16].map(i64::to_le_bytes).concat());
    let gather = |input| {
        // axis = 1: name (1), i (3), type INT (20).
        let axis = vec![10, 4, b'a', b'x', b'i', b's', 24, 1, 0xa0, 1, 2];
        node("Gather", "", &[input, "columns"], OUTPUT_NAME, &[axis])
    };
    let renamed = model_of(&[gather("rows")], &[columns()], ("rows", 20));
    assert_eq!(refused_model(renamed), "signature_mismatch");
    let narrow = model_of(&[gather("features")], &[columns()], ("features", 19));
    assert_eq!(refused_model(narrow), "signature_mismatch");
}

#[test]
fn an_operator_that_reads_what_nothing_made_is_refused() {
    let dangling = node("Mul", "", &["features", "nowhere"], OUTPUT_NAME, &[]);
    assert_eq!(refused_model(model(&[dangling], &[])), "corrupt_model");
}

#[test]
fn a_graph_of_other_shapes_than_the_trainers_is_followed_too() {
    let list = |name: &str, values: &[i64]| {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        tensor(name, 7, &[values.len() as u64], &raw)
    };
    // The value of a constant (5) is a tensor, its type (20) 4; that of a cast is an integer: float.
    let mut one = vec![10, 5, b'v', b'a', b'l', b'u', b'e', 0xa0, 1, 4, 42];
    let value = tensor("", 1, &[1], &1_f32.to_le_bytes());
    one.push(u8::try_from(value.len()).unwrap());
    one.extend(value);
    let to = vec![10, 2, b't', b'o', 24, 1, 0xa0, 1, 2];
    let nodes = [
        node("Constant", "", &[], "one", &[one]),
        node("Slice", "", &["features", "from", "until", "columns"], "priors", &[]),
        node("Unsqueeze", "", &["priors", "columns"], "deep", &[]),
        node("Mul", "", &["deep", "one"], "same", &[]),
        node("Reshape", "", &["same", "pairs"], "flat", &[]),
        node("Cast", "", &["flat"], OUTPUT_NAME, &[to]),
    ];
    let lists = [("from", &[15][..]), ("until", &[17]), ("columns", &[1]), ("pairs", &[-1, 2])];
    let lists = lists.map(|(name, values)| list(name, values));
    let fixture = Fixture::new(7, model(&nodes, &lists), |row| [row[15], row[16]]);
    let bundle = loaded_by(&fixture, Choice::Auto, true).unwrap();
    assert_eq!(bundle.evaluator().source, Source::Onnx);
}
