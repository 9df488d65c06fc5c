//! A headless Chromium, for what only a browser can tell: that the page is drawn, that what is pressed
//! does what it says, and that nothing was asked of another place.
//!
//! It is driven by the DevTools protocol over two pipes (`--remote-debugging-pipe`): no second toolchain,
//! no port that another program could take, and it ends when the pipes do. Where there is no Chromium
//! (`WEIR_CHROMIUM`, or one of the usual names in `PATH`) [`Browser::start`] says so and returns `None`.
//!
//! Pictures are written into the folder that `WEIR_PICTURES` names, and nowhere without it.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};

use crate::{built, eventually};

/// Chromium takes the file descriptors 3 and 4 for the pipe; a shell puts its own first two there.
const PIPED: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2"#;
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// No call of the protocol takes this long.
const LIMIT: Duration = Duration::from_secs(30);

/// A running browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: mpsc::Receiver<Value>,
    session: Option<String>,
    calls: u64,
    complaints: Vec<String>,
    asked: Vec<String>,
    // Last, so that it goes after the browser.
    _profile: TempDir,
}

/// What the page is shown on.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Width in CSS pixels.
    pub width: u32,
    /// Height in CSS pixels.
    pub height: u32,
    /// Whether it is a phone's.
    pub phone: bool,
    /// Whether dark colours are preferred.
    pub dark: bool,
}

impl Screen {
    /// A laptop's, with light colours.
    pub const LAPTOP: Self = Self { width: 1440, height: 900, phone: false, dark: false };
    /// A phone's.
    pub const PHONE: Self = Self { width: 390, height: 844, phone: true, dark: false };

    /// The same with dark colours.
    #[must_use]
    pub const fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

impl Browser {
    /// Starts one with an empty page; `None`, with the reason printed, where there is none.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: no Chromium in PATH; WEIR_CHROMIUM may name one");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder can be made");
        let mut child = launch(&program, profile.path());
        let to = child.stdin.take().expect("the input is a pipe");
        let out = child.stdout.take().expect("the output is a pipe");
        let (heard, from) = mpsc::channel(1024);
        std::thread::spawn(move || hear(out, &heard));
        let mut browser = Self {
            child,
            to,
            from,
            session: None,
            calls: 0,
            complaints: Vec::new(),
            asked: Vec::new(),
            _profile: profile,
        };
        browser.attach().await;
        Some(browser)
    }

    async fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", attach).await;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.show_on(Screen::LAPTOP).await;
    }

    /// Makes a call of the protocol.
    ///
    /// # Panics
    /// When it fails or takes too long.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut text = call.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).expect("the browser listens");
        let answer = timeout(LIMIT, self.answer(self.calls)).await;
        let mut answer = answer.unwrap_or_else(|_| panic!("{method} takes too long"));
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.from.recv().await.expect("the browser runs");
            if message["id"] == id {
                return message;
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(params["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                self.asked.extend(params["request"]["url"].as_str().map(str::to_owned));
            }
            _ => {}
        }
    }

    /// Errors that the page's console had so far.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Every address that the page asked for so far.
    pub fn asked(&self) -> &[String] {
        &self.asked
    }

    /// Goes to an address.
    pub async fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url})).await;
    }

    /// Shows the page on another screen.
    pub async fn show_on(&mut self, screen: Screen) {
        let scale = if screen.phone { 2 } else { 1 };
        let metrics = json!({
            "width": screen.width, "height": screen.height, "deviceScaleFactor": scale, "mobile": screen.phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if screen.dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// What an expression comes to on the page; promises are awaited.
    ///
    /// # Panics
    /// When it throws.
    pub async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut result = self.call("Runtime.evaluate", params).await;
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result:#}");
        result["result"]["value"].take()
    }

    /// Waits until an expression comes to something, and returns it.
    pub async fn sees(&mut self, what: &str, expression: &str) -> Value {
        let something =
            format!("(() => {{ try {{ return {expression} }} catch {{ return null }} }})()");
        eventually(what, async || {
            let seen = self.eval(&something).await;
            let nothing = seen.is_null() || seen == false || seen == 0 || seen == "";
            if nothing { Err(seen) } else { Ok(seen) }
        })
        .await
    }

    /// Waits until the first element that a selector finds has text, and returns it.
    pub async fn text(&mut self, selector: &str) -> String {
        let text = format!("document.querySelector({}).innerText.trim()", json!(selector));
        self.sees(selector, &text).await.as_str().unwrap_or_default().to_owned()
    }

    /// Presses the mouse on the first element that a selector finds, once nothing lies over it.
    pub async fn click(&mut self, selector: &str) {
        let spot = format!(
            "(() => {{
                const el = document.querySelector({});
                el.scrollIntoView({{ block: 'nearest' }});
                const box = el.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                return el.disabled || !el.contains(document.elementFromPoint(x, y)) ? null : [x, y];
            }})()",
            json!(selector)
        );
        let spot = self.sees(&format!("{selector} can be pressed"), &spot).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": spot[0], "y": spot[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Presses a key, by its name or its character.
    pub async fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let mut event = json!({"type": kind, "key": key, "text": text});
            if key == "Enter" {
                event["text"] = json!(if kind == "keyDown" { "\r" } else { "" });
                event["windowsVirtualKeyCode"] = json!(13);
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types into what has the focus.
    pub async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Writes a picture of what is in sight, if pictures are wanted.
    ///
    /// # Panics
    /// When it cannot be written.
    pub async fn picture(&mut self, name: &str) {
        let Some(folder) = pictures() else { return };
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let data = shot["data"].as_str().expect("a picture is text in base 64");
        let data = BASE64_STANDARD.decode(data).expect("a picture is text in base 64");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("{name}.png")), data).expect("a picture can be written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- the page's console\n{}", self.complaints.join("\n"));
        }
    }
}

/// The folder for pictures, if they are wanted.
pub fn pictures() -> Option<PathBuf> {
    std::env::var_os("WEIR_PICTURES").map(|folder| built::root().join(folder))
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WEIR_CHROMIUM") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|at| at.is_file())
}

fn launch(program: &Path, profile: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", PIPED]).arg(program);
    command.args([
        "--headless=new",
        "--remote-debugging-pipe",
        "--hide-scrollbars",
        "--disable-gpu",
    ]);
    command.args(["--no-first-run", "--disable-extensions", "--disable-background-networking"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    // Its sandbox cannot be set up by root, as whom a container usually runs.
    let user = Command::new("id").arg("-u").output().expect("id runs");
    if user.stdout.trim_ascii() == b"0" {
        command.arg("--no-sandbox");
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    piped.arg("about:blank").spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Hands on what the browser says, until it ends or nobody listens.
fn hear(out: ChildStdout, heard: &mpsc::Sender<Value>) {
    let mut out = BufReader::new(out);
    let mut message = Vec::new();
    while out.read_until(0, &mut message).is_ok_and(|read| read > 0) {
        message.pop();
        let Ok(value) = serde_json::from_slice(&message) else { return };
        if heard.blocking_send(value).is_err() {
            return;
        }
        message.clear();
    }
}
