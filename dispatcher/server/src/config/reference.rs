//! docs/configuration.md: every key of the file, from the schema and from the table of what needs a
//! restart. A test keeps the page equal to this.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    keys::{Applies, applies},
    raw::whole_schema,
};

const HEAD: &str = "\
# Configuration

One YAML file, `weir serve --config FILE`. Every key may be left out but `pools`; what is left out has the default of the table, and `required` is what has none where its mapping is written.
[config/weir.yaml](../config/weir.yaml) is the same with the defaults written out, and [config/examples](../config/examples) has files for
one machine, mixed GPUs, Kubernetes behind a gateway, and for those who come from llm-d or AIBrix. This page is generated from
the schema (`weir schema`), and a test keeps the two equal.

## Checked before anything starts
`weir check --config FILE` prints the configuration in force, or everything that is wrong, and ends with 64. What values say is checked once
every key is known, written once and of the right kind:

    weir: weir.yaml: 2 problems
      line 6: queue.max_wat_s: unknown key `max_wat_s`; did you mean `max_wait_s`?
      line 9: upstream.max_attempts: is integer `-1`, write a whole number from 0 to 4294967295

Editors complete and check the file by its schema: `# yaml-language-server: $schema=weir.schema.json` in its first line.

## From the environment
`WEIR_LISTEN` and `WEIR_ADMIN_LISTEN` (or `--listen`, `--admin-listen`) go before `listen` and `admin.listen`. A key of a client is named by its
SHA-256, or by `key_env: NAME`, the variable that holds it, so that a Secret can be mounted as one.

## Reload
A changed file is taken over while requests wait and run: when the system says so, or within 6 s where it does not, or on SIGHUP. The folder is
watched, so that the link that Kubernetes turns for a mounted ConfigMap counts as a change. What is renamed to its place, or linked to, is read at once; a file that is written in place
when it has been left alone for half a second, and after 5 s in any case: half a file may be a good one, without its limits. Whoever writes it in place with longer pauses has halves taken over; write another file and rename it. All or nothing: a file with a mistake changes
nothing, the log says what is wrong with it, and `weir_config_failing` is 1 until it is mended. The log names what changed, with the values of what is one word or one number; of a list or a mapping the name alone.
A file that has lost all its `keys`, or all its `admin.tokens`, is refused too, for half a file would open the API or the admin side to everybody: restart to do so. `weir check`, and the log at the start, note
an API without `keys` that others than this machine reach.

What waits keeps the objectives it came with, and its place; what runs goes on. New objectives, bands, keys and rates count from the
next request on; policies, patterns, bounds and pull parameters from the next decision on, also for what waits. Tokens of the admin side count from the next call on (what is
watched already goes on), `log.level` from the next line on; a trainer that runs keeps its own. A pod that is no longer listed
gets nothing new, and is `leaving` (`weir pods ls`) until its streams have come to their end; one that is new gets requests after its first scrape. Rates that did not change go on counting.
The number of models, and what the table calls a restart, change with a restart only: such keys stay as they are, the log names
them, and `weir_config_needs_restart` counts them (alert `WeirConfigNeedsRestart` after a day). A change of `patterns` or of a policy's `order` sorts everything that waits anew, at about
the cost of its arrival.

`weir_config_reloads_total{result}` counts, `weir_config_hash` is equal in dispatchers that run the same, `weir_config_age_seconds` says since when.

## Keys
`counts` says whether a changed value counts after a reload or after a restart. A model that is new in `pools`, or gone, needs a restart.
";

/// docs/configuration.md as it must be.
pub fn markdown() -> String {
    let schema = whole_schema().to_value();
    let mut text = HEAD.to_owned();
    let mut later = vec![(String::new(), schema.clone())];
    while let Some((path, part)) = later.pop() {
        let inner = section(&mut text, &path, &part, &schema);
        later.extend(inner.into_iter().rev());
    }
    text
}

/// The table of a mapping's keys; the mappings inside it are returned.
fn section(text: &mut String, path: &str, part: &Value, schema: &Value) -> Vec<(String, Value)> {
    let title = if path.is_empty() { "Top level".to_owned() } else { format!("`{path}`") };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n### {title}\n");
    if let Some(about) = part.get("description").filter(|_| !path.is_empty()) {
        let _ = writeln!(text, "{}\n", one_line(about));
    }
    text.push_str("| key | kind | default | counts | meaning |\n|---|---|---|---|---|\n");
    let mut inside = Vec::new();
    let keys = part.get("properties").and_then(Value::as_object);
    let needed = part.get("required").and_then(Value::as_array);
    for (key, value) in keys.into_iter().flatten() {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let inner = inner(value, schema);
        let counts = match applies(&below.replace("[]", "")) {
            _ if inner.is_some() => "below",
            Applies::Reload => "reload",
            Applies::Restart => "restart",
        };
        let about = value.get("description").map(one_line).unwrap_or_default();
        let kind = kind(value, schema);
        let default = match (&inner, value.get("default")) {
            _ if needed.is_some_and(|needed| needed.contains(&key.as_str().into())) => {
                "required".to_owned()
            }
            (None, Some(default)) => format!("`{}`", default.to_string().replace('|', "\\|")),
            _ => String::new(),
        };
        let _ = writeln!(text, "| `{key}` | {kind} | {default} | {counts} | {about} |");
        inside.extend(inner.map(|(suffix, inner)| (below + suffix, inner)));
    }
    inside
}

/// What a reference leads to, with the null that an optional part may be left aside.
fn resolved(value: &Value, schema: &Value) -> Value {
    let options = value.get("anyOf").and_then(Value::as_array);
    let value = options.and_then(|options| options.first()).unwrap_or(value);
    let target = value.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|path| schema.pointer(path.trim_start_matches('#')));
    target.unwrap_or(value).clone()
}

/// The mapping that a key holds, that every entry of its list is, or that every name in it leads to; and
/// what says so behind the key.
fn inner(value: &Value, schema: &Value) -> Option<(&'static str, Value)> {
    let here = resolved(value, schema);
    let part =
        |of: &Value| Some(resolved(of, schema)).filter(|part| part.get("properties").is_some());
    let list = here.get("items").and_then(part).map(|part| ("[]", part));
    let named = || here.get("additionalProperties").and_then(part).map(|part| (".NAME", part));
    list.or_else(named).or_else(|| part(&here).map(|part| ("", part)))
}

/// A value's kind in words.
fn kind(value: &Value, schema: &Value) -> String {
    let here = resolved(value, schema);
    if let Some(words) = here.get("enum").and_then(Value::as_array) {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return words.join(", ");
    }
    if let Some(one_of) = here.get("oneOf").and_then(Value::as_array) {
        let word = |one: &Value| one.get("const").and_then(Value::as_str).map(str::to_owned);
        let words: Option<Vec<String>> = one_of.iter().map(word).collect();
        return words.map_or_else(|| "a name or a mapping".to_owned(), |words| words.join(", "));
    }
    let kinds = match here.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let word = |kind: &&str| match *kind {
        "string" => Some("text"),
        "integer" => Some("whole number"),
        "number" => Some("number"),
        "boolean" => Some("true or false"),
        "array" => Some("list"),
        "object" => Some("mapping"),
        _ => None,
    };
    let optional = value.get("anyOf").is_some() || kinds.contains(&"null");
    let kind = kinds.iter().find_map(word).unwrap_or("text or list").to_owned() + &range(&here);
    if optional { format!("{kind}, or null") } else { kind }
}

/// Between which numbers a value is, in words.
fn range(of: &Value) -> String {
    let bound = |name| of.get(name).and_then(Value::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        // That a count is not negative needs no words.
        (Some(least), None) if least > 0.0 => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        _ => String::new(),
    }
}

fn one_line(text: &Value) -> String {
    text.as_str().unwrap_or_default().replace('\n', " ")
}
