//! Renders a Helm chart without Helm, as far as Weir's chart goes: values, brackets, `include`, `if`, `toYaml`, `fromYaml`,
//! `mergeOverwrite`, `nindent`, `add`, `int`, `gt`, `quote`, `default` and `sha256sum`. Anything else is a mistake of the chart
//! here, so that nothing is shipped that no test has rendered.

use std::{collections::BTreeMap, fs, path::Path};

use serde_yaml_ng::{Mapping, Value};
use sha2::{Digest, Sha256};

/// A chart with the values it is rendered with.
#[derive(Debug)]
pub struct Chart {
    templates: BTreeMap<String, Vec<Node>>,
    defined: BTreeMap<String, Vec<Node>>,
    root: Value,
}

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Print(String),
    If(String, Vec<Node>, Vec<Node>),
    Define(String, Vec<Node>),
}

enum Token {
    Text(String),
    Action(String),
}

/// Reads YAML.
///
/// # Panics
/// When the text is none.
pub fn yaml(text: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

impl Chart {
    /// A chart with values over its own.
    ///
    /// # Panics
    /// When a file cannot be read or understood.
    pub fn new(folder: &Path, release: &str, over: &Value) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("the chart is whole");
        let mut values = yaml(&read("values.yaml"));
        merge(&mut values, over);
        let chart = yaml(&read("Chart.yaml"));
        let field = |name: &str| chart[name].clone();
        let chart = [("Name", "name"), ("Version", "version"), ("AppVersion", "appVersion")];
        let chart = chart.map(|(name, key)| (name, field(key)));
        let release = [("Name", release), ("Namespace", "default"), ("Service", "Helm")];
        let release = release.map(|(name, value)| (name, Value::from(value)));
        let root = [("Values", values), ("Chart", mapping(chart)), ("Release", mapping(release))];
        let (mut templates, mut defined) = (BTreeMap::new(), BTreeMap::new());
        for entry in fs::read_dir(folder.join("templates")).expect("the chart has templates") {
            let path = entry.expect("a folder can be read").path();
            let text = fs::read_to_string(&path).expect("a template is text");
            let name = path.file_name().and_then(|name| name.to_str()).expect("it has a name");
            let mut tokens = tokens(&text).into_iter();
            let (nodes, end) = block(&mut tokens);
            assert!(end.is_empty(), "{name}: {end:?} closes nothing");
            for node in &nodes {
                if let Node::Define(name, body) = node {
                    defined.insert(name.clone(), body.clone());
                }
            }
            if !name.starts_with('_') {
                templates.insert(name.to_owned(), nodes);
            }
        }
        Self { templates, defined, root: mapping(root) }
    }

    /// Every file as it is sent to the cluster, by the name of its template.
    pub fn render(&self) -> BTreeMap<String, String> {
        let render = |(name, nodes): (&String, &Vec<Node>)| (name.clone(), self.write(nodes));
        self.templates.iter().map(render).collect()
    }

    /// Every object of the rendered files.
    pub fn objects(&self) -> Vec<Value> {
        let files = self.render().into_iter().filter(|(name, _)| name.ends_with(".yaml"));
        let parts =
            files.flat_map(|(_, text)| text.split("\n---").map(str::to_owned).collect::<Vec<_>>());
        parts.filter(|part| !part.trim().is_empty()).map(|part| yaml(&part)).collect()
    }

    fn write(&self, nodes: &[Node]) -> String {
        nodes.iter().map(|node| self.one(node)).collect()
    }

    fn one(&self, node: &Node) -> String {
        match node {
            Node::Text(text) => text.clone(),
            Node::Print(words) => text(&self.pipeline(words)),
            Node::Define(..) => String::new(),
            Node::If(condition, then, or) => {
                self.write(if is_true(&self.pipeline(condition)) { then } else { or })
            }
        }
    }

    /// Stages between bars, each with the value of the one before as its last argument.
    fn pipeline(&self, words: &str) -> Value {
        let stages = parts(words, |sign| sign == '|').into_iter();
        let value = stages.fold(None, |piped, stage| Some(self.stage(stage, piped)));
        value.unwrap_or_else(|| panic!("an action does nothing"))
    }

    fn stage(&self, stage: &str, piped: Option<Value>) -> Value {
        let words = parts(stage, char::is_whitespace);
        match words.as_slice() {
            [operand] if piped.is_none() => self.operand(operand),
            [function, operands @ ..] => {
                let mut arguments: Vec<Value> =
                    operands.iter().map(|operand| self.operand(operand)).collect();
                arguments.extend(piped);
                self.call(function, &arguments)
            }
            [] => panic!("a stage does nothing"),
        }
    }

    /// A pipeline in brackets, a path, a text or a whole number.
    fn operand(&self, word: &str) -> Value {
        let between =
            |open, close| word.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        if let Some(pipeline) = between('(', ')') {
            return self.pipeline(pipeline);
        }
        if let Some(text) = between('"', '"') {
            return Value::from(text);
        }
        if word.starts_with('.') {
            return self.look_up(word);
        }
        Value::from(word.parse::<i64>().unwrap_or_else(|_| panic!("not rendered here: {word:?}")))
    }

    fn call(&self, function: &str, arguments: &[Value]) -> Value {
        match (function, arguments) {
            ("include", [name, _]) => {
                let body = self.defined.get(&text(name));
                Value::from(self.write(body.unwrap_or_else(|| panic!("{name:?} is not defined"))))
            }
            ("toYaml", [value]) => {
                let text = serde_yaml_ng::to_string(value).expect("a value is YAML");
                Value::from(text.trim_end())
            }
            ("fromYaml", [value]) => match yaml(&text(value)) {
                Value::Null => Value::Mapping(Mapping::new()),
                value => value,
            },
            ("mergeOverwrite", [under, over]) => {
                let mut merged = under.clone();
                merge(&mut merged, over);
                merged
            }
            ("add", numbers) => Value::from(numbers.iter().map(whole).sum::<i64>()),
            ("int", [number]) => Value::from(whole(number)),
            ("gt", [one, other]) => Value::from(whole(one) > whole(other)),
            ("or", [one, other]) => {
                if is_true(one) {
                    one.clone()
                } else {
                    other.clone()
                }
            }
            ("quote", [value]) => Value::from(format!("{:?}", text(value))),
            ("sha256sum", [value]) => Value::from(format!("{:x}", Sha256::digest(text(value)))),
            ("default", [otherwise, value]) => {
                if is_true(value) {
                    value.clone()
                } else {
                    otherwise.clone()
                }
            }
            ("nindent", [by, value]) => {
                let by = usize::try_from(whole(by)).expect("a number of columns");
                let lines = text(value);
                let lines = lines.lines().map(|line| format!("\n{:by$}{line}", ""));
                Value::from(lines.collect::<String>())
            }
            other => panic!("not rendered here: {other:?}"),
        }
    }

    /// The value at a path; one that is missing would render as `<no value>`.
    fn look_up(&self, path: &str) -> Value {
        let mut at = &self.root;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            at = at.get(step).unwrap_or_else(|| panic!("there is no {path}"));
        }
        at.clone()
    }
}

fn mapping<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries = entries.into_iter().map(|(name, value)| (Value::from(name), value));
    Value::Mapping(entries.collect::<Mapping>())
}

/// Puts `over` over `under`, key by key, as Helm does.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Mapping(under), Value::Mapping(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Sequence(all) => !all.is_empty(),
        Value::Mapping(all) => !all.is_empty(),
        Value::Tagged(_) => true,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => number.to_string(),
        other => panic!("no text: {other:?}"),
    }
}

fn whole(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("no whole number: {value:?}"))
}

/// What stands between signs that are not inside of brackets.
fn parts(words: &str, is_between: impl Fn(char) -> bool) -> Vec<&str> {
    let mut depth = 0;
    let parts = words.split(|sign| {
        depth += i32::from(sign == '(') - i32::from(sign == ')');
        depth == 0 && is_between(sign)
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Text and actions; a dash at an action's edge takes the white space there away.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.to_owned();
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, after) = after.split_once("}}").expect("an action is closed");
        let before = if action.starts_with('-') { before.trim_end() } else { before };
        tokens.push(Token::Text(before.to_owned()));
        let after = if action.ends_with('-') { after.trim_start() } else { after };
        let action = action.trim_matches('-').trim();
        tokens.push(Token::Action(action.to_owned()));
        rest = after.to_owned();
    }
    tokens.push(Token::Text(rest));
    tokens
}

/// The nodes up to the action that ends them, and that action; it is empty at the end of the file.
fn block(tokens: &mut impl Iterator<Item = Token>) -> (Vec<Node>, String) {
    let mut nodes = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Token::Action(action) => action,
        };
        let (word, rest) = action.split_once(' ').unwrap_or((&action, ""));
        match word {
            "end" | "else" => return (nodes, action),
            "if" => {
                let (then, end) = block(tokens);
                let or = if end == "else" { block(tokens).0 } else { Vec::new() };
                nodes.push(Node::If(rest.to_owned(), then, or));
            }
            "define" => {
                let body = block(tokens).0;
                nodes.push(Node::Define(rest.trim_matches('"').to_owned(), body));
            }
            _ => nodes.push(Node::Print(action)),
        }
    }
    (nodes, String::new())
}
