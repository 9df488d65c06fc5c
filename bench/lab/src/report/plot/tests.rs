//! Pictures are well-formed, and show what they were given.

use super::*;
use crate::report::palette::{RIVALS, SUBJECT};

fn look(marker: usize) -> Look {
    Look { colour: if marker == 0 { SUBJECT } else { RIVALS[marker - 1] }, marker, named: true }
}

fn line(name: &str, marker: usize, points: &[(f64, f64)]) -> Line {
    let (points, band) = (points.to_vec(), vec![0.02; points.len()]);
    Line { name: name.to_owned(), look: look(marker), points, band, marked: Marked::Each }
}

fn lines() -> Lines {
    Lines {
        name: "attainment".to_owned(),
        title: "Attainment of <interactive>".to_owned(),
        about: "\"Attainment\" & load".to_owned(),
        x: Axis::new("load", Unit::Number),
        y: Axis::share("attained"),
        lines: vec![
            line("weir", 0, &[(0.5, 1.0), (1.0, 0.9)]),
            line("a & b", 1, &[(0.5, 0.9), (1.0, 0.2)]),
            Line { look: Look::OTHER, ..line("c", 2, &[(0.5, 0.8), (1.0, 0.1)]) },
        ],
        guides: vec![Guide::Level(0.99), Guide::Upright(0.7)],
    }
}

fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    texts.filter_map(|node| node.text()).map(|text| text.trim().to_owned()).collect()
}

#[test]
fn curves_are_named_and_those_that_are_not_are_counted() {
    let picture = lines().draw().unwrap();
    let texts = texts(&picture.svg);
    for expected in ["Attainment of <interactive>", "weir", "a & b", "1 other", "100 %", "load"] {
        assert!(texts.iter().any(|text| text == expected), "{expected} in {texts:?}");
    }
    assert!(!texts.iter().any(|text| text == "c"), "{texts:?}");
}

#[test]
fn a_curve_that_is_higher_is_drawn_higher() {
    let picture = lines().draw().unwrap();
    let document = roxmltree::Document::parse(&picture.svg).unwrap();
    let last_y = |colour: Colour| {
        let hex = palette::hex(colour.light);
        let path = document.descendants().find(|node| {
            node.tag_name().name() == "polyline" && node.attribute("stroke") == Some(&hex)
        });
        let points = path.unwrap().attribute("points").unwrap().trim().to_owned();
        points.rsplit(' ').next().unwrap().split(',').nth(1).unwrap().parse::<i32>().unwrap()
    };
    assert!(last_y(SUBJECT) < last_y(RIVALS[0]));
}

#[test]
fn the_file_and_the_inline_picture_are_well_formed_and_say_what_they_show() {
    let picture = lines().draw().unwrap();
    for text in [picture.file(), picture.inline()] {
        let document = roxmltree::Document::parse(&text).unwrap();
        let root = document.root_element();
        let title = root.children().find(|node| node.tag_name().name() == "title");
        let said = root.attribute("aria-label").or(title.and_then(|node| node.text()));
        assert_eq!(said, Some("\"Attainment\" & load"));
    }
    assert!(picture.file().contains("prefers-color-scheme:dark"));
}

#[test]
fn bars_to_both_sides_have_their_values_beside_them() {
    let bar = |name: &str, value: f64| Bar {
        name: name.to_owned(),
        look: look(0),
        value,
        interval: Some(0.5),
    };
    let bars = Bars {
        name: "bars".to_owned(),
        title: "Change".to_owned(),
        about: "Change".to_owned(),
        unit: Unit::Number,
        signed: true,
        bars: vec![bar("no backfill", 1.5), bar("no demotion", -14.0)],
    };
    let texts = texts(&bars.draw().unwrap().svg);
    assert!(texts.contains(&"+1.5 ± 0.5".to_owned()), "{texts:?}");
    assert!(texts.contains(&"-14 ± 0.5".to_owned()), "{texts:?}");
}

#[test]
fn nothing_to_draw_is_an_empty_picture_and_no_error() {
    let lines = Lines { lines: Vec::new(), ..lines() };
    assert!(roxmltree::Document::parse(&lines.draw().unwrap().svg).is_ok());
    let points = Points {
        name: "p".to_owned(),
        title: "p".to_owned(),
        about: "p".to_owned(),
        x: Axis::new("x", Unit::Millis).log(),
        y: Axis::new("y", Unit::Millis).log(),
        clouds: Vec::new(),
        guides: vec![Guide::Diagonal],
        frontier: Vec::new(),
        size: 4,
        labelled: false,
    };
    assert!(roxmltree::Document::parse(&points.draw().unwrap().svg).is_ok());
}

#[test]
fn an_axis_takes_what_the_data_need() {
    let axis = Axis::new("x", Unit::Number);
    assert_eq!(axis.span([0.1, 1.0].into_iter()).0, 0.0);
    assert!(axis.span([9.0, 10.0].into_iter()).0 > 8.0);
    let (low, high) = axis.log().span([0.0, 1.0, 100.0].into_iter());
    assert!(low > 0.5 && low < 1.0 && high > 100.0, "{low} {high}");
}

#[test]
fn a_logarithmic_axis_of_less_than_a_decade_has_numbers_with_their_unit() {
    let cloud = Cloud {
        name: "weir".to_owned(),
        look: look(0),
        points: vec![(33.0, 61.0), (41.0, 64.0), (35.0, 62.0)],
    };
    let points = Points {
        name: "p".to_owned(),
        title: "p".to_owned(),
        about: "p".to_owned(),
        x: Axis::new("measured", Unit::Millis).log(),
        y: Axis::new("predicted", Unit::Millis).log(),
        clouds: vec![cloud],
        guides: vec![Guide::Diagonal],
        frontier: Vec::new(),
        size: 4,
        labelled: false,
    };
    let texts = texts(&points.draw().unwrap().svg);
    // Across 20 and 50, up 50 and 100.
    let times = |label: &str| texts.iter().filter(|text| *text == label).count();
    assert_eq!(["20 ms", "50 ms", "100 ms"].map(times), [1, 2, 1], "{texts:?}");
}

#[test]
fn a_curve_of_many_points_has_a_few_markers_apart_from_those_of_others() {
    let places = |marker| Marked::Few.places(121, marker).collect::<Vec<_>>();
    for marker in 0..6 {
        assert!((5..=7).contains(&places(marker).len()), "{:?}", places(marker));
        assert!(
            (0..marker).all(|other| places(other).iter().all(|at| !places(marker).contains(at)))
        );
    }
    let many = Line { marked: Marked::Few, ..line("weir", 0, &[(0.0, 0.5), (1.0, 0.6)]) };
    let bare = Lines { lines: vec![many], guides: Vec::new(), ..lines() };
    let svg = bare.draw().unwrap().svg;
    assert!(svg.matches("<circle").count() >= 2, "one in the legend and one on the curve: {svg}");
}
