use weir_core::prefix::BLOCK_BYTES;

use super::{attached::SHORTEST as SHORTEST_ATTACHMENT, *};

fn chat(body: &str) -> Peek<'_> {
    peek(Endpoint::Chat, body.as_bytes()).unwrap()
}

fn with_model(fields: &str) -> String {
    format!(r#"{{"model":"m",{fields}}}"#)
}

/// Facts of a body that differs in `fields` only.
fn limits(endpoint: Endpoint, fields: &str) -> (Option<u32>, u32) {
    let body = with_model(fields);
    let facts = peek(endpoint, body.as_bytes()).unwrap();
    (facts.max_output_tokens, facts.sequences)
}

fn prompt_of(endpoint: Endpoint, fields: &str) -> (PromptSize, u32) {
    let body = with_model(fields);
    let facts = peek(endpoint, body.as_bytes()).unwrap();
    (facts.prompt, facts.sequences)
}

#[test]
fn the_facts_of_a_plain_chat_are_read() {
    let facts = chat(
        r#" {"model": "qwen3-32b", "stream": true, "max_tokens": 64, "n": 2, "service_tier": "flex",
            "temperature": 0.7, "messages": [{"role": "user", "content": "hi"}], "priority": -9} "#,
    );
    assert_eq!(facts.model.as_deref(), Some("qwen3-32b"));
    assert!(facts.streamed);
    let messages = r#"[{"role": "user", "content": "hi"}]"#;
    assert_eq!(facts.prompt, PromptSize::Bytes(messages.len() as u32));
    assert_eq!((facts.max_output_tokens, facts.sequences), (Some(64), 2));
    assert_eq!(facts.service_tier.as_deref(), Some("flex"));
}

#[test]
fn absent_and_null_fields_mean_the_same() {
    let nothing = r#""stream":null,"max_tokens":null,"max_completion_tokens":null,"n":null,
        "service_tier":null,"messages":null,"tools":null"#;
    for body in [with_model(nothing), r#"{"model":"m"}"#.to_owned()] {
        let facts = chat(&body);
        assert!(!facts.streamed);
        assert_eq!((facts.max_output_tokens, facts.sequences), (None, 1));
        assert_eq!((facts.prompt, facts.service_tier), (PromptSize::Bytes(0), None));
    }
}

#[test]
fn a_key_that_is_read_may_not_be_given_twice() {
    let keys =
        ["model", "stream", "max_tokens", "n", "messages", "prompt", "input", "service_tier"];
    for key in keys {
        for value in ["\"a\"", "null"] {
            let body = with_model(&format!("{key:?}:{value},{key:?}:\"b\""));
            let refusal = peek(Endpoint::Chat, body.as_bytes()).unwrap_err();
            assert!(refusal.to_string().contains("duplicate field"), "{key}: {refusal}");
        }
    }
    let hidden = r#"{"model":"a","mo\u0064el":"b"}"#;
    assert!(matches!(peek(Endpoint::Chat, hidden.as_bytes()), Err(Unreadable::Json(_))));
    let unread = with_model(r#""temperature":1,"temperature":2"#);
    assert!(peek(Endpoint::Chat, unread.as_bytes()).is_ok());
}

#[test]
fn numbers_that_an_engine_takes_or_refuses_are_never_refused_here() {
    let most = Some(MOST_OUTPUT_TOKENS);
    let cases = [
        ("16", Some(16)),
        ("16.0", Some(16)),
        ("\"16\"", Some(16)),
        ("1e2", Some(100)),
        ("0", Some(0)),
        ("null", None),
        ("-1", None),
        ("\"many\"", None),
        ("true", None),
        ("[16]", None),
        ("{}", None),
        ("\"NaN\"", None),
        ("\"inf\"", None),
        ("1e18", most),
        ("1e400", None),
        ("99999999999999999999999999", most),
    ];
    for (value, expected) in cases {
        let found = limits(Endpoint::Chat, &format!(r#""max_tokens":{value}"#)).0;
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn each_endpoint_has_its_own_bound_on_output() {
    let all = r#""max_tokens":1,"max_completion_tokens":2,"max_output_tokens":3"#;
    assert_eq!(limits(Endpoint::Chat, all).0, Some(2));
    assert_eq!(limits(Endpoint::Chat, r#""max_tokens":1"#).0, Some(1));
    assert_eq!(limits(Endpoint::Completions, all).0, Some(1));
    assert_eq!(limits(Endpoint::Responses, all).0, Some(3));
    assert_eq!(limits(Endpoint::Pooling, all).0, Some(0));
}

#[test]
fn copies_multiply_sequences_and_are_clamped() {
    for (fields, expected) in [
        (r#""n":3"#, 3),
        (r#""n":0"#, 1),
        (r#""n":-4"#, 1),
        (r#""n":1000000"#, MOST_SEQUENCES),
        (r#""n":1e300"#, MOST_SEQUENCES),
        (r#""n":2,"best_of":8,"prompt":"a""#, 8),
        (r#""n":2,"best_of":8,"prompt":["a","b","c"]"#, 24),
    ] {
        assert_eq!(limits(Endpoint::Completions, fields).1, expected, "{fields}");
    }
    assert_eq!(limits(Endpoint::Chat, r#""n":2,"best_of":8"#).1, 2);
}

#[test]
fn a_prompt_is_a_string_or_an_array_of_strings_tokens_or_arrays_of_tokens() {
    use PromptSize::{Bytes, Tokens};
    let cases = [
        (r#""hello""#, Bytes(7), 1),
        (r#"["a,b","c]","d"]"#, Bytes(16), 3),
        ("[ 1, 2, 3 ]", Tokens(3), 1),
        ("[7]", Tokens(1), 1),
        ("[-1,5]", Tokens(2), 1),
        ("[[1,2],[3,4,5]]", Tokens(5), 2),
        ("[ [1] ]", Tokens(1), 1),
        ("[]", Bytes(2), 1),
        (r#"[["a","b"]]"#, Bytes(11), 1),
        (r#"[{"x":[1,2]},{}]"#, Bytes(16), 2),
        ("null", Bytes(0), 1),
        ("12", Bytes(2), 1),
    ];
    for (value, size, sequences) in cases {
        let found = prompt_of(Endpoint::Completions, &format!("\"prompt\":{value}"));
        assert_eq!(found, (size, sequences), "{value}");
        // All of it is to be computed, but nothing of it decodes.
        let found = prompt_of(Endpoint::Pooling, &format!("\"input\":{value}"));
        assert_eq!(found, (size, 1), "{value}");
    }
}

#[test]
fn what_an_engine_puts_before_the_messages_counts_as_prompt() {
    let fields = r#""tools":[{"a":1}],"messages":["hi"],"input":"not here""#;
    assert_eq!(prompt_of(Endpoint::Chat, fields).0, PromptSize::Bytes(9 + 6));
    let fields = r#""instructions":"be brief","input":[{"b":2}],"messages":["not here"]"#;
    assert_eq!(prompt_of(Endpoint::Responses, fields).0, PromptSize::Bytes(10 + 9));
}

#[test]
fn a_message_is_its_tools_its_system_and_its_messages() {
    let fields = r#""tools":[{"a":1}],"system":"be brief","messages":["hi"],"max_tokens":7"#;
    let body = with_model(fields);
    let facts = peek(Endpoint::Messages, body.as_bytes()).unwrap();
    assert_eq!(facts.prompt, PromptSize::Bytes(9 + 10 + 6));
    assert_eq!((facts.max_output_tokens, facts.sequences), (Some(7), 1));
}

#[test]
fn an_agents_line_about_itself_does_not_make_two_prompts_of_one() {
    let blocks = |line: &str, rule: &str| {
        let (line, rule) = (format!(r#"{{"type":"text","text":"{line}"}}"#), rule.repeat(64));
        let system = format!(r#"[{line},{{"type":"text","text":"{rule}"}}]"#);
        let body = with_model(&format!(r#""system":{system},"messages":["hi"]"#));
        peek(Endpoint::Messages, body.as_bytes()).unwrap().named_as("m").0
    };
    let of = |number: u32| format!("x-anthropic-billing-header: cc_version=2.1; cch={number};");
    assert_eq!(blocks(&of(1), "be brief"), blocks(&of(2), "be brief"));
    assert_ne!(blocks(&of(1), "be brief"), blocks(&of(1), "be quick"));
    assert_ne!(blocks("one", "be brief"), blocks("two", "be brief"));
}

#[test]
fn a_text_is_computed_beside_each_that_it_is_compared_with() {
    let size = |fields: &str| prompt_of(Endpoint::Scores, fields);
    let documents = r#"["a","bc","def"]"#;
    for (one, others) in [
        ("query", "documents"),
        ("queries", "documents"),
        ("queries", "items"),
        ("text_1", "text_2"),
        ("data_1", "data_2"),
    ] {
        let fields = format!(r#""{one}":"what","{others}":{documents},"top_n":1,"stream":true"#);
        assert_eq!(size(&fields), (PromptSize::Bytes(3 * 6 + 16), 1), "{fields}");
    }
    let pairs = format!(r#""text_1":["x","y","z"],"text_2":{documents}"#);
    assert_eq!(size(&pairs).0, PromptSize::Bytes(13 + 16), "each with its own");
    assert_eq!(size(r#""query":"what""#).0, PromptSize::Bytes(6), "the engine refuses it");
}

#[test]
fn what_generates_nothing_streams_nothing_and_what_counts_tokens_computes_none() {
    let body = with_model(r#""stream":true,"prompt":"a long one","messages":["a longer one"]"#);
    for endpoint in [Endpoint::Pooling, Endpoint::Scores, Endpoint::Tokens] {
        let facts = peek(endpoint, body.as_bytes()).unwrap();
        assert_eq!((facts.streamed, facts.max_output_tokens), (false, Some(0)), "{endpoint:?}");
    }
    let facts = peek(Endpoint::Tokens, body.as_bytes()).unwrap();
    assert_eq!((facts.prompt, facts.named_as("m").0.len()), (PromptSize::Tokens(1), 0));
    assert_eq!(prompt_of(Endpoint::Pooling, r#""messages":["hi"]"#).0, PromptSize::Bytes(6));
}

#[test]
fn what_goes_on_as_tokens_has_its_bounds_in_an_object_of_its_own() {
    let fields = r#""token_ids":[1,22,333],"sampling_params":{"max_tokens":7,"n":2,"stop":[]}"#;
    assert_eq!(prompt_of(Endpoint::Generate, fields), (PromptSize::Tokens(3), 2));
    assert_eq!(limits(Endpoint::Generate, fields), (Some(7), 2));
    for none in [r#""token_ids":[1]"#, r#""token_ids":[1],"max_tokens":9,"sampling_params":[]"#] {
        assert_eq!(limits(Endpoint::Generate, none), (None, 1), "{none}");
    }
}

#[test]
fn chats_in_one_request_decode_side_by_side() {
    let chats = r#"[[{"content":"a"}],[{"content":"b"},{"content":"c"}],[]]"#;
    let fields = format!(r#""messages":{chats},"n":2,"max_tokens":5"#);
    assert_eq!(limits(Endpoint::Chats, &fields), (Some(5), 6));
    assert_eq!(prompt_of(Endpoint::Chats, &fields).0, PromptSize::Bytes(chats.len() as u32));
    let texts = prompt_of(Endpoint::Pooling, r#""texts":["hi","ho"],"max_tokens":9"#);
    assert_eq!(texts, (PromptSize::Bytes(11), 1));
    assert_eq!(prompt_of(Endpoint::Pooling, r#""inputs":[{}]"#).0, PromptSize::Bytes(4));
}

#[test]
fn a_recording_comes_in_a_form() {
    let form = |fields: &[(&str, &str)]| {
        let field = |(name, value): &(&str, &str)| {
            format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        fields.iter().map(field).collect::<String>() + "--b--\r\n"
    };
    let body = form(&[("file", "RIFF"), ("model", "whisper"), ("stream", "True")]);
    let facts = peek(Endpoint::Audio, body.as_bytes()).unwrap();
    let model = facts.model.as_deref();
    assert_eq!((model, facts.streamed, facts.sequences), (Some("whisper"), true, 1));
    assert_eq!(facts.prompt, PromptSize::Tokens(AUDIO_TOKENS));
    let nameless = form(&[("file", "RIFF")]);
    assert_eq!(peek(Endpoint::Audio, nameless.as_bytes()).unwrap().model, None);
    let json = with_model(r#""file":"RIFF""#);
    assert_eq!(peek(Endpoint::Audio, json.as_bytes()).unwrap_err(), Unreadable::Form);
}

#[test]
fn streams_are_asked_for_in_every_way_an_engine_takes() {
    for yes in ["true", "\"true\"", "1", "1.0", "\"on\"", "\"Yes\""] {
        assert!(chat(&with_model(&format!("\"stream\":{yes}"))).streamed, "{yes}");
    }
    for no in ["false", "null", "0", "\"false\"", "\"\"", "2", "{}", "[true]"] {
        assert!(!chat(&with_model(&format!("\"stream\":{no}"))).streamed, "{no}");
    }
}

#[test]
fn escaped_keys_and_values_are_understood() {
    let model = chat(r#"{"mo\u0064el":"qwen\u0033-\u00e9\ud83d\ude00"}"#).model;
    assert_eq!(model.as_deref(), Some("qwen3-é😀"));
    assert!(chat(r#"{"model":"m","str\u0065am":true}"#).streamed);
}

#[test]
fn a_model_that_is_no_string_is_refused_and_an_empty_one_is_none() {
    for body in ["{}", r#"{"model":null}"#, r#"{"model":""}"#, r#"{"messages":[],"model":""}"#] {
        assert_eq!(chat(body).model, None, "{body}");
    }
    for body in [r#"{"model":5}"#, r#"{"model":["m"]}"#, r#"{"model":"\ud800"}"#] {
        assert_eq!(
            peek(Endpoint::Chat, body.as_bytes()).unwrap_err(),
            Unreadable::OddModel,
            "{body}"
        );
    }
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    let positional = format!(r#"["m"{}]"#, ",null".repeat(27));
    assert!(matches!(peek(Endpoint::Chat, positional.as_bytes()), Err(Unreadable::Json(_))));
    let bodies: [&[u8]; 11] = [
        b"",
        b"   ",
        b"null",
        b"[\"m\",true]",
        b"\"m\"",
        b"{\"model\":\"m\"",
        b"{\"model\":\"m\"}}",
        b"{\"model\":\"m\"} {}",
        b"{\"model\":\"m\",}",
        b"{'model':'m'}",
        b"{\"model\":\"m\",\"messages\":\"\xff\xfe\"}",
    ];
    for body in bodies {
        let refusal = peek(Endpoint::Chat, body);
        assert!(matches!(refusal, Err(Unreadable::Json(_))), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn lone_surrogates_in_the_prompt_and_a_byte_order_mark_pass() {
    let body = "\u{feff}{\"model\":\"m\",\"messages\":\"\\ud800\"}";
    assert_eq!(chat(body).prompt, PromptSize::Bytes(8));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let depth = 200_000;
    let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for key in
        ["messages", "prompt", "input", "metadata", "max_tokens", "stream", "n", "service_tier"]
    {
        let body = with_model(&format!("{key:?}:{nested}"));
        for endpoint in [Endpoint::Chat, Endpoint::Completions, Endpoint::Responses] {
            assert!(peek(endpoint, body.as_bytes()).is_ok(), "{key}");
        }
    }
    let model = format!(r#"{{"model":{nested}}}"#);
    assert_eq!(peek(Endpoint::Chat, model.as_bytes()).unwrap_err(), Unreadable::OddModel);
}

#[test]
fn the_content_of_data_uris_is_not_text() {
    let size = |url: &str| {
        let fields = format!(r#""messages":[{{"image_url":["{url}"]}},"after"]"#);
        match prompt_of(Endpoint::Chat, &fields).0 {
            PromptSize::Bytes(bytes) => bytes as usize,
            PromptSize::Tokens(_) => unreachable!(),
        }
    };
    let around = size("");
    let head = "data:image/png;base64,";
    assert_eq!(size(&format!("{head}{}", "A".repeat(100_000))), around + head.len() + 8);
    let php = r"data:image\/png;base64,";
    assert_eq!(size(&format!("{php}{}", r"AAA\/AAAA".repeat(1000))), around + php.len() + 8);
    let two = format!("{head}{0}\",\"{head}{0}", "A".repeat(5000));
    assert_eq!(size(&two), around + 2 * (head.len() + 8) + 3);
    assert_eq!(size("the word ;base64, alone"), around + 23);
    let prose = format!("{head}AAAA and words after it");
    assert_eq!(size(&prose), around + prose.len() - 4 + 8);
}

/// Bytes of text in the content of a message.
fn text_of(part: &str) -> usize {
    let fields = format!(r#""messages":[{{"role":"user","content":[{part}]}}]"#);
    match prompt_of(Endpoint::Chat, &fields).0 {
        PromptSize::Bytes(bytes) => bytes as usize,
        PromptSize::Tokens(_) => unreachable!(),
    }
}

#[test]
fn an_attachment_that_stands_alone_is_not_text() {
    let sound = "UklGRiSAAABXQVZFZm10+/A=".repeat(40_000);
    for (before, after) in [
        (r#"{"type":"input_audio","input_audio":{"data":""#, r#"","format":"wav"}}"#),
        (r#"{"input_audio": {"format": "wav", "data" : ""#, r#""}}, {"text":"and words"}"#),
        (r#"{"type":"image_embeds","image_embeds":{"image_embeds":""#, r#""}}"#),
    ] {
        for sound in [&*sound, &sound.replace('/', r"\/"), &sound[..SHORTEST_ATTACHMENT]] {
            let (part, none) = (format!("{before}{sound}{after}"), format!("{before}{after}"));
            assert_eq!(text_of(&part), text_of(&none) + 8, "{none}, {}", sound.len());
        }
        let two = format!("{before}{sound}{after},{before}{}{after}", &sound[4..]);
        assert_eq!(text_of(&two), text_of(&format!("{before}{after},{before}{after}")) + 16);
    }
    let uri = format!(r#"{{"url":"data:audio/wav;base64,{sound}"}},{{"data":"{sound}"}}"#);
    assert_eq!(text_of(&uri), text_of("") + uri.len() - 2 * sound.len() + 16);
}

#[test]
fn long_words_of_text_are_text() {
    let word = "Pneumonoultramicroscopic+".repeat(400);
    let whole = |part: String| assert_eq!(text_of(&part), text_of("") + part.len(), "{part:.40}");
    for key in ["text", "content", "arguments", "input", "output"] {
        whole(format!(r#"{{"{key}":"{word}"}}"#));
    }
    // An element of a list; inside a text; with another letter in it; too short.
    whole(format!(r#""{word}""#));
    whole(format!(r#"{{"text":"{{\"data\":\"{word}\"}}"}}"#));
    whole(format!(r#"{{"name":"{word} {word}"}}"#));
    whole(format!(r#"{{"name":"{word}.{word}"}}"#));
    whole(format!(r#"{{"name":"{word}\n{word}"}}"#));
    whole(format!(r#"{{"name":"{}"}}"#, &word[..SHORTEST_ATTACHMENT - 1]));
    for (endpoint, key) in [(Endpoint::Completions, "prompt"), (Endpoint::Pooling, "input")] {
        let text = format!("\"{word}\"");
        let found = prompt_of(endpoint, &format!("\"{key}\":{text}")).0;
        assert_eq!(found, PromptSize::Bytes(text.len() as u32));
    }
}

#[test]
fn an_attachment_is_found_wherever_it_stands() {
    let sound = "x".repeat(SHORTEST_ATTACHMENT + 3);
    let data = format!(r#"{{"data":"{sound}"}}"#);
    for words in 0..300 {
        let text = format!(r#"{{"text":"{}"}}"#, "words 7 ".repeat(words));
        let part = format!("{text},{data},{text},{data}");
        let rest = part.len() - 2 * (sound.len() - 8);
        assert_eq!(text_of(&part), text_of("") + rest, "{words}");
    }
}

#[test]
fn prompts_that_differ_in_what_they_attach_differ_in_their_blocks() {
    let blocks = |letter: &str| {
        let (sound, tail) = (letter.repeat(5000), "t ".repeat(100));
        let content = format!(r#"[{{"input_audio":{{"data":"{sound}"}}}},{{"text":"{tail}"}}]"#);
        chat(&with_model(&format!(r#""messages":[{{"content":{content}}}]"#))).named_as("m").0
    };
    assert_eq!(blocks("AA"), blocks("AA"));
    assert_ne!(blocks("AA"), blocks("AB"));
}

#[test]
fn blocks_are_named_by_model_salt_and_content() {
    let blocks = |fields: &str, model: &str| chat(&with_model(fields)).named_as(model).0;
    let turn = "a conversation that goes on for long enough to fill some blocks ".repeat(4);
    let short = blocks(&format!(r#""messages":["{turn}"]"#), "m");
    let long = blocks(&format!(r#""messages":["{turn}","{turn}"]"#), "m");
    assert_eq!(short.len(), (turn.len() + 4) / BLOCK_BYTES);
    assert_eq!(long[..short.len()], short[..], "a longer conversation begins like the shorter");
    assert!(long.len() > short.len());
    assert_ne!(blocks(&format!(r#""messages":["{turn}"]"#), "other"), short);
    assert_ne!(blocks(&format!(r#""messages":["{turn}"],"cache_salt":"x""#), "m"), short);
}

#[test]
fn prompts_that_differ_in_an_image_differ_in_their_blocks() {
    let blocks = |image: &str| {
        let tail = "t".repeat(200);
        chat(&with_model(&format!(r#""messages":["data:image/png;base64,{image}","{tail}"]"#)))
            .named_as("m")
            .0
    };
    assert_eq!(blocks("AAAA"), blocks("AAAA"));
    assert_ne!(blocks("AAAA"), blocks("AAAB"));
}

#[test]
fn the_names_of_a_giant_prompt_are_bounded() {
    let body = with_model(&format!(r#""messages":["{}"]"#, "x".repeat(MOST_NAMED_BYTES * 2)));
    assert_eq!(chat(&body).named_as("m").0.len(), MOST_NAMED_BYTES / BLOCK_BYTES);
}

/// The body of a model with these members, without the bytes of its priority.
fn without_priority(body: &str) -> Option<String> {
    let range = peek(Endpoint::Chat, body.as_bytes()).unwrap().priority?;
    let rest = [&body[..range.start], &body[range.end..]].concat();
    let json: serde_json::Value =
        serde_json::from_str(rest.trim_start_matches('\u{feff}')).unwrap();
    assert_eq!((json["model"].as_str(), json.get("priority")), (Some("m"), None), "{rest}");
    Some(rest)
}

#[test]
fn a_priority_is_found_wherever_and_however_it_is_written() {
    for (body, rest) in [
        (r#"{"model":"m","priority":-5}"#, r#"{"model":"m"}"#),
        (r#"{"priority":-5,"model":"m"}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","priority":-5,"n":1}"#, r#"{"model":"m","n":1}"#),
        ("{ \"model\":\"m\" ,\r\n\t\"priority\" :\n 1e3 }\n", "{ \"model\":\"m\"  }\n"),
        (r#"{"pri\u006frity":[{"priority":","}],"model":"m"}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","priority":null}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","priority":"\"}"}"#, r#"{"model":"m"}"#),
        ("\u{feff}{\"priority\":1,\"model\":\"m\"}", "\u{feff}{\"model\":\"m\"}"),
    ] {
        assert_eq!(without_priority(body).as_deref(), Some(rest), "{body}");
    }
}

#[test]
fn only_a_priority_of_the_body_itself_counts() {
    let body = r#"{"model":"m","messages":[{"priority":1}],"x":"\"priority\":2","Priority":3}"#;
    assert_eq!(without_priority(body), None);
    let twice = br#"{"model":"m","priority":1,"pri\u006frity":2}"#;
    assert!(matches!(peek(Endpoint::Chat, twice), Err(Unreadable::Json(_))), "read by us, so once");
}
