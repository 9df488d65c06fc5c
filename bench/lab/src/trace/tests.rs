use std::io::Write;

use super::*;

fn read_text(text: &str) -> Result<Vec<Arrival>, TraceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    read(file.path(), 1)
}

fn message(text: &str) -> String {
    read_text(text).unwrap_err().to_string()
}

#[test]
fn mooncake_rows_are_spread_over_their_tick_in_order_and_keep_their_blocks() {
    let line = |at: u32, id: u32| {
        format!(
            "{{\"timestamp\":{at},\"input_length\":600,\"output_length\":5,\"hash_ids\":[0,{id}]}}\n"
        )
    };
    let text: String =
        [(0, 1), (0, 2), (0, 3), (3000, 4), (6000, 5)].map(|(at, id)| line(at, id)).concat();
    let rows = read_text(&text).unwrap();
    let ids: Vec<u64> = rows.iter().map(|row| row.prefix[1].id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    assert_eq!(rows[0].prefix[0], Segment { id: 0, tokens: 512 });
    assert!(rows[2].at_s > rows[1].at_s && rows[2].at_s < 3.0, "{rows:?}");
    assert_eq!(read_text(&text).unwrap(), rows, "the same seed gives the same times");
}

#[test]
fn an_azure_row_is_placed_by_its_time_of_day() {
    let rows = read_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5,374,44\n2023-11-17 00:00:01.0,396,0\n",
    )
    .unwrap();
    assert_eq!(rows[0].at_s, 0.0);
    assert!((rows[1].at_s - 1.5).abs() < 1e-6);
    assert_eq!((rows[1].input_tokens, rows[1].output_tokens), (396, 1));
}

#[test]
fn servegen_and_aibrix_rows_are_recognised_by_their_header() {
    let rows =
        read_text("timestamp_s,client_id,input_tokens,output_tokens\n0.5,54,441,819\n2.0,1,7,3\n");
    assert_eq!(rows.unwrap()[1].at_s, 1.5);
    let rows =
        read_text("timestamp_ms,prompt_length,output_length\n6000,178,8\n7500,210,40\n").unwrap();
    assert_eq!((rows[1].at_s, rows[1].input_tokens), (1.5, 210));
}

#[test]
fn burstgpt_rows_that_failed_are_left_out_and_the_others_spread_over_their_second() {
    let head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    let body = "7,ChatGPT,472,18,490,Conversation log\n7,GPT-4,50,0,50,API log\n7,GPT-4,60,6,66,API log\n\
                9,ChatGPT,0,0,0,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n";
    let rows = read_text(&format!("{head}{body}")).unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| (row.input_tokens, row.output_tokens)).collect();
    assert_eq!(sizes, [(472, 18), (60, 6), (1087, 230)]);
    assert!(rows[1].at_s > 0.0 && rows[1].at_s < 1.0, "{rows:?}");
    assert!((rows[2].at_s - 38.0).abs() < 1.0, "{rows:?}");
    let newer = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                 0.25,3,1.5,ChatGPT,10,5,15,Conversation log\n0.5,,1.5,GPT-4,20,5,25,API log\n";
    assert_eq!(read_text(newer).unwrap()[1].at_s, 0.25, "exact times stay as they are");
}

#[test]
fn a_file_of_lengths_gets_poisson_arrivals_in_its_order() {
    let rows: String = (1..=4000).map(|row| format!("{row}.0,{}\n", row % 7)).collect();
    let text = format!("num_prefill_tokens,num_decode_tokens\n{rows}");
    let read = read_text(&text).unwrap();
    assert!((1..).zip(&read).all(|(row, arrival)| arrival.input_tokens == row));
    assert_eq!(read[6].output_tokens, 1, "an answer has at least one token");
    let gaps: Vec<f64> = read.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let short = gaps.iter().filter(|gap| **gap < mean).count() as f64 / gaps.len() as f64;
    assert!((mean - 1.0).abs() < 0.05, "{mean}");
    assert!((short - 0.632).abs() < 0.03, "{short} of the gaps below the mean");
    assert_eq!(read_text(&text).unwrap(), read);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    assert!(!recorded(file.path(), 1).unwrap().is_timed);
    let timed = read_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n2.5,5,5\n");
    assert_eq!(timed.unwrap()[1].at_s, 2.5);
}

#[test]
fn a_file_from_another_system_may_have_a_mark_and_other_line_ends() {
    let rows = read_text(
        "\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,2162,5\r\n2024-05-10 00:00:00.509930+00:00,2399,6\r\n",
    );
    let rows = rows.unwrap();
    assert!((rows[1].at_s - 0.5).abs() < 1e-6 && rows[1].output_tokens == 6);
}

#[test]
fn a_plain_file_may_name_classes_and_prefixes() {
    let rows = read_text(
        "arrival_s,input_tokens,output_tokens,class,prefix_id\n1,100,10,batch,7\n0,200,20,,\n",
    )
    .unwrap();
    assert_eq!((rows[0].input_tokens, rows[0].class.as_deref()), (200, None), "sorted by time");
    assert_eq!(rows[1].class.as_deref(), Some("batch"));
    assert_eq!(rows[1].prefix, [Segment { id: 7, tokens: 50 }]);
    let rows =
        read_text("arrival_s,input_tokens,output_tokens,prefix_id,prefix_tokens\n1,100,10,7,80\n");
    assert_eq!(rows.unwrap()[0].prefix, [Segment { id: 7, tokens: 80 }]);
}

#[test]
fn a_column_that_is_there_twice_is_refused_by_its_name_unless_nobody_reads_it() {
    for (header, name) in [
        ("arrival_s,input_tokens,output_tokens,class,Class", "class"),
        ("arrival_s,input_tokens,input_tokens,output_tokens,class", "input_tokens"),
        ("num_prefill_tokens,num_decode_tokens,x,y,num_decode_tokens", "num_decode_tokens"),
    ] {
        let said = message(&format!("\n{header}\n0,9,9,9,9\n"));
        assert!(said.ends_with(&format!("line 2: the column {name:?} is there twice")), "{said}");
    }
    assert!(read_text("arrival_s,input_tokens,output_tokens,note,note\n0,9,9,a,b\n").is_ok());
}

#[test]
fn a_prefix_may_be_named_as_a_data_frame_writes_it() {
    let rows = read_text(
        "arrival_s,input_tokens,output_tokens,prefix_id,prefix_tokens\n0,100,10,7.0,80.0\n1,100,10,,\n",
    );
    assert_eq!(rows.unwrap()[0].prefix, [Segment { id: 7, tokens: 80 }]);
}

#[test]
fn a_prefix_may_have_any_name() {
    let rows = read_text(
        "arrival_s,input_tokens,output_tokens,prefix_id\n0,10,1,chat-v2\n1,10,1,a1f\n2,10,1,chat-v2\n3,10,1,-1\n4,10,1,7\n",
    );
    let ids: Vec<u64> = rows.unwrap().iter().map(|row| row.prefix[0].id).collect();
    assert_eq!((ids[0], ids[4]), (ids[2], 7));
    let different: std::collections::HashSet<u64> = ids.iter().copied().collect();
    assert_eq!(different.len(), 4, "{ids:?}");
}

#[test]
fn blank_lines_before_the_first_one_are_passed_over_and_counted() {
    let plain = "arrival_s,input_tokens,output_tokens\n0,10,10\n";
    for before in ["\n\n", "\r\n  \n", "\u{feff}\n\t\n"] {
        assert_eq!(read_text(&format!("{before}{plain}")).unwrap().len(), 1, "{before:?}");
        let bad = message(&format!("{before}{plain}1,ten,10\n"));
        assert!(bad.contains("line 5"), "{before:?}: {bad}");
    }
    let line = "{\"timestamp\":0,\"input_length\":6,\"output_length\":5,\"hash_ids\":[1]}\n";
    assert_eq!(read_text(&format!("\n {line}")).unwrap().len(), 1);
    assert!(message(&format!("\n{line}{{\"timestamp\":0}}\n")).contains("line 3"));
    assert!(message(" \n\n").contains("no rows"));
}

#[test]
fn the_line_of_an_error_is_that_of_an_editor() {
    let plain = "arrival_s,input_tokens,output_tokens,class\n0,10,10,a\n";
    let several_lines = "1,10,10,\"two\n\nlines\"\n";
    let bad = "2,ten,10,a\n";
    for (before, line) in [("", 3), ("\n\n", 5), (" \t\n", 4), (several_lines, 6)] {
        let text = format!("{plain}{before}{bad}");
        for text in [text.replace('\n', "\r\n"), text] {
            let said = message(&text);
            assert!(said.contains(&format!(" line {line}: \"ten\"")), "{text:?}: {said}");
        }
    }
    assert!(message(&format!("{plain}{bad}").replace('\n', "\r")).contains(" line 3:"));
    assert_eq!(read_text(&format!("{plain}\n  \n1,1,1,b\n\n \n")).unwrap().len(), 2);
}

#[test]
fn a_row_with_too_few_or_too_many_values_is_an_error_that_names_its_line() {
    let plain = "arrival_s,input_tokens,output_tokens\n0,10,10\n";
    for (row, said) in [("1,1", "line 3: 2 values"), ("1,1,10,1", "line 3: 4 values")] {
        assert!(message(&format!("{plain}{row}\n")).contains(said));
    }
}

#[test]
fn columns_may_be_separated_by_tabs_or_semicolons_and_named_in_any_case() {
    let plain = "arrival_s,input_tokens,output_tokens,class\n0,10,10,\n2,30,40,batch\n";
    let read = read_text(plain).unwrap();
    assert_eq!(read_text(&plain.replace(',', "\t")).unwrap(), read);
    assert_eq!(read_text(&plain.replace(',', ";")).unwrap(), read);
    let named = plain.replace("arrival_s,input_tokens", "Arrival_S,INPUT_TOKENS");
    assert_eq!(read_text(&named.replace("class", "Class")).unwrap(), read);
}

#[test]
fn a_time_may_be_a_date_and_none_is_of_another_unit_than_its_column() {
    let head = "arrival_s,input_tokens,output_tokens\n";
    let rows = "2024-05-10T02:00:00+02:00,1,1\n2024-05-10 00:00:01.5Z,1,1\n";
    assert_eq!(read_text(&format!("{head}{rows}")).unwrap()[1].at_s, 1.5);
    let message = message(&format!("{head}1700000000,1,1\n1700000000000,1,1\n"));
    assert!(message.contains("line 3: \"1700000000000\" is after the year 5000"), "{message}");
    let ms = "timestamp_ms,prompt_length,output_length\n1700000000000,1,1\n1700000000500,1,1\n";
    assert_eq!(read_text(ms).unwrap()[1].at_s, 0.5);
}

#[test]
fn one_time_far_from_all_others_is_an_error_that_names_its_line() {
    let rows: String = (0..40).map(|at| format!("{at},1,1\n")).collect();
    let message = message(&format!("arrival_s,input_tokens,output_tokens\n\n{rows}1e9,1,1\n"));
    assert!(message.contains("line 43: it comes 999999961 s after line 42"), "{message}");
    let row = |at| {
        format!("{{\"timestamp\":{at},\"input_length\":6,\"output_length\":5,\"hash_ids\":[]}}\n")
    };
    let rows: String = (0..40).map(|at| row(at * 1000)).chain([row(1_000_000_000)]).collect();
    assert!(self::message(&rows).contains("line 41: it comes"));
}

#[test]
fn what_is_no_text_is_said_to_be_none() {
    let said_of = |bytes: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(file.path(), 1).unwrap_err().to_string()
    };
    for (bytes, said) in [
        (&[0x1f, 0x8b, 8, 0, 0xff][..], "gunzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0], "unzstd"),
        (b"PAR1\x15", "Parquet"),
        (b"\xff\xfea\0r\0", "UTF-8"),
        (
            b"arrival_s,input_tokens,output_tokens,class\n0,1,1,a\n1,1,1,caf\xe9\n",
            "line 3: column 4",
        ),
    ] {
        let error = said_of(bytes);
        assert!(error.contains(said), "{said}: {error}");
    }
    // Of a column that nobody reads nothing is asked.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"arrival_s,input_tokens,output_tokens,who\n0,1,1,caf\xe9\n1,1,1,b\n").unwrap();
    assert_eq!(read(file.path(), 1).unwrap().len(), 2);
}

#[test]
fn a_line_of_json_that_is_no_row_says_what_one_has() {
    let message = message("{\"arrival_s\":1}\n");
    assert!(message.contains("line 1: missing field `timestamp`, column 15"), "{message}");
    assert!(
        message.ends_with("timestamp (ms), input_length, output_length and hash_ids"),
        "{message}"
    );
}

#[test]
fn a_prefix_without_a_length_is_half_of_the_prompt() {
    let rows = read_text(
        "arrival_s,input_tokens,output_tokens,prefix_id,prefix_tokens\n0,100,10,7, \n1,100,10,7,80\n",
    );
    assert_eq!(rows.unwrap()[0].prefix, [Segment { id: 7, tokens: 50 }]);
}

#[test]
fn a_column_counts_wherever_it_stands_and_a_name_may_hold_a_comma() {
    let far = "x".repeat(200);
    let rows = read_text(&format!(
        "\"a, b\",{far},arrival_s,input_tokens,output_tokens,class\n9,9,0,100,10,batch\n9,9,1,50,10,\n"
    ));
    let rows = rows.unwrap();
    assert_eq!((rows[0].input_tokens, rows[0].class.as_deref()), (100, Some("batch")));
    let unknown = message(&format!("{far},prefill\n1,2\n"));
    assert!(unknown.contains(&"x".repeat(120)) && !unknown.contains(&"x".repeat(121)), "{unknown}");
}

#[test]
fn a_mark_is_no_part_of_a_line_of_json() {
    let line = "{\"timestamp\":0,\"input_length\":6,\"output_length\":5,\"hash_ids\":[1]}\n";
    assert_eq!(read_text(&format!("\u{feff}{line}{line}")).unwrap().len(), 2);
}

#[test]
fn a_length_that_nothing_can_have_is_an_error_that_names_its_line() {
    let plain = "arrival_s,input_tokens,output_tokens\n0,10000000,10\n";
    for row in ["1,4000000000,10", "1,10,10000001"] {
        let message = message(&format!("{plain}{row}\n"));
        assert!(message.contains("line 3") && message.contains("10000000"), "{message}");
    }
    let line =
        "{\"timestamp\":0,\"input_length\":6,\"output_length\":4000000000,\"hash_ids\":[]}\n";
    assert!(message(line).contains("line 1"));
}

#[test]
fn a_malformed_row_is_an_error_that_names_its_line() {
    let plain = "arrival_s,input_tokens,output_tokens\n0,10,10\n";
    assert!(
        message(&format!("{plain}1,ten,10\n")).contains("line 3: \"ten\" is no number of tokens")
    );
    assert!(message(&format!("{plain}-1,10,10\n")).contains("line 3"));
    assert!(message(&format!("{plain}1,0,10\n")).contains("line 3: a prompt without tokens"));
    assert!(message(&format!("{plain}1,10\n")).contains("line 3"));
    let mooncake = "{\"timestamp\":0,\"input_length\":6,\"output_length\":5,\"hash_ids\":[]}\n{\"timestamp\":0}\n";
    assert!(message(mooncake).contains("line 2"));
    assert!(
        message("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n").contains("line 2: \"noon\"")
    );
}

#[test]
fn an_unknown_or_empty_file_is_an_error() {
    let unknown = message("prefill,decode\n1,2\n");
    for said in [
        "no known trace starts with \"prefill,decode\"",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "arrival_s,input_tokens,output_tokens",
        "; num_prefill_tokens,num_decode_tokens",
        "hash_ids",
    ] {
        assert!(unknown.contains(said), "{said}: {unknown}");
    }
    let failed = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,0,0,0,API log\n";
    assert!(message(failed).contains("no rows"));
    assert!(message("arrival_s,input_tokens,output_tokens\n").contains("no rows"));
}

#[test]
fn a_window_is_cut_out_and_compressed() {
    let rows =
        read_text("arrival_s,input_tokens,output_tokens\n0,1,1\n10,2,1\n14,3,1\n20,4,1\n").unwrap();
    let cut = Window { from_s: 10.0, for_s: Some(10.0), speed: 2.0 }.cut(rows);
    let seen: Vec<(f64, u32)> = cut.iter().map(|row| (row.at_s, row.input_tokens)).collect();
    assert_eq!(seen, [(0.0, 2), (2.0, 3)]);
}

/// Reads every public slice in `$WEIR_TRACES` when that folder is given.
#[test]
fn the_public_traces_are_read_whole() {
    let Some(folder) = std::env::var_os("WEIR_TRACES").map(PathBuf::from) else { return };
    for (file, rows) in [
        ("mooncake_conversation.dev.jsonl", 5719),
        ("mooncake_synthetic.dev.jsonl", 1925),
        ("azure2023_conv.dev.csv", 9739),
        ("azure2023_code.dev.csv", 5353),
        ("servegen_m-mid.dev.csv", 18_805),
        ("servegen_m-large.dev.csv", 17_747),
        ("servegen_deepseek-r1.dev.csv", 18_271),
        ("aibrix_sharegpt_8min.dev.csv", 1013),
        ("arxiv_summarization_lengths.dev.csv", 14_129),
    ] {
        let read = read(&folder.join(file), 1).unwrap();
        assert!(read.len().abs_diff(rows) <= 1, "{file}: {}", read.len());
        assert!(read.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s), "{file}");
    }
    // All stored figures rest on how these are spread.
    for (file, length_s) in [
        ("mooncake_conversation.dev.jsonl", 2.998_999_999_999_995_2),
        ("mooncake_synthetic.dev.jsonl", 0.001_000_000_000_000_334),
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let at_s = row["timestamp"].as_f64().unwrap() / 1e3;
            Arrival { at_s, input_tokens: 1, output_tokens: 1, class: None, prefix: Vec::new() }
        };
        let tick = tick::found(&mut text.lines().map(row).collect::<Vec<_>>()).unwrap();
        assert_eq!(tick, tick::Tick { length_s, shorter: 0 }, "{file}");
    }
}
