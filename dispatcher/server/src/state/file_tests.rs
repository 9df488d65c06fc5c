use weir_core::{
    LengthConfig,
    length::LengthHistory,
    prefix::{Part, block_hashes, prompt_name},
};
use weir_schema::StepTime;

use super::*;
use crate::{fleet::Ask, hub::fixture::learned};

fn kept() -> Kept {
    let names = Part::Prompt(block_hashes(&[7; 300], 1).collect());
    let to = prompt_name(5, b"tail");
    Kept {
        model: "org/model".to_owned(),
        written_ms: 1_700_000_000_000,
        held: Held {
            version: 3,
            gates: ["b0".to_owned()].into(),
            pods: [("10.0.0.1:8000".to_owned(), Ask::Drain)].into(),
        },
        learned: learned(),
        pods: vec![KeptPod {
            address: "10.0.0.1:8000".to_owned(),
            witness: Witness { started_at_s: Some(1_700_000_000.5), generated: Some(300) },
            cached: Cached(vec![Part::Answer { to, blocks: 5, held: 2 }, names]),
        }],
    }
}

#[test]
fn what_is_kept_is_what_belongs_to_the_format() {
    let mut kept = kept();
    let mut history = LengthHistory::new(LengthConfig::default(), &[1024]);
    for tokens in [1, 30, 1000, 100_000] {
        history.observe(None, tokens, tokens);
    }
    kept.learned.lengths = history.learned();
    let mut bytes = bytes(&kept).unwrap();
    bytes.extend(postcard::to_allocvec(&StepTime::default()).unwrap());
    // Whoever changes a value, or what a number in it stands for, makes the number of the format another one, and this digest with it.
    assert_eq!((FORMAT, xxh3_64(&bytes)), (1, 717_916_622_962_829_049), "{} bytes", bytes.len());
}

#[test]
fn what_was_written_is_read_and_each_model_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let read = |model: &str| read(dir.path(), model).unwrap();
    assert_eq!(read("org/model"), None);
    write(dir.path(), "org/model", &bytes(&kept()).unwrap()).unwrap();
    assert_eq!(read("org/model"), Some(kept()));
    assert_eq!(read("org_model"), None);
    let path = path(dir.path(), "org/model");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("org_model-") && name.ends_with(".state"), "{name}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_is_cut_off_or_changed_anywhere_is_none() {
    let whole = bytes(&kept()).unwrap();
    assert_eq!(understood(&whole).unwrap(), kept());
    for at in 0..whole.len() {
        understood(&whole[..at]).unwrap_err();
        let mut changed = whole.clone();
        changed[at] ^= 1;
        understood(&changed).unwrap_err();
    }
    let mut other = whole.clone();
    other[MARK.len()] += 1;
    let why = understood(&other).unwrap_err().to_string();
    assert_eq!(why, "it is of format 2 and this version reads 1");
    let mut longer = whole;
    longer.push(0);
    assert_eq!(understood(&longer).unwrap_err().to_string(), "it is cut off or damaged");
}

#[test]
fn a_folder_that_refuses_keeps_the_file_that_was() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "m", b"first").unwrap();
    // What cannot be written to is there already.
    fs::create_dir(path(dir.path(), "m").with_extension("part")).unwrap();
    write(dir.path(), "m", b"second").unwrap_err();
    assert_eq!(fs::read(path(dir.path(), "m")).unwrap(), b"first");
    write(&dir.path().join("none"), "m", b"").unwrap_err();
}
