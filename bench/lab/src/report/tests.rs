//! A report of a few rows: it can be parsed, every headline number is in it, and nothing is silently lost.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::json;

use super::*;
use crate::{
    study::{Fingerprints, Row},
    workload::Objectives,
};

mod loads;

fn row(policy: &str, class: &str, load: f64, attainment: f64) -> Row {
    Row {
        workload: "made_up".to_owned(),
        mix: "one".to_owned(),
        gpu: "h100".to_owned(),
        pods: 4,
        chunk_tokens: 8192,
        policy: policy.to_owned(),
        prediction: "oracle".to_owned(),
        dispatchers: 1,
        load: Some(load),
        seeds: 5,
        class: class.to_owned(),
        requests: 1000,
        attainment,
        attainment_ci: Some(0.0123),
        goodput_rps: attainment * 10.0,
        ttft_ms_mean: Some(400.0 - 100.0 * attainment),
        e2e_ms_mean: Some(9000.0 - 1000.0 * attainment),
        attainment_large5: Some(attainment / 2.0),
        worst_wait_ms: Some(45_600.0),
        ..Row::default()
    }
}

fn highest(policy: &str, load: f64) -> Row {
    Row {
        load: None,
        max_load: Some(load),
        bounded: true,
        at: Some(0.99),
        ..row(policy, "interactive", 1.0, 0.991)
    }
}

#[test]
fn a_page_never_takes_the_place_of_what_it_is_made_of() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["runs.json", "other.json"] {
        let file = folder.path().join(name);
        let text = json!({"command": "weir-bench sim", "rows": rows()}).to_string();
        fs::write(&file, &text).unwrap();
        let error = write(folder.path(), &file, None, "title").unwrap_err();
        assert!(error.to_string().contains("is what the report reads"), "{error:#}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    write(folder.path(), &folder.path().join("page.html"), None, "title").unwrap();
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for class in ["all", "interactive"] {
        for (policy, at_one, at_more) in [
            ("weir", 0.954, 0.871),
            ("push-it", 0.613, 0.212),
            ("weir-strict", 0.904, 0.7),
            ("<odd> & co", 0.5, 0.1),
        ] {
            rows.push(row(policy, class, 1.0, at_one));
            rows.push(row(policy, class, 1.3, at_more));
        }
    }
    rows.extend([highest("weir", 0.83), highest("push-it", 0.62), highest("weir-strict", 0.7)]);
    rows
}

fn series(policy: &str, slow: f32) -> Series {
    let call = |number: u16| Call {
        ttft_ms: slow * f32::from(number),
        wait_ms: 1.0,
        tpot_ms: Some(30.0 + slow),
        e2e_ms: 5000.0 + f32::from(number),
        predicted_ttft_ms: (slow * f32::from(number) - 1.0) * 1.1,
        predicted_ttft_p90_ms: slow * f32::from(number) * 1.2,
        predicted_tpot_ms: 30.0,
        predicted_tpot_p90_ms: 31.0,
        ..Call::default()
    };
    let moment = |number: u8| Moment {
        at_s: f32::from(number),
        waiting: slow * f32::from(number),
        running: 3.0,
        ttft_headroom: Some(0.5 - f32::from(number) / 100.0),
        tpot_headroom: None,
    };
    Series {
        workload: "made_up".to_owned(),
        mix: "one".to_owned(),
        prediction: "oracle".to_owned(),
        dispatchers: 1,
        policy: policy.to_owned(),
        load: 1.0,
        seed: 1,
        classes: Objectives::default().classes,
        requests: 105,
        calls: (2..102).map(call).collect(),
        moments: (0..99).map(moment).collect(),
        ..Series::default()
    }
}

fn summary() -> Summary {
    let target = Target {
        id: "conv-one".to_owned(),
        what: "load, conv".to_owned(),
        target: 1.35,
        measured: Some(0.83),
        rival: Some(0.62),
        best_rival: Some("push-it".to_owned()),
        interval: Some(0.041),
        lower_in_time: Some(0.867),
        rival_lower_in_time: Some(1.0),
        seeds: 5,
        requests: 3500,
        ..Target::default()
    };
    let not_run = Target { note: Some("set WEIR_TRACES".to_owned()), ..Target::default() };
    Summary {
        command: "weir-bench lab".to_owned(),
        seconds: 125.0,
        targets: vec![target.judged(), not_run.judged()],
        ..Summary::default()
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        "rows.json",
        &json!({"command": "weir-bench sim --seeds 5", "seconds": 3.2, "rows": rows()}),
    );
    let series = [series("weir", 2.0), series("push-it", 9.0)];
    put(
        folder.path(),
        "series/run.json",
        &json!({"command": "weir-bench sim --series f", "series": series}),
    );
    put(folder.path(), "summary.json", &serde_json::to_value(summary()).unwrap());
    let brief = [row("lucky", "interactive", 1.0, 1.0)];
    put(folder.path(), "brief.json", &json!({"round": "screening", "rows": brief}));
    let limit = json!({"workload": "made_up", "mix": "one", "gpu": "h100", "pods": 4, "chunk_tokens": 8192, "load": 1.0,
        "policy": "weir", "seeds": 2, "requests": 500, "attainment": 0.9, "attainment_limit": 0.96, "of_limit": 0.9375});
    put(folder.path(), "limits.json", &json!({"rows": [limit]}));
    put(folder.path(), "other.json", &json!({"something": 1}));
    folder
}

fn put(folder: &Path, name: &str, value: &serde_json::Value) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

fn page_of(folder: &Path) -> (String, Written) {
    let out = folder.join("out/page.html");
    let written = write(folder, &out, Some(&folder.join("out/plots")), "Made up").unwrap();
    (fs::read_to_string(out).unwrap(), written)
}

fn parse(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(text, options).unwrap()
}

#[test]
fn every_headline_number_is_in_the_page() {
    let folder = folder();
    let (html, _) = page_of(folder.path());
    let document = parse(&html);
    let text: String = document
        .descendants()
        .filter(|node| node.is_text())
        .filter_map(|node| node.text())
        .collect();
    for number in [
        "Of 2 targets 0 were reached and 1 missed; 1 was not run",
        "86.7 % / 100.0 %",
        "weir holds load 0.83, the best rival, push-it, 0.62: 1.34x",
        "At load 1, 95.4 % ± 1.2 % of interactive attained with weir, 61.3 % ± 1.2 %",
        "goodput 9.54 against 6.13 requests per second of push-it, 1.56x",
        "weir attains 47.7 % of the largest 5 % and 95.4 % of all",
        "45.6 s",
        "The highest load at 99 % falls most with weir-strict: -15.7 %.",
        "TTFT p50 and p99: weir 102 ms and 200 ms; push-it 459 ms and 900 ms",
        "at most 196 requests waited at once",
        "predicted TTFT from dispatch with a mean error of 10.0 %",
        "weir serves 90.0 % in time where at most 96.0 % could be",
        "weir reaches 93.8 % of the limit in 1 setting.",
        "weir-bench sim --seeds 5",
    ] {
        assert!(text.contains(number), "{number:?} is not in: {text}");
    }
}

#[test]
fn the_page_loads_nothing_and_has_every_picture_inside() {
    let folder = folder();
    let (html, written) = page_of(folder.path());
    let document = parse(&html);
    let figures = document.descendants().filter(|node| node.tag_name().name() == "svg").count();
    assert_eq!(figures, written.pictures);
    assert!(written.pictures >= 12, "{written:?}");
    for node in document.descendants() {
        assert!(!["script", "link", "img", "iframe"].contains(&node.tag_name().name()));
        assert!(node.attributes().all(|one| !one.value().contains("://")), "{node:?}");
    }
    assert!(!html.contains("url(") && !html.contains("@import"));
}

#[test]
fn every_picture_is_a_file_of_its_own() {
    let folder = folder();
    let (_, written) = page_of(folder.path());
    let files: Vec<_> = fs::read_dir(folder.path().join("out/plots")).unwrap().collect();
    assert_eq!(files.len(), written.pictures, "two pictures of one name");
    for file in files {
        parse(&fs::read_to_string(file.unwrap().path()).unwrap());
    }
}

#[test]
fn a_screening_is_compared_with_nothing_else() {
    let folder = folder();
    let (html, _) = page_of(folder.path());
    assert!(html.contains("First of 1: <code>lucky</code> for load 1."));
    assert!(!html.contains("best rival, <code>lucky</code>"));
}

#[test]
fn links_lead_somewhere_and_names_cannot_write_markup() {
    let folder = folder();
    let (html, _) = page_of(folder.path());
    let document = parse(&html);
    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let links = document.descendants().filter_map(|node| node.attribute("href"));
    assert!(links.clone().count() >= 8);
    assert!(links.map(|link| link.trim_start_matches('#')).all(|link| ids.contains(&link)));
    assert!(html.contains("&lt;odd&gt; &amp; co") && !html.contains("<odd>"));
}

#[test]
fn an_empty_folder_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = write(folder.path(), &folder.path().join("page.html"), None, "x").unwrap_err();
    assert!(error.to_string().starts_with("no run file in "), "{error}");
    assert!(error.to_string().contains("weir-bench sim"), "{error}");
    let nowhere = folder.path().join("nowhere");
    let error = write(&nowhere, &folder.path().join("page.html"), None, "x").unwrap_err();
    assert!(error.to_string().starts_with("cannot read the folder"), "{error}");
}

#[test]
fn a_run_file_that_cannot_be_read_is_named() {
    let folder = folder();
    put(folder.path(), "broken.json", &json!({"rows": [{"policy": 5, "class": "all"}]}));
    let error = write(folder.path(), &folder.path().join("page.html"), None, "x").unwrap_err();
    assert!(format!("{error:#}").contains("broken.json"), "{error:#}");
}

#[test]
fn highest_loads_of_limits_are_left_out_and_named() {
    let folder = folder();
    let highest = json!({"workload": "made_up", "policy": "weir", "at": 0.99, "max_load": 0.8});
    put(folder.path(), "highest-loads.json", &json!({"rows": [highest]}));
    let (html, _) = page_of(folder.path());
    assert!(html.contains("highest-loads.json"));
}

#[test]
fn rows_of_other_predictions_are_not_the_same() {
    let folder = folder();
    let fitted = Row { prediction: "fitted".to_owned(), ..row("weir", "interactive", 1.0, 0.321) };
    let mut older = serde_json::to_value(row("weir", "interactive", 1.0, 0.123)).unwrap();
    older.as_object_mut().unwrap().remove("prediction");
    put(folder.path(), "more.json", &json!({"rows": [fitted]}));
    put(folder.path(), "older.json", &json!({"rows": [older]}));
    let (html, written) = page_of(folder.path());
    for said in ["predictions fitted", "32.1 %", "predictions not told", "12.3 %", "95.4 %"] {
        assert!(html.contains(said), "{said}");
    }
    let files = fs::read_dir(folder.path().join("out/plots")).unwrap().count();
    assert_eq!(files, written.pictures, "two pictures of one name");
}

#[test]
fn rows_and_series_of_other_numbers_of_dispatchers_are_not_the_same() {
    let folder = folder();
    let two = Row { dispatchers: 2, requests: 2000, ..row("weir", "interactive", 1.0, 0.321) };
    let mut older = serde_json::to_value(row("older", "interactive", 1.0, 0.123)).unwrap();
    older.as_object_mut().unwrap().remove("dispatchers");
    put(folder.path(), "two.json", &json!({"rows": [two]}));
    put(folder.path(), "older.json", &json!({"rows": [older]}));
    let two = [Series { dispatchers: 2, ..series("weir", 5.0) }];
    put(folder.path(), "series/two.json", &json!({"series": two}));
    let (html, written) = page_of(folder.path());
    for said in ["8192, 2 dispatchers", "32.1 %", "95.4 %", "chunk 0, 2 dispatchers, load 1"] {
        assert!(html.contains(said), "{said}");
    }
    assert!(html.contains("12.3 %") && !html.contains(" 1 dispatchers"), "one is not told");
    let files = fs::read_dir(folder.path().join("out/plots")).unwrap().count();
    assert_eq!(files, written.pictures, "two pictures of one name");
}

#[test]
fn a_run_that_was_too_short_or_ended_the_search_is_said_to() {
    let text = |rows: &[Row]| {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "a.json", &json!({"rows": rows}));
        let (html, _) = page_of(folder.path());
        let document = parse(&html);
        let texts = document.descendants().filter(|node| node.is_text());
        texts.filter_map(|node| node.text()).collect::<String>()
    };
    let pair = [highest("weir", 0.88), highest("push-it", 0.4)];
    let said = text(&pair);
    assert!(said.contains("Against the best rival, weir holds 2.20x of the load."), "{said}");
    assert!(!said.contains("too short") && !said.contains("2.20x to 2.20x"), "{said}");
    let [weir, rival] = pair;
    let said = text(&[Row { too_short: true, ..weir }, Row { bounded: false, ..rival }]);
    for word in ["holds load 0.88 (run too short)", "at least 16", "were too short for their loads"]
    {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    let given = Row { too_short: true, ..row("weir", "all", 1.3, 0.9) };
    assert!(text(&[given]).contains("were too short for their loads"));
}

#[test]
fn rows_alone_make_a_page() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a.json", &json!({"rows": rows()}));
    let (html, written) = page_of(folder.path());
    parse(&html);
    assert!(written.sections >= 4, "{written:?}");
}

/// The text of the page of these files, in this order, each a minute newer than the one before; and as many pictures as files.
fn text_of(files: &[(&str, serde_json::Value)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (minute, (name, value)) in (0..).zip(files) {
        put(folder.path(), name, value);
        let file = fs::File::options().write(true).open(folder.path().join(name)).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + 60 * minute);
        file.set_modified(written).unwrap();
    }
    let (html, written) = page_of(folder.path());
    let plots = fs::read_dir(folder.path().join("out/plots")).unwrap().count();
    assert_eq!(plots, written.pictures, "two pictures of one name");
    let document = parse(&html);
    let headings = document.descendants().filter(|node| node.has_tag_name("section"));
    for section in headings {
        let parts = section.children().filter(|node| node.has_tag_name("h3"));
        let parts: Vec<&str> = parts.filter_map(|node| node.text()).collect();
        let different: std::collections::HashSet<&&str> = parts.iter().collect();
        assert_eq!(different.len(), parts.len(), "{parts:?}");
    }
    let texts = document.descendants().filter(|node| node.is_text());
    texts.filter_map(|node| node.text()).collect()
}

/// Two policies at two loads.
fn pair(change: impl Fn(Row) -> Row, weir: f64) -> serde_json::Value {
    let of = |policy: &str, attainment| {
        [1.0, 1.3].map(|load| change(row(policy, "interactive", load, attainment)))
    };
    let rows = [of("weir", weir), of("push-it", 0.111)].concat();
    json!({"rows": rows})
}

#[test]
fn runs_of_one_name_that_are_of_other_traffic_objectives_or_pods_are_all_told() {
    let of = |traffic: &str, objectives: &str, pods: &str| {
        let fingerprints = Fingerprints {
            traffic: traffic.to_owned(),
            objectives: objectives.to_owned(),
            pods: pods.to_owned(),
        };
        move |row: Row| Row { fingerprints: fingerprints.clone(), ..row }
    };
    let text = text_of(&[
        ("a/prod.json", pair(of("0a", "1", "1"), 0.901)),
        ("b/prod.json", pair(of("0b", "1", "1"), 0.802)),
        ("b/slo.json", pair(of("0a", "2", "1"), 0.703)),
        ("b/pool.json", pair(of("0a", "1", "2"), 0.604)),
        ("b/gpu.json", pair(|row| Row { gpu: "a100".to_owned(), ..row }, 0.505)),
        ("older.json", pair(|row| row, 0.406)),
    ]);
    for said in ["90.1 %", "80.2 %", "70.3 %", "60.4 %", "50.5 %", "40.6 %"] {
        assert!(text.contains(said), "{said} is not in: {text}");
    }
    for said in ["traffic 0b", "objectives 2", "pods 2", "a100", "traffic not told"] {
        assert!(text.contains(said), "{said} is not in: {text}");
    }
    assert!(!text.contains("Superseded"), "{text}");
}

#[test]
fn of_two_runs_the_one_with_more_requests_counts_as_a_whole() {
    let run = |all: (usize, f64), interactive: (usize, f64)| {
        let of = |class: &str, (requests, attainment)| Row {
            requests,
            ..row("weir", class, 1.0, attainment)
        };
        json!({"rows": [of("all", all), of("interactive", interactive)]})
    };
    let more = run((1000, 0.911), (600, 0.922));
    let fewer = run((900, 0.833), (700, 0.844));
    for files in [[("a.json", &more), ("b.json", &fewer)], [("a.json", &fewer), ("b.json", &more)]]
    {
        let text = text_of(&files.map(|(name, value)| (name, value.clone())));
        assert!(text.contains("91.1 %") && text.contains("92.2 %"), "{text}");
        assert!(!text.contains("83.3 %") && !text.contains("84.4 %"), "{text}");
        let said = if files[0].1 == &more {
            "1 run of b.json by a.json"
        } else {
            "1 run of a.json by b.json"
        };
        assert!(text.contains(said), "{said} is not in: {text}");
    }
    let same = [("b.json", pair(|row| row, 0.701)), ("a.json", pair(|row| row, 0.802))];
    let text = text_of(&same);
    assert!(text.contains("80.2 %") && !text.contains("70.1 %"), "the newer one: {text}");
    assert!(text.contains("4 runs of b.json by a.json"), "{text}");
}

#[test]
fn series_and_limits_of_more_requests_count_and_other_predictions_are_not_the_same() {
    let line = |requests: usize, attainment: f64, prediction: &str| {
        json!({"workload": "made_up", "mix": "one", "gpu": "h100", "pods": 4, "chunk_tokens": 8192, "load": 1.0,
            "prediction": prediction, "policy": "weir", "seeds": 2, "requests": requests, "attainment": attainment,
            "attainment_limit": 0.96})
    };
    let of = |requests: usize, slow: f32, prediction: &str| Series {
        requests,
        prediction: prediction.to_owned(),
        ..series("weir", slow)
    };
    let file = |requests: usize, attainment: f64, slow: f32| {
        json!({"rows": [line(requests, attainment, "oracle"), line(requests, attainment / 2.0, "fitted")],
            "series": [of(requests, slow, "oracle"), of(requests, 2.0 * slow, "fitted")]})
    };
    let text = text_of(&[("a.json", file(100, 0.5, 3.0)), ("b.json", file(200, 0.9, 7.0))]);
    for said in [
        "serves 90.0 % in time",
        "serves 45.0 % in time",
        "predictions fitted",
        "weir 357 ms and 700 ms",
        "weir 714 ms and 1.4 s",
        "4 runs of a.json by b.json",
    ] {
        assert!(text.contains(said), "{said} is not in: {text}");
    }
    assert!(!text.contains("serves 50.0 %") && !text.contains("153 ms"), "{text}");
}

#[test]
fn settings_whose_names_are_alike_as_files_keep_their_pictures() {
    let named = |name: &'static str| move |row: Row| Row { workload: name.to_owned(), ..row };
    let at = |load, seed| Series { load, seed, ..series("weir", 2.0) };
    text_of(&[
        ("a.json", pair(named("\u{65e5}"), 0.9)),
        ("b.json", pair(named("\u{672c}"), 0.8)),
        ("c.json", pair(named("A b"), 0.7)),
        ("d.json", pair(named("a-B"), 0.6)),
        ("long.json", json!({"rows": [Row { workload: "x".repeat(400), ..highest("weir", 0.5) }]})),
        ("s.json", json!({"series": [at(1.001, 1), at(1.002, 1), at(1.001, 2)]})),
    ]);
}
