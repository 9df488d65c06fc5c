//! What docs/start.md shows is what a new user gets: its commands, in its order, with its answers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a scenario says what broke by panicking")]

use std::{net::TcpListener, path::Path, process::Command, time::Duration};

use weir_tests::{Program, built, wait::within};

/// A command of the page, and what the page shows of its answer.
#[derive(Debug)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The page's commands, as they stand in its code blocks after `$ `.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let mut open = false;
        for line in block.lines().skip(1) {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), shown: Vec::new() });
            } else if let Some(step) = steps.last_mut() {
                if open {
                    step.command += "\n";
                    step.command += line;
                } else {
                    step.shown.push(line.to_owned());
                }
            }
            let goes_on = open || line.starts_with("$ ");
            open = goes_on && line.ends_with('\\');
        }
    }
    steps
}

/// A line without what differs from run to run: figures with their units, dates, blanks.
fn shape(line: &str) -> String {
    if line.starts_with("HTTP/") {
        return line.trim().to_owned();
    }
    if line.starts_with("date:") {
        return "date:".to_owned();
    }
    let units = ["ms", "s", "m", "h", "k", "min"];
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let after_figure = words.last().is_some_and(|word| word.ends_with('#'));
        if !(after_figure && units.contains(&word.trim_end_matches(['.', ',', ';']))) {
            words.push(figures(word, &units));
        }
    }
    words.join(" ")
}

/// A word with `#` for each figure.
fn figures(word: &str, units: &[&str]) -> String {
    let figure = |letter: char| letter.is_ascii_digit();
    let mut text = String::new();
    let mut rest = word.strip_prefix('-').filter(|rest| rest.starts_with(figure)).unwrap_or(word);
    while let Some(at) = rest.find(figure) {
        let (before, number) = rest.split_at(at);
        text += before;
        if !text.ends_with('#') {
            text.push('#');
        }
        let inside = |letter: char| figure(letter) || letter == '.';
        rest = number.trim_start_matches(inside);
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        rest = if units.contains(&unit) { after } else { rest };
    }
    text + rest
}

/// Whether an answer is what is shown; a line `...` stands for any number of lines.
fn agree(shown: &[String], seen: &[String]) -> bool {
    match (shown, seen) {
        ([], seen) => seen.is_empty(),
        ([any, shown @ ..], seen) if any == "..." => {
            (0..=seen.len()).any(|skipped| agree(shown, seen.get(skipped..).unwrap_or_default()))
        }
        ([one, shown @ ..], [other, seen @ ..]) => one == other && agree(shown, seen),
        _ => false,
    }
}

fn shapes<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.map(shape).filter(|line| !line.is_empty()).collect()
}

/// A folder that looks like the repository after `make build`, and what was left running in it.
struct Shell<'a> {
    folder: &'a Path,
    ports: [(&'static str, String); 3],
    jobs: Vec<Program>,
}

impl<'a> Shell<'a> {
    fn new(folder: &'a Path) -> Self {
        std::fs::create_dir(folder.join("target")).unwrap();
        std::os::unix::fs::symlink(built::folder(), folder.join("target/release")).unwrap();
        let free = ["8080", "8081", "18001"].map(|port| (port, TcpListener::bind("127.0.0.1:0")));
        let ports =
            free.map(|(port, free)| (port, free.unwrap().local_addr().unwrap().port().to_string()));
        Self { folder, ports, jobs: Vec::new() }
    }

    /// Bash in the folder, with ports of this test's own for those of the page.
    fn bash(&self, command: &str) -> Command {
        let [api, admin, pod] = &self.ports;
        let moved = |text: &str, before: &str| {
            [api, admin, pod].into_iter().fold(text.to_owned(), |text, (theirs, ours)| {
                text.replace(&format!("{before}{theirs}"), &format!("{before}{ours}"))
            })
        };
        let mut command = moved(&moved(command, "127.0.0.1:"), "--port ");
        if let Some((left, file)) = command.split_once(" check > ") {
            let sed = |(theirs, ours): &(&str, String)| format!(" -e s/:{theirs}/:{ours}/");
            let seds: String = [api, admin, pod].into_iter().map(sed).collect();
            command = format!("{left} check | sed{seds} > {file}");
        }
        let mut bash = Command::new("bash");
        bash.current_dir(self.folder).env("WEIR_ADMIN", format!("http://127.0.0.1:{}", admin.1));
        bash.args(["-c", &format!("exec 2>&1; {command}")]);
        bash
    }

    /// Does one step as the reader would.
    async fn step(&mut self, step: &Step) {
        let shown = shapes(step.shown.iter().map(String::as_str));
        if let Some((verb, number)) = step.command.split_once(" %") {
            let number: usize = number.parse().unwrap();
            let job = number.checked_sub(1).and_then(|at| self.jobs.get_mut(at)).unwrap();
            match verb {
                "kill" => job.terminate(),
                "wait" => {}
                other => panic!("{other}: not a verb for jobs"),
            }
            assert!(job.exit().await.success(), "{}: {}", step.command, job.log());
        } else if let Some(command) = step.command.strip_suffix(" &") {
            let log = self.folder.join(format!("job-{}.log", self.jobs.len()));
            let job = Program::start(&mut self.bash(&format!("exec {command}")), &log);
            within(Duration::from_secs(30), command, async || {
                let seen = shapes(job.log().lines());
                if agree(&shown, &seen) { Ok(()) } else { Err(seen) }
            })
            .await;
            self.jobs.push(job);
        } else {
            self.call(step, &shown).await;
        }
    }

    /// Runs a command to its end. What only looks is looked at again, as by a reader whose request
    /// in the background has not arrived yet.
    async fn call(&self, step: &Step, shown: &[String]) {
        let looks = [" queue ls", " queue show ", " decisions "];
        let looks = looks.iter().any(|look| step.command.contains(look));
        let limit = Duration::from_secs(if looks { 10 } else { 0 });
        let said = within(limit, &step.command, async || {
            let mut bash = self.bash(&step.command);
            let run = tokio::task::spawn_blocking(move || bash.output());
            let output = run.await.unwrap().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let right = output.status.success() && agree(shown, &shapes(said.lines()));
            if right {
                return Ok(said);
            }
            assert!(looks, "{}: {}\n{said}\nshown: {shown:#?}", step.command, output.status);
            Err((output.status, said, shown))
        })
        .await;
        println!("$ {}\n{said}", step.command);
    }
}

#[tokio::test]
async fn every_command_of_the_page_works_in_its_order_and_answers_as_shown() {
    let page = std::fs::read_to_string(built::root().join("docs/start.md")).unwrap();
    let steps = steps(&page);
    // Cloning and building were done for this test.
    let done =
        |step: &&Step| ["git ", "cd ", "make "].iter().any(|it| step.command.starts_with(it));
    assert!(steps.iter().filter(done).count() >= 3, "the page begins with a clean clone");
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::new(folder.path());
    for step in steps.iter().filter(|step| !done(step)) {
        shell.step(step).await;
    }
    for job in &mut shell.jobs {
        assert!(job.ended().is_some(), "the page leaves something running:\n{}", job.log());
    }
}

#[test]
fn what_differs_from_run_to_run_is_left_out_and_nothing_else() {
    assert_eq!(shape("age:   622ms, 3m12s"), shape("age: 1.3s, 850ms"));
    assert_eq!(shape("waited 2.9 s in lane b0"), shape("waited 622 ms in lane b0"));
    assert_ne!(shape("HTTP/1.1 200 OK"), shape("HTTP/1.1 503 Service Unavailable"));
    assert_ne!(shape("state: waiting"), shape("state: running"));
    let lines = |text: &str| shapes(text.split('|'));
    assert!(agree(&lines("a|...|c"), &lines("a|b|b|c")));
    assert!(!agree(&lines("a|c"), &lines("a|b|c")) && !agree(&lines("a|b"), &lines("a")));
}
