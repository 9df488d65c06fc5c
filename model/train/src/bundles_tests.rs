use std::{
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::*;
use crate::onnx::write;

/// Where the process that is to be killed publishes.
const VICTIM_DIR: &str = "WEIR_TRAIN_TEST_DIR";
/// Where the process that may not remove everything opens.
const BOUND_DIR: &str = "WEIR_TRAIN_TEST_BOUND_DIR";

fn manifest(version: u64, model: &[u8]) -> Manifest {
    Manifest {
        version,
        schema: schema_hash().into(),
        sha256: sha256(model),
        trained_at_unix_ms: 1,
        features: vec![],
        rows: [1, 1],
        trees: 1,
        holdout: weir_schema::Holdout::default(),
        golden: vec![],
        gains: vec![],
        classes: vec![],
    }
}

fn publish(bundles: &mut Bundles) -> Result<u64, TrainError> {
    let model = write([&[], &[]]);
    let version = bundles.next_version()?;
    bundles.publish(&manifest(version, &model), &model)?;
    Ok(version)
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn listed(names: &[&str]) -> BTreeSet<String> {
    names.iter().copied().chain([LOCK_FILE]).map(str::to_owned).collect()
}

fn serving_version(bundles: &Bundles) -> Option<u64> {
    bundles.serving(&[]).map(|serving| serving.version)
}

#[test]
fn a_published_bundle_is_current_and_only_the_newest_are_kept() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(&dir.path().join("new/bundles"), 2).unwrap();
    assert_eq!(serving_version(&bundles), None);
    for version in 1..=4 {
        assert_eq!(publish(&mut bundles).unwrap(), version);
        assert_eq!(serving_version(&bundles), Some(version));
    }
    let expected = listed(&["current", "v000000000003", "v000000000004"]);
    assert_eq!(names(&bundles.dir), expected);
}

#[test]
fn the_current_bundle_is_never_removed_however_old_it_is() {
    let dir = TempDir::new().unwrap();
    let bundles = Bundles::open(dir.path(), 1).unwrap();
    for version in ["v000000000002", "v000000000003", "v000000000004"] {
        fs::create_dir(dir.path().join(version)).unwrap();
    }
    fs::write(dir.path().join(CURRENT_FILE), "v000000000002").unwrap();
    bundles.prune();
    assert_eq!(names(dir.path()), listed(&["current", "v000000000002", "v000000000004"]));
}

#[test]
fn a_pinned_bundle_is_never_removed_and_a_pin_that_cannot_be_read_keeps_all() {
    let dir = TempDir::new().unwrap();
    let bundles = Bundles::open(dir.path(), 1).unwrap();
    for version in ["v000000000002", "v000000000003", "v000000000004"] {
        fs::create_dir(dir.path().join(version)).unwrap();
    }
    let pin = |said: &str| fs::write(dir.path().join("pinned"), said).unwrap();
    pin("half of a na");
    bundles.prune();
    assert_eq!(names(dir.path()).len(), 3 + 2);
    pin("v2");
    bundles.prune();
    assert_eq!(names(dir.path()), listed(&["pinned", "v000000000002", "v000000000004"]));
}

#[test]
fn what_a_dispatcher_serves_or_may_go_back_to_is_never_removed() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(dir.path(), 1).unwrap();
    for version in 1..=3 {
        assert_eq!(publish(&mut bundles).unwrap(), version);
        // The first publish after this is the one that would remove version 1.
        fs::write(dir.path().join("serving"), "v000000000001\nno name\nv000000000002\n").unwrap();
    }
    let kept = ["current", "serving", "v000000000001", "v000000000002", "v000000000003"];
    assert_eq!(names(dir.path()), listed(&kept));
    fs::remove_file(dir.path().join("serving")).unwrap();
    fs::create_dir(dir.path().join("serving")).unwrap();
    assert_eq!(publish(&mut bundles).unwrap(), 4);
    assert_eq!(names(dir.path()).len(), kept.len() + 1 + 1, "what cannot be read keeps all");
    fs::remove_dir(dir.path().join("serving")).unwrap();
    assert_eq!(publish(&mut bundles).unwrap(), 5);
    assert_eq!(names(dir.path()), listed(&["current", "v000000000005"]));
}

#[test]
fn what_a_crash_left_is_removed_and_its_version_is_not_used_again() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join(".part-v000000000009")).unwrap();
    fs::write(dir.path().join(".part-v000000000009/model.onnx"), "half").unwrap();
    fs::write(dir.path().join(".part-current"), "v0").unwrap();
    symlink("/nowhere", dir.path().join(".part-link")).unwrap();
    // Renamed into place, but `current` was not written any more.
    fs::create_dir(dir.path().join("v000000000007")).unwrap();
    let mut bundles = Bundles::open(dir.path(), 5).unwrap();
    assert_eq!(names(dir.path()), listed(&["v000000000007"]));
    assert_eq!(publish(&mut bundles).unwrap(), 8);
    // Even when every bundle was deleted by hand.
    fs::remove_dir_all(dir.path().join("v000000000007")).unwrap();
    fs::remove_dir_all(dir.path().join("v000000000008")).unwrap();
    assert_eq!(serving_version(&bundles), None);
    assert_eq!(publish(&mut bundles).unwrap(), 9);
}

#[test]
fn an_old_bundle_that_cannot_be_removed_does_not_keep_the_others() {
    let dir = TempDir::new().unwrap();
    let bundles = Bundles::open(dir.path(), 1).unwrap();
    for version in ["v000000000001", "v000000000002", "v000000000003"] {
        fs::create_dir(dir.path().join(version)).unwrap();
    }
    // Nothing is renamed to the name of a folder that is not empty.
    fs::create_dir_all(dir.path().join(".part-v000000000002/in the way")).unwrap();
    bundles.prune();
    let left = [".part-v000000000002", "v000000000002", "v000000000003"];
    assert_eq!(names(dir.path()), listed(&left));
}

/// Not a test of its own: the process that the next test starts.
#[test]
fn open_what_cannot_be_removed() {
    let Some(dir) = std::env::var_os(BOUND_DIR) else { return };
    let left = Path::new(&dir).join(".part-v000000000009");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o555)).unwrap();
    assert!(remove(&left).is_err(), "this process may do everything");
    let mut bundles = Bundles::open(Path::new(&dir), 5).unwrap();
    assert!(left.exists());
    assert_eq!(publish(&mut bundles).unwrap(), 10, "its name is taken");
    assert_eq!(serving_version(&bundles), Some(10));
}

#[test]
fn what_a_crash_left_and_cannot_be_removed_keeps_no_trainer_from_starting() {
    const NOBODY: u32 = 65534;
    let dir = TempDir::new().unwrap();
    let left = dir.path().join(".part-v000000000009");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(MODEL_FILE), "half").unwrap();
    let mut opener = Command::new("/proc/self/exe");
    opener.args(["--exact", "bundles::tests::open_what_cannot_be_removed"]);
    // Whoever may do everything hands it over to somebody who may not.
    if chown(dir.path(), Some(NOBODY), Some(NOBODY)).is_ok() {
        chown(&left, Some(NOBODY), Some(NOBODY)).unwrap();
        opener.uid(NOBODY).gid(NOBODY);
    }
    let opened = opener.env(BOUND_DIR, dir.path()).output().unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stdout));
}

#[test]
fn a_second_trainer_in_the_same_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let first = Bundles::open(dir.path(), 5).unwrap();
    let refused = Bundles::open(dir.path(), 5).unwrap_err();
    let TrainError::Locked { by, .. } = refused else { unreachable!("{refused}") };
    assert!(by.starts_with(&format!("process {}", std::process::id())), "{by}");
    fs::write(dir.path().join(LOCK_FILE), "").unwrap();
    let refused = Bundles::open(dir.path(), 5).unwrap_err().to_string();
    assert!(refused.contains("has not said"), "one of an older version: {refused}");
    drop(first);
    assert!(Bundles::open(dir.path(), 5).is_ok());
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_served_bundle() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(dir.path(), 5).unwrap();
    publish(&mut bundles).unwrap();
    let before = names(dir.path());
    // The device answers every write as a full disk does.
    symlink("/dev/full", dir.path().join(".part-current")).unwrap();
    let error = publish(&mut bundles).unwrap_err().to_string();
    assert!(error.contains(".part-current") && error.contains("No space left"), "{error}");
    assert_eq!((names(dir.path()), serving_version(&bundles)), (before, Some(1)));
    assert_eq!(publish(&mut bundles).unwrap(), 2);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_that_names_it() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Bundles::open(&file.join("bundles"), 5).unwrap_err().to_string();
    assert!(error.contains("cannot create") && error.contains("file/bundles"), "{error}");

    let mut bundles = Bundles::open(&dir.path().join("bundles"), 5).unwrap();
    fs::create_dir(bundles.dir.join(CURRENT_FILE)).unwrap();
    let error = publish(&mut bundles).unwrap_err().to_string();
    assert!(error.contains("current"), "{error}");
    assert_eq!(names(&bundles.dir), listed(&["current"]), "nothing half-published");
    fs::remove_dir_all(&bundles.dir).unwrap();
    assert!(publish(&mut bundles).is_err());
}

#[test]
fn a_directory_that_was_removed_is_taken_over_anew_unless_another_has_it() {
    let dir = TempDir::new().unwrap();
    let (place, aside) = (dir.path().join("bundles"), dir.path().join("aside"));
    let mut bundles = Bundles::open(&place, 5).unwrap();
    assert_eq!((publish(&mut bundles).unwrap(), publish(&mut bundles).unwrap()), (1, 2));
    assert!(!bundles.hold().unwrap(), "nothing happened");
    fs::remove_dir_all(&place).unwrap();
    assert!(bundles.hold().unwrap());
    assert_eq!((publish(&mut bundles).unwrap(), names(&place).len()), (3, 3), "no version twice");
    let second = Bundles::open(&place, 5).unwrap_err();
    assert!(matches!(second, TrainError::Locked { .. }), "{second}");

    fs::rename(&place, &aside).unwrap();
    let second = Bundles::open(&place, 5).unwrap();
    for _ in 0..2 {
        let refused = bundles.hold().unwrap_err();
        assert!(matches!(refused, TrainError::Locked { .. }), "{refused}");
    }
    drop(second);
    assert!(bundles.hold().unwrap());
    fs::remove_file(place.join(LOCK_FILE)).unwrap();
    assert!(bundles.hold().unwrap() && !bundles.hold().unwrap());
}

#[test]
fn a_current_bundle_that_is_not_whole_does_not_serve() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(dir.path(), 5).unwrap();
    publish(&mut bundles).unwrap();
    let inside = |file: &str| dir.path().join("v000000000001").join(file);
    let whole = fs::read(inside(MANIFEST_FILE)).unwrap();
    let foreign = String::from_utf8(whole.clone()).unwrap().replace(schema_hash(), "0123");
    for (file, bytes) in
        [(MANIFEST_FILE, foreign.as_bytes()), (MANIFEST_FILE, b"{}"), (MODEL_FILE, b"other bytes")]
    {
        let kept = fs::read(inside(file)).unwrap();
        fs::write(inside(file), bytes).unwrap();
        assert_eq!(serving_version(&bundles), None, "{file}");
        fs::write(inside(file), kept).unwrap();
        assert_eq!(serving_version(&bundles), Some(1));
    }
    fs::write(dir.path().join(CURRENT_FILE), "../elsewhere").unwrap();
    assert_eq!(serving_version(&bundles), None);
}

#[test]
fn a_graph_that_no_dispatcher_reads_is_not_published() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(dir.path(), 5).unwrap();
    publish(&mut bundles).unwrap();
    let model = vec![0; usize::try_from(MODEL_CAP).unwrap() + 1];
    let error = bundles.publish(&manifest(2, b""), &model).unwrap_err().to_string();
    assert!(error.contains("fewer trees or less depth"), "{error}");
    assert_eq!(serving_version(&bundles), Some(1));
}

#[test]
fn what_is_no_file_is_an_error_and_is_not_waited_for() {
    let dir = TempDir::new().unwrap();
    let mut bundles = Bundles::open(dir.path(), 5).unwrap();
    publish(&mut bundles).unwrap();
    let inside = |file: &str| dir.path().join("v000000000001").join(file);
    for place in [dir.path().join(CURRENT_FILE), inside(MANIFEST_FILE), inside(MODEL_FILE)] {
        let kept = fs::read(&place).unwrap();
        fs::remove_file(&place).unwrap();
        assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
        let reason = bundles.read_serving(&[]).err().unwrap();
        assert!(reason.ends_with("not a regular file"), "{reason}");
        fs::remove_file(&place).unwrap();
        fs::write(&place, kept).unwrap();
        assert_eq!(serving_version(&bundles), Some(1));
    }
    fs::write(dir.path().join(CURRENT_FILE), [b' '; 5000]).unwrap();
    let error = current_bundle(dir.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn publish_until_killed() {
    let Some(dir) = std::env::var_os(VICTIM_DIR) else { return };
    let mut bundles = Bundles::open(Path::new(&dir), 2).unwrap();
    loop {
        println!("published {}", publish(&mut bundles).unwrap());
    }
}

#[test]
fn a_trainer_killed_in_the_middle_leaves_a_whole_bundle_and_the_next_one_goes_on() {
    let dir = TempDir::new().unwrap();
    let mut last = 0;
    for round in 0..8 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bundles::tests::publish_until_killed", "--nocapture"])
            .env(VICTIM_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut published = lines.filter_map(|line| line.rsplit_once("published ")?.1.parse().ok());
        // It is killed wherever it is when this process gets to it.
        let seen: u64 = published.nth(round % 3).unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(seen > last, "version {seen} after {last}");

        let mut bundles = Bundles::open(dir.path(), 2).unwrap();
        let serving = serving_version(&bundles).unwrap();
        assert!(serving >= seen, "{serving} serves, but {seen} was published");
        assert!(!names(dir.path()).iter().any(|name| name.starts_with(PART)));
        last = publish(&mut bundles).unwrap();
        assert!(last > serving);
    }
}
