//! Log lines, to standard error: for people, or one JSON object per line. How they get there is in [`super::lines`].
//!
//! Never a prompt, an answer or a key: nothing that logs is given one.

use std::{
    fmt,
    io::{self, IsTerminal as _},
    sync::{Arc, OnceLock},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::{self, Format, Writer},
    },
    registry::LookupSpan,
};

use super::lines::{Lines, Scribe};
use crate::config::Problems;

/// Target of the lines about changes that operators ask for ([`crate::admin::audit`]).
pub const AUDIT: &str = "weir::audit";

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLog {
    /// Form of a line: pretty or json.
    pub format: LogFormat,
    /// error, warn, info, debug or trace; or a filter by module, such as info,weir::hub=debug. What operators change is
    /// logged at every level, with target weir::audit, unless the filter names that: warn,weir::audit=off.
    pub level: String,
}

impl Default for RawLog {
    fn default() -> Self {
        Self { format: LogFormat::Pretty, level: "info".to_owned() }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The first part of a filter that is neither a level nor gives one to something. The parser takes such a word for a
/// module's name, and a filter that names no other level silences all the rest.
fn no_level(filter: &str) -> Option<&str> {
    let mut words = filter.split(',').map(str::trim);
    // Commas may stand in the fields of a span, in brackets.
    words.find(|word| {
        !word.contains(['=', '[', ']'])
            && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
    })
}

impl RawLog {
    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> LogConfig {
        if let Err(error) = EnvFilter::try_new(&self.level) {
            problems.add("log.level", format!("{:?}: {error}", self.level));
        } else if let Some(word) = no_level(&self.level) {
            problems.add(
                "log.level",
                format!("{word:?} is not one of {}, nor module=level", LEVELS.join(", ")),
            );
        }
        LogConfig { format: self.format, filter: self.level.clone() }
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// Filter by level and module.
    pub filter: String,
}

/// The lines of this process; there is one logger to a process.
static LINES: OnceLock<Arc<Lines>> = OnceLock::new();
/// Lets it log by another filter.
static FOLLOW: OnceLock<Follow> = OnceLock::new();

/// Takes a logger's filter in.
type Follow = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Lines of this process that were not written.
pub fn lost() -> u64 {
    LINES.get().map_or(0, |lines| lines.lost())
}

/// Starts logging, until what this returns is dropped. A process that logs already goes on as it was.
///
/// # Errors
/// When the system gives no thread.
pub fn start(config: &LogConfig) -> io::Result<Scribe> {
    let colours = io::stderr().is_terminal();
    let said = |lost| tracing::warn!(lost, "log lines were not written: their reader is too slow");
    let (scribe, inlet) = Scribe::start(io::stderr(), said)?;
    let _ = LINES.set(scribe.lines().clone());
    let (logger, follow) = logger(config, inlet, colours);
    if tracing::subscriber::set_global_default(logger).is_ok() {
        let _ = FOLLOW.set(follow);
    }
    Ok(scribe)
}

/// From now on this process logs what this filter lets through. The form of its lines stays.
pub fn follow(config: &LogConfig) {
    if let Some(follow) = FOLLOW.get() {
        follow(filter(&config.filter));
    }
}

fn logger(
    config: &LogConfig,
    out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    colours: bool,
) -> (Box<dyn Subscriber + Send + Sync>, Follow) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(&config.filter))
        .with_writer(out)
        // Said on standard error itself, by whoever logs.
        .log_internal_errors(false)
        .with_ansi(colours);
    match config.format {
        LogFormat::Pretty => {
            let lines = lines.event_format(ForPeople::new()).with_filter_reloading();
            let handle = lines.reload_handle();
            // Fails only where the logger is gone.
            (Box::new(lines.finish()), Box::new(move |filter| drop(handle.reload(filter))))
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            (Box::new(lines.finish()), Box::new(move |filter| drop(handle.reload(filter))))
        }
    }
}

/// What is logged. Changes are at every level, unless the text says of their target itself what is.
fn filter(text: &str) -> EnvFilter {
    let named = |word: &str| word.split(['=', '[']).next() == Some(AUDIT);
    let whole =
        if text.split(',').any(named) { text.to_owned() } else { format!("{text},{AUDIT}=info") };
    EnvFilter::try_new(whole).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Lines for people. Those about changes have their target, by which they are found; the others do without.
struct ForPeople {
    audit: Format,
    others: Format,
}

impl ForPeople {
    fn new() -> Self {
        Self { audit: format::format(), others: format::format().with_target(false) }
    }
}

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let form = if event.metadata().target() == AUDIT { &self.audit } else { &self.others };
        form.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(level: &str) -> Vec<String> {
        let mut problems = Problems::default();
        RawLog { level: level.to_owned(), ..RawLog::default() }.check(&mut problems);
        problems.lines().to_vec()
    }

    /// A buffer that many may write to.
    #[derive(Clone, Default)]
    struct Written(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged of a change and of two other lines.
    fn logged(format: LogFormat, level: &str) -> String {
        let written = Written::default();
        let out = written.clone();
        let config = LogConfig { format, filter: level.to_owned() };
        let (logger, _) = logger(&config, move || out.clone(), false);
        tracing::subscriber::with_default(logger, || {
            tracing::info!(target: AUDIT, who = "ada", "a change");
            tracing::info!("a word");
            tracing::error!("a fault");
        });
        let text = written.0.lock().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_change_is_logged_at_every_level_unless_its_target_is_named() {
        for format in [LogFormat::Pretty, LogFormat::Json] {
            for (level, lines) in [
                ("info", ["a change", "a word", "a fault"].as_slice()),
                ("error", &["a change", "a fault"]),
                ("off", &["a change"]),
                ("warn,weir=error", &["a change", "a fault"]),
                ("info,weir::audit=off", &["a word", "a fault"]),
                ("error,weir::audit=warn", &["a fault"]),
            ] {
                let text = logged(format, level);
                let said: Vec<&str> = ["a change", "a word", "a fault"]
                    .into_iter()
                    .filter(|words| text.contains(words))
                    .collect();
                assert_eq!(said, lines, "{level}: {text}");
            }
        }
    }

    #[test]
    fn another_filter_counts_from_the_next_line_on() {
        for format in [LogFormat::Pretty, LogFormat::Json] {
            let written = Written::default();
            let out = written.clone();
            let config = LogConfig { format, filter: "error".to_owned() };
            let (logger, follow) = logger(&config, move || out.clone(), false);
            tracing::subscriber::with_default(logger, || {
                for filter in ["error", "debug", "warn"] {
                    follow(super::filter(filter));
                    tracing::debug!("under {filter}");
                }
            });
            let text = String::from_utf8(written.0.lock().clone()).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("under debug"), "{text}");
        }
    }

    #[test]
    fn a_line_for_people_has_a_target_when_it_is_about_a_change() {
        let text = logged(LogFormat::Pretty, "info");
        let [change, word, _] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(change.ends_with("INFO weir::audit: a change who=\"ada\""), "{text}");
        assert!(word.ends_with("INFO a word"), "{text}");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_told_what_is() {
        for right in ["info", "WARN", "off", "info,weir::hub=debug", "warn,weir[pod{a=1}]=trace"] {
            assert!(problems(right).is_empty(), "{right}: {:?}", problems(right));
        }
        for wrong in ["warning", "inf", "weir", "info,weir::hub", "", "info,", "info,weir=loud"] {
            assert_eq!(problems(wrong).len(), 1, "{wrong}");
        }
        assert_eq!(
            problems("warning"),
            [
                "log.level: \"warning\" is not one of off, error, warn, info, debug, trace, nor module=level"
            ]
        );
    }
}
