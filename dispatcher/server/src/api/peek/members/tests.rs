use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn by_serde(body: &[u8]) -> Option<Fields<'_>> {
    let object = body.trim_ascii_start().first() == Some(&b'{');
    object.then(|| serde_json::from_slice(body).ok()).flatten()
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        any::<String>(),
        Just("\"\\\u{7f}\u{1}\n".to_owned()),
        // Longer than what is looked at together, with escapes close to each other and far.
        "([a-z ]{0,90}[\"\\\\\n\t\u{1}]{1,3}){0,6}",
    ]
}

fn keys() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 9] =
        ["model", "stream", "n", "messages", "max_tokens", "priority", "prompt", "input", "tools"];
    prop_oneof![proptest::sample::select(&KNOWN[..]).prop_map(str::to_owned), texts()]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts().prop_map(Value::from),
        proptest::collection::vec(any::<u16>(), 0..60).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((keys(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// An object as a program writes it, with spaces as Python's writer puts them, and its members in any order and number.
fn bodies() -> impl Strategy<Value = String> {
    let members = proptest::collection::vec((keys(), values()), 0..8);
    (members, any::<bool>()).prop_map(|(members, spaced)| {
        let written = members.iter().map(|(key, value)| format!("{}:{value}", json!(key)));
        let separator = if spaced { " , " } else { "," };
        let body = format!("{{{}}}", written.collect::<Vec<_>>().join(separator));
        if spaced { format!(" {body} ") } else { body }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_believed_serde_reads_the_same(body in bodies()) {
        if let Some(fields) = read(body.as_bytes()) {
            prop_assert_eq!(Some(fields), by_serde(body.as_bytes()), "{}", body);
        }
    }

    #[test]
    fn a_body_with_a_fault_is_not_believed_unless_serde_believes_it(
        body in bodies(),
        faults in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..3_u8), 1..4),
        signs in "[]{}:,\"\\\\0-9eE.+ntu -]{0,3}",
    ) {
        let mut bytes = body.into_bytes();
        for (place, byte, kind) in faults {
            let at = place.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match kind {
                0 if !bytes.is_empty() => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                _ => drop(bytes.splice(at..at, signs.bytes())),
            }
        }
        if let Some(fields) = read(&bytes) {
            prop_assert_eq!(Some(fields), by_serde(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn what_programs_write_is_believed(prompt in texts(), stream in any::<bool>(), rest in values()) {
        let body = json!({
            "model": "m", "stream": stream, "max_tokens": 16, "tools": null,
            "messages": [{"role": "user", "content": prompt, "parts": []}], "extra": rest, "metadata": {},
        });
        let plain = body.to_string();
        let fields = read(plain.as_bytes());
        prop_assert!(fields.is_some(), "{}", plain);
        prop_assert_eq!(fields, by_serde(plain.as_bytes()));
    }
}

#[test]
fn what_is_left_to_serde() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    for body in [
        "",
        "{",
        "{}",
        "[]",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{\"mod\\u0065l\":1}",
        "{\"n\":1,\"n\":1}",
        "{\"n\":null,\"n\":1}",
        "{\"n\":1,\"n\":null}",
        "{\"n\":01}",
        "{\"n\":1.}",
        "{\"n\":1e}",
        "{\"n\":-}",
        "{\"n\":truex}",
        "{\"n\":[1,]}",
        "{\"n\":[1}",
        "{\"n\":{\"a\"}}",
        "{\"n\":{}]}",
        "{\"n\":[}}",
        "{\"n\":\"\\x\"}",
        "{\"n\":\"\\u00g0\"}",
        "{\"n\":\"",
        "{\n\"n\":1}",
        &deep,
    ] {
        assert_eq!(read(body.as_bytes()), None, "{body}");
    }
    assert_eq!(read(b"{\"a\":\"\xff\"}"), None);
    let priority = read(b"{\"priority\":null,\"stream\":null}").unwrap();
    assert_eq!((priority.priority, priority.stream), (Some(Raw("null")), None));
}

#[test]
fn tools_that_come_again_are_read_as_the_first_time() {
    let tools = format!(r#"[{{"name":"a","description":"{}"}}]"#, "what it does ".repeat(200));
    let broken = tools.replacen("a\"", "a\u{1}\"", 1);
    for _ in 0..3 {
        for rest in ["", r#","n":1"#, r#","functions":[]"#] {
            let body = format!(r#"{{"tools":{tools}{rest}}}"#);
            let fields = read(body.as_bytes());
            assert_eq!(fields.as_ref().unwrap().tools, Some(Raw(&tools)));
            assert_eq!(fields, by_serde(body.as_bytes()));
        }
        for rest in ["]", "1", ",", r#","tools":1"#, r#" "n":1"#] {
            let body = format!(r#"{{"tools":{tools}{rest}}}"#);
            assert_eq!(read(body.as_bytes()), None, "{rest}");
        }
        assert_eq!(read(format!(r#"{{"tools":{broken}}}"#).as_bytes()), None);
    }
}

/// An escape, and the quote that ends the string, wherever they lie in what is looked at together.
#[test]
fn an_escape_is_one_wherever_it_stands() {
    for (before, between) in
        (0..70).flat_map(|before| (0..70).map(move |between| (before, between)))
    {
        for escapes in ["\\", "\"", "\u{1}", "\n\n", "\\\""] {
            let (first, second) = ("x".repeat(before), "y".repeat(between));
            let prompt = format!("\n{first}{escapes}{second}{escapes}");
            let body = json!({"prompt": prompt, "stream": true}).to_string();
            let fields = read(body.as_bytes());
            assert!(fields.is_some() && fields == by_serde(body.as_bytes()), "{body}");
        }
        let faulty =
            format!("{{\"prompt\":\"\\n{}\\x{}\"}}", "x".repeat(before), "y".repeat(between));
        assert_eq!(read(faulty.as_bytes()), None, "{faulty}");
    }
}

/// What looks at many bytes at a time must miss none of them.
#[test]
fn one_wrong_byte_anywhere_in_a_long_body_is_noticed() {
    let repeated = ["plain words, ", "\u{4e09}\u{5343}\u{5b57}", "\u{e9}t\u{e9} \u{1f680}"];
    // A line break and a quotation, and nothing after them that a backslash may stand before.
    let once = ["\n", "\""].map(|escape| format!("{escape}{}", "XYZ, ".repeat(60)));
    for text in repeated.map(|text| text.repeat(40)).iter().chain(&once) {
        let body = json!({"model": "m", "messages": [text]}).to_string();
        let fields = read(body.as_bytes());
        assert!(fields.is_some() && fields == by_serde(body.as_bytes()), "{body}");
        // Behind the first escape, if there is one.
        for at in 29..body.len() - 4 {
            for wrong in [0xff, 0xc0, b'\n', 0] {
                let mut bytes = body.clone().into_bytes();
                bytes[at] = wrong;
                assert_eq!(read(&bytes), None, "{wrong} at {at}");
            }
        }
    }
}

/// Every byte of a long array of tokens replaced by others, and others put before it.
#[test]
fn whole_numbers_are_whole_wherever_they_stand() {
    let tokens: Vec<u32> = (0..25).map(|token| token * 7919 % 100_000).collect();
    for separator in [",", ", ", " ,", ",  "] {
        let written: Vec<_> = tokens.iter().map(u32::to_string).collect();
        let body = format!(r#"{{"prompt":[{}],"n":1}}"#, written.join(separator));
        assert!(read(body.as_bytes()).is_some(), "{body}");
        for (at, sign) in (0..body.len()).flat_map(|at| b"0,7 ]-.xe".map(|sign| (at, sign))) {
            for end in [at, at + 1] {
                let mut bytes = body.clone().into_bytes();
                bytes.splice(at..end, [sign]);
                let fields = read(&bytes);
                let said = String::from_utf8_lossy(&bytes);
                assert!(fields.is_none() || fields == by_serde(&bytes), "{said}");
            }
        }
    }
}

#[test]
fn behind_the_last_comma_of_an_array_there_is_a_value() {
    for written in (1..100).map(|count| "7,".repeat(count)) {
        for end in ["", "7", "70", " 7", ",7", "]", "x"] {
            let body = format!(r#"{{"prompt":[{written}{end}]}}"#);
            let sound = matches!(end, "7" | "70" | " 7");
            let fields = read(body.as_bytes());
            assert_eq!(fields.is_some(), sound, "{body}");
            assert_eq!(fields, by_serde(body.as_bytes()));
        }
    }
}

/// Every byte of a text in which all letters are escaped by number, wherever that begins.
#[test]
fn an_escape_by_number_has_all_of_its_digits() {
    for before in (0..64).step_by(7) {
        let escapes = r"\u8bf7\uD83D\uDe00\u000a".repeat(5);
        let body = format!(r#"{{"prompt":"{}{escapes}"}}"#, "x".repeat(before));
        assert!(read(body.as_bytes()).is_some(), "{body}");
        for (at, sign) in (12..body.len()).flat_map(|at| b"gu\\\"0".map(|sign| (at, sign))) {
            let mut bytes = body.clone().into_bytes();
            bytes.splice(at..=at, [sign]);
            let fields = read(&bytes);
            let said = String::from_utf8_lossy(&bytes);
            assert!(fields.is_none() || fields == by_serde(&bytes), "{said}");
        }
    }
}
