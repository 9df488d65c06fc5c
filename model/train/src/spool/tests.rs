use std::{fs, io::Write, os::unix::fs::symlink, path::Path};

use tempfile::TempDir;
use weir_schema::{Feature, Features, Sample, schema_hash, spool::segment_name};

use super::{Skipped, SpoolReader};
use crate::synthetic::{NOW_UNIX_MS, sample};

fn reader(dir: &Path) -> SpoolReader {
    SpoolReader::new(dir.to_owned(), schema_hash().to_owned())
}

fn append(dir: &Path, number: u64, bytes: &[u8]) {
    let path = dir.join(segment_name(number));
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

fn line(output_tokens: u32) -> String {
    let sample = Sample { output_tokens, ..sample() };
    serde_json::to_string(&sample).unwrap() + "\n"
}

fn look(reader: &mut SpoolReader) -> (Vec<u32>, Skipped) {
    let (mut seen, mut skipped) = (Vec::new(), Skipped::default());
    reader.read(NOW_UNIX_MS, &mut skipped, |sample, _| seen.push(sample.output_tokens));
    (seen, skipped)
}

#[test]
fn a_look_takes_only_what_is_new_since_the_last_one() {
    let spool = TempDir::new().unwrap();
    let mut reader = reader(spool.path());
    append(spool.path(), 1, line(11).as_bytes());
    assert_eq!(look(&mut reader).0, [11]);
    append(spool.path(), 1, line(12).as_bytes());
    append(spool.path(), 2, line(13).as_bytes());
    assert_eq!(look(&mut reader).0, [12, 13]);
    assert_eq!(look(&mut reader), (vec![], Skipped::default()));
}

#[test]
fn a_torn_last_line_is_taken_once_its_rest_arrives() {
    let spool = TempDir::new().unwrap();
    let mut reader = reader(spool.path());
    let text = line(11);
    let (head, rest) = text.as_bytes().split_at(40);
    append(spool.path(), 1, line(10).as_bytes());
    append(spool.path(), 1, head);
    assert_eq!(look(&mut reader), (vec![10], Skipped::default()));
    append(spool.path(), 1, rest);
    assert_eq!(look(&mut reader), (vec![11], Skipped::default()));
}

#[test]
fn a_torn_line_of_a_finished_segment_is_counted_once() {
    let spool = TempDir::new().unwrap();
    let mut reader = reader(spool.path());
    append(spool.path(), 1, &line(10).as_bytes()[..40]);
    assert_eq!(look(&mut reader).1.torn, 0);
    append(spool.path(), 2, line(11).as_bytes());
    let (seen, skipped) = look(&mut reader);
    assert_eq!((seen, skipped.torn), (vec![11], 1));
    assert_eq!(look(&mut reader).1.torn, 0);
}

#[test]
fn garbage_is_skipped_and_counted_by_reason() {
    let spool = TempDir::new().unwrap();
    let foreign = Sample { schema: "0123456789abcdef".into(), ..sample() };
    let foreign = serde_json::to_string(&foreign).unwrap();
    append(spool.path(), 1, b"{\"schema\": 1}\n\xff\xfe\n\n{]\n");
    append(spool.path(), 1, format!("{foreign}\n").as_bytes());
    // Another schema usually has a row of another length.
    append(spool.path(), 1, foreign.replace("\"row\":[", "\"row\":[1.0,").as_bytes());
    append(spool.path(), 1, format!("\n{}", line(9)).as_bytes());
    append(
        spool.path(),
        1,
        &[vec![b'x'; 200_000], vec![b'\n'], vec![0; 300], vec![b'\n']].concat(),
    );
    append(spool.path(), 1, line(10).as_bytes());
    let (seen, skipped) = look(&mut reader(spool.path()));
    assert_eq!(seen, [9, 10]);
    let expected =
        Skipped { not_json: 4, not_utf8: 1, other_schema: 2, too_long: 1, ..Skipped::default() };
    assert_eq!(skipped, expected);
    assert_eq!(skipped.to_string(), "2 other_schema, 4 not_json, 1 not_utf8, 1 too_long");
}

#[test]
fn a_line_without_end_is_passed_over_without_being_kept() {
    let spool = TempDir::new().unwrap();
    let mut reader = reader(spool.path());
    append(spool.path(), 1, &vec![b'x'; 150_000]);
    assert_eq!(look(&mut reader).1.too_long, 1);
    append(spool.path(), 1, &vec![b'x'; 150_000]);
    assert_eq!(look(&mut reader).1.too_long, 0);
    append(spool.path(), 1, format!("x\n{}", line(7)).as_bytes());
    assert_eq!(look(&mut reader), (vec![7], Skipped::default()));
    assert!(reader.line.capacity() < 300_000, "kept {}", reader.line.capacity());
}

#[test]
fn absurd_values_are_skipped() {
    let with = |feature, value| {
        let mut features = Features(sample().row);
        features.set(feature, value);
        Sample { row: features.0, ..sample() }
    };
    let absurd = [
        with(Feature::KvUsage, 1.5),
        with(Feature::InputTokens, -3.0),
        Sample { ttft_ms: Some(-1.0), ..sample() },
        Sample { ttft_ms: Some(5e8), e2e_ms: 1e9, ..sample() },
        Sample { ttft_ms: Some(50.0), e2e_ms: 10.0, ..sample() },
        Sample { wait_ms: -1.0, ..sample() },
        Sample { at_unix_ms: NOW_UNIX_MS + 3_600_000, ..sample() },
    ];
    let spool = TempDir::new().unwrap();
    for sample in &absurd {
        append(spool.path(), 1, (serde_json::to_string(sample).unwrap() + "\n").as_bytes());
    }
    // A number that no f32 holds is read as infinite.
    append(spool.path(), 1, line(1).replace("\"e2e_ms\":", "\"e2e_ms\":1e300,\"x\":").as_bytes());
    let (seen, skipped) = look(&mut reader(spool.path()));
    assert_eq!((seen, skipped.absurd), (vec![], absurd.len() as u64 + 1), "{skipped}");
}

#[test]
fn segments_may_vanish_and_be_replaced_by_others_of_their_name() {
    let spool = TempDir::new().unwrap();
    let mut reader = reader(spool.path());
    append(spool.path(), 1, (line(1) + &line(2)).as_bytes());
    append(spool.path(), 2, line(3).as_bytes());
    assert_eq!(look(&mut reader).0, [1, 2, 3]);
    fs::remove_file(spool.path().join(segment_name(1))).unwrap();
    assert_eq!(look(&mut reader), (vec![], Skipped::default()));
    append(spool.path(), 1, line(4).as_bytes());
    assert_eq!(look(&mut reader).0, [4]);
    fs::write(spool.path().join(segment_name(2)), "").unwrap();
    assert_eq!(look(&mut reader).0, [0_u32; 0]);
    append(spool.path(), 2, line(5).as_bytes());
    assert_eq!(look(&mut reader).0, [5]);
}

#[test]
fn a_spool_that_is_not_there_yet_is_no_problem_and_one_that_is_gone_is() {
    let root = TempDir::new().unwrap();
    let spool = root.path().join("spool");
    let mut reader = reader(&spool);
    assert_eq!(look(&mut reader), (vec![], Skipped::default()), "before the first sample");
    fs::create_dir(&spool).unwrap();
    append(&spool, 1, line(1).as_bytes());
    assert_eq!(look(&mut reader).0, [1]);
    fs::remove_dir_all(&spool).unwrap();
    let (seen, skipped) = look(&mut reader);
    assert_eq!((seen, skipped.unreadable), (vec![], 1));
    assert!(skipped.problems[0].contains("spool"), "{skipped:?}");
}

#[test]
fn a_broken_spool_is_told_and_not_an_error() {
    let root = TempDir::new().unwrap();
    let spool = root.path().join("spool");
    let mut reader = reader(&spool);
    fs::write(&spool, "no folder").unwrap();
    assert_eq!(look(&mut reader).1.unreadable, 1);
    fs::remove_file(&spool).unwrap();

    fs::create_dir(&spool).unwrap();
    fs::create_dir(spool.join(segment_name(1))).unwrap();
    let loops = spool.join(segment_name(2));
    symlink(&loops, &loops).unwrap();
    symlink("/dev/zero", spool.join(segment_name(3))).unwrap();
    append(&spool, 4, line(4).as_bytes());
    fs::write(spool.join("notes.txt"), "not a segment").unwrap();
    let (seen, skipped) = look(&mut reader);
    assert_eq!((seen, skipped.unreadable, skipped.problems.len()), (vec![4], 3, 3), "{skipped:?}");
    let again = look(&mut reader).1;
    assert_eq!((again.unreadable, again.problems.len()), (0, 3), "named again, counted once");
}
