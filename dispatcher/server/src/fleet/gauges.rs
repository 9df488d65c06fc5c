//! Reads an engine's gauges from its `/metrics` text.
//!
//! Only what the scheduler uses is looked for, by name, line by line; nothing is allocated per line, and of a line that
//! cannot be one of these the first bytes are all that is read.
//! A value that is not finite, negative or absurdly large makes the whole scrape void, so that the
//! one before it stays in force: half of an answer is worse than the one of 100 ms ago.
//!
//! Names are vLLM's. With several engines behind one port (data parallel) there is a line for each, with its number as `engine`: to who
//! takes them for one pod requests add up, the share of the cache is their mean, and how many there are is told, for their steps
//! are apart; [`Gauges::of`] says what one of them has.
//!
//! How many tokens the cache holds vLLM says since the summer of 2026 (`kv_cache_size_tokens`, vllm-project/vllm#42206), in the
//! line of each engine of that engine. Before that it is the product of the blocks and their size, which is right for models with
//! one kind of layer; vLLM adds up the blocks of all engines as they start, and every line has that sum.

use std::str::FromStr;

use memchr::{memchr_iter, memchr2};
use smallvec::SmallVec;
use weir_core::{CacheInfo, CacheUse, Scrape};

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauges {
    /// What all engines have.
    pub scrape: Scrape,
    /// What each of them has, by its number.
    engines: SmallVec<[Scrape; 1]>,
    /// When the process started, in seconds since 1970; another value means another process.
    pub started_at_s: Option<f64>,
    /// Whether nothing else was told.
    pub alone: bool,
}

/// Why a scrape was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GaugeError {
    /// A gauge is not there.
    #[error("no gauge {0}")]
    Missing(&'static str),
    /// A gauge has no usable value.
    #[error("gauge {0} has no usable value")]
    Unusable(&'static str),
}

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
const KV_USAGE: &str = "vllm:kv_cache_usage_perc";
/// The name of [`KV_USAGE`] before vLLM 0.10.
const KV_USAGE_OLD: &str = "vllm:gpu_cache_usage_perc";
const CACHE_INFO: &str = "vllm:cache_config_info";
const STARTED: &str = "process_start_time_seconds";

/// Counters of tokens, which a process starts at zero: those of prompts that were looked up in the prefix cache, and those found.
const QUERIED: &str = "vllm:prefix_cache_queries_total";
const FOUND: &str = "vllm:prefix_cache_hits_total";

/// What runs of LoRA adapters, which an engine tells of from the first request for one on. A line of each set of them that ever ran
/// stays; all say how many may run at once.
const LORAS: &str = "vllm:lora_requests_info";

/// A counter, which a process starts at zero. Engines without it leave the tokens of an event to streams with `usage`.
const GENERATED: &str = "vllm:generation_tokens_total";

/// What is read, of all that an engine tells.
pub const NAMES: [&str; 6] = [RUNNING, WAITING, KV_USAGE, CACHE_INFO, STARTED, GENERATED];

/// What is read now and then.
pub const COUNTERS: [&str; 3] = [QUERIED, FOUND, LORAS];

/// More requests than any engine holds: a gauge above it is broken.
const MOST_REQUESTS: f64 = 1e6;
/// More tokens than any engine generates in its life, and still counted one by one.
const MOST_TOKENS: f64 = 1e15;

impl Gauges {
    /// Engines of which it tells.
    pub fn engines(&self) -> usize {
        self.engines.len()
    }

    /// What the engine of a rank has: the first one has rank 0, whatever its number. `None` where there is no such engine; without a
    /// rank what all of them have.
    pub fn of(&self, rank: Option<u16>) -> Option<Scrape> {
        let Some(rank) = rank else { return Some(self.scrape) };
        self.engines.get(usize::from(rank)).copied()
    }
}

/// Sum and number of the lines of one gauge.
#[derive(Clone, Copy, Default)]
struct Lines {
    sum: f64,
    count: u32,
}

impl Lines {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn beside(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }

    /// What a counter has come to; `None` where a line is missing or says something else.
    fn counted(self) -> Option<u64> {
        (self.count > 0 && self.sum >= 0.0).then_some(self.sum as u64)
    }
}

/// What was read of one engine, or of all.
#[derive(Clone, Copy, Default)]
struct Told {
    running: Lines,
    waiting: Lines,
    kv_usage: Lines,
    generated: Lines,
    queried: Lines,
    found: Lines,
    cache: CacheInfo,
}

impl Told {
    fn beside(self, other: Self) -> Self {
        Self {
            running: self.running.beside(other.running),
            waiting: self.waiting.beside(other.waiting),
            kv_usage: self.kv_usage.beside(other.kv_usage),
            generated: self.generated.beside(other.generated),
            queried: self.queried.beside(other.queried),
            found: self.found.beside(other.found),
            cache: beside(self.cache, other.cache),
        }
    }

    fn scrape(&self) -> Result<Scrape, GaugeError> {
        let Self { running, waiting, kv_usage, generated, queried, found, cache } = *self;
        for (lines, name) in [(running, RUNNING), (waiting, WAITING), (kv_usage, KV_USAGE)] {
            if lines.count == 0 {
                return Err(GaugeError::Missing(name));
            }
        }
        let [generated, queried, found] = [generated, queried, found].map(Lines::counted);
        Ok(Scrape {
            running: running.sum as u32,
            waiting: waiting.sum as u32,
            kv_usage: (kv_usage.sum / f64::from(kv_usage.count)) as f32,
            cache,
            generated,
            cache_use: queried.zip(found).map(|(queried, found)| CacheUse { queried, found }),
            max_loras: None,
            engines: running.count,
            shared: false,
        })
    }
}

/// What was read of each engine, by its number.
type Engines = SmallVec<[(u32, Told); 1]>;

/// Reads the gauges.
///
/// # Errors
/// When a gauge is missing or has no usable value.
pub fn parse(body: &[u8]) -> Result<Gauges, GaugeError> {
    let mut engines = Engines::new();
    let (mut started_at_s, mut max_loras, mut alone) = (None, None, true);
    for line in lines(body) {
        let Some((name, labels, value)) = split(line) else {
            alone &= line.is_empty() || line.starts_with(b"#");
            continue;
        };
        if name == STARTED {
            started_at_s = value.parse().ok().filter(|at: &f64| at.is_finite());
            continue;
        }
        if name == LORAS {
            max_loras = number(labels, "max_lora").or(max_loras);
            continue;
        }
        let engine = number(labels, "engine").unwrap_or_default();
        let Some(told) = of_engine(&mut engines, engine) else { continue };
        match name {
            RUNNING => told.running.add(within(value, MOST_REQUESTS, RUNNING)?),
            WAITING => told.waiting.add(within(value, MOST_REQUESTS, WAITING)?),
            // vLLM may pass 1 by a rounding error.
            KV_USAGE | KV_USAGE_OLD => {
                told.kv_usage.add(within(value, 1.01, KV_USAGE)?.min(1.0));
            }
            CACHE_INFO => told.cache = beside(told.cache, cache_info(labels)),
            // Without these a scrape says what it has to.
            QUERIED => told.queried.add(tokens(value)),
            FOUND => told.found.add(tokens(value)),
            _ => told.generated.add(tokens(value)),
        }
    }
    let all = engines.iter().map(|(_, told)| *told).reduce(Told::beside);
    let scrape = Scrape { max_loras, ..all.unwrap_or_default().scrape()? };
    let count = u32::try_from(engines.len()).unwrap_or(u32::MAX).max(1);
    // The blocks are those of all engines, in the line of each.
    let share =
        |cache: CacheInfo| CacheInfo { blocks: cache.blocks.map(|blocks| blocks / count), ..cache };
    let apart = engines.iter().map(|(_, told)| Told { cache: share(told.cache), ..*told }.scrape());
    // What is said of a cache alone is of no engine by itself.
    let engines = apart.filter_map(Result::ok);
    let engines = engines.map(|engine| Scrape { max_loras, ..engine }).collect();
    Ok(Gauges { scrape, engines, started_at_s, alone })
}

/// What was read of the engine of a number so far. They stay in the order of their numbers.
fn of_engine(engines: &mut Engines, number: u32) -> Option<&mut Told> {
    let at = engines.partition_point(|(other, _)| *other < number);
    if engines.get(at).is_none_or(|(other, _)| *other != number) {
        engines.insert(at, (number, Told::default()));
    }
    engines.get_mut(at).map(|(_, told)| told)
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut from = 0;
    memchr_iter(b'\n', body).chain([body.len()]).filter_map(move |end| {
        let line = body.get(from..end);
        from = end + 1;
        line
    })
}

/// Name, labels and value of a line; `None` for comments and everything else that is not looked for.
fn split(line: &[u8]) -> Option<(&'static str, &str, &str)> {
    let (name, rest) = line.split_at_checked(memchr2(b'{', b' ', line)?)?;
    let mut names = NAMES.into_iter().chain(COUNTERS).chain([KV_USAGE_OLD]);
    let name = names.find(|known| known.as_bytes() == name)?;
    let rest = std::str::from_utf8(rest).ok()?;
    // A label's value may hold a brace; the value of the sample never does.
    let (labels, value) = rest.rsplit_once('}').unwrap_or(("", rest));
    // A time stamp may follow the value.
    Some((name, labels, value.split_whitespace().next()?))
}

fn within(value: &str, most: f64, name: &'static str) -> Result<f64, GaugeError> {
    let value: f64 = value.parse().map_err(|_| GaugeError::Unusable(name))?;
    // NaN is in no range.
    if (0.0..=most).contains(&value) { Ok(value) } else { Err(GaugeError::Unusable(name)) }
}

/// Tokens that were counted, or no number.
fn tokens(value: &str) -> f64 {
    within(value, MOST_TOKENS, "").unwrap_or(f64::NAN)
}

/// What a line says of one engine's cache. An engine that has not measured its memory yet says "None" of it.
fn cache_info(labels: &str) -> CacheInfo {
    CacheInfo {
        blocks: number(labels, "num_gpu_blocks"),
        block_tokens: number(labels, "block_size"),
        found_tokens: number(labels, "cache_hit_alignment_tokens"),
        tokens: number(labels, "kv_cache_size_tokens"),
        prefix_caching: label(labels, "enable_prefix_caching").and_then(|value| match value {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }),
    }
}

fn number<T: FromStr>(labels: &str, name: &str) -> Option<T> {
    label(labels, name)?.parse().ok()
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = labels.trim_start_matches('{').split("\",");
    pairs
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))
        .map(|value| value.trim_end_matches('"'))
}

/// The caches of several engines behind one port: as much as all of them have, of which none may be without what is kept.
fn beside(one: CacheInfo, other: CacheInfo) -> CacheInfo {
    fn both<T: Copy>(join: impl Fn(T, T) -> T, one: Option<T>, other: Option<T>) -> Option<T> {
        one.zip(other).map(|(one, other)| join(one, other)).or(one).or(other)
    }
    CacheInfo {
        // Each line says it of all engines.
        blocks: one.blocks.max(other.blocks),
        block_tokens: one.block_tokens.or(other.block_tokens),
        found_tokens: one.found_tokens.or(other.found_tokens),
        tokens: both(u64::saturating_add, one.tokens, other.tokens),
        prefix_caching: both(|one, other| one && other, one.prefix_caching, other.prefix_caching),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen3-32b"} 12.0
vllm:num_requests_waiting{engine="0",model_name="qwen3-32b"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 900.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen3-32b"} 0.25
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="304000",mamba_block_size="None",num_gpu_blocks="19000",sliding_window="None"} 1.0
vllm:generation_tokens_total{engine="0",model_name="qwen3-32b"} 1.234567e+06
vllm:generation_tokens_created{engine="0",model_name="qwen3-32b"} 1.75e+09
vllm:prefix_cache_queries_total{engine="0",model_name="qwen3-32b"} 5.5e+06
vllm:prefix_cache_hits_total{engine="0",model_name="qwen3-32b"} 2.25e+06
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,tax",waiting_lora_adapters=""} 1.75e+09
process_start_time_seconds 1.75e+09
vllm:time_to_first_token_seconds_bucket{le="0.001"} 0.0
"#;

    #[test]
    fn the_usual_text_gives_all_gauges() {
        let want = Scrape {
            running: 12,
            waiting: 3,
            kv_usage: 0.25,
            cache: CacheInfo {
                blocks: Some(19_000),
                block_tokens: Some(16),
                found_tokens: None,
                tokens: Some(304_000),
                prefix_caching: Some(true),
            },
            generated: Some(1_234_567),
            cache_use: Some(CacheUse { queried: 5_500_000, found: 2_250_000 }),
            max_loras: Some(4),
            engines: 1,
            shared: false,
        };
        let engines = [want].into_iter().collect();
        let want = Gauges { scrape: want, engines, started_at_s: Some(1.75e9), alone: false };
        assert_eq!(parse(USUAL.as_bytes()), Ok(want.clone()));
        let named = |line: &&str| {
            line.starts_with('#')
                || NAMES.iter().chain(&COUNTERS).any(|name| {
                    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                })
        };
        let those: String = USUAL.lines().filter(named).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(parse(those.as_bytes()), Ok(Gauges { alone: true, ..want }));
    }

    #[test]
    fn the_older_name_of_the_cache_gauge_is_read_too() {
        let old = USUAL.replace(KV_USAGE, KV_USAGE_OLD);
        assert_eq!(parse(old.as_bytes()), parse(USUAL.as_bytes()));
    }

    #[test]
    fn several_engines_behind_one_port_add_up() {
        let second = USUAL.replace("engine=\"0\"", "engine=\"1\"").replace("0.25", "0.75");
        let scrape = parse(format!("{USUAL}{second}").as_bytes()).unwrap().scrape;
        let want = Scrape {
            running: 24,
            waiting: 6,
            kv_usage: 0.5,
            cache: CacheInfo {
                blocks: Some(19_000),
                block_tokens: Some(16),
                found_tokens: None,
                tokens: Some(608_000),
                prefix_caching: Some(true),
            },
            generated: Some(2 * 1_234_567),
            cache_use: Some(CacheUse { queried: 11_000_000, found: 4_500_000 }),
            max_loras: Some(4),
            engines: 2,
            shared: false,
        };
        assert_eq!(scrape, want);
    }

    #[test]
    fn each_of_several_engines_is_told_apart_by_the_order_of_their_numbers() {
        let line = |engine, running, kv_usage| {
            format!(
                "vllm:num_requests_running{{engine=\"{engine}\"}} {running}\n\
                 vllm:num_requests_waiting{{engine=\"{engine}\"}} 1.0\n\
                 vllm:kv_cache_usage_perc{{engine=\"{engine}\"}} {kv_usage}\n\
                 vllm:generation_tokens_total{{engine=\"{engine}\"}} {running}00\n\
                 vllm:cache_config_info{{block_size=\"16\",engine=\"{engine}\",num_gpu_blocks=\"30000\"}} 1.0\n"
            )
        };
        // The engines of the second node, by their numbers in the whole, and as text in no order.
        let text = [line("10", 7, 0.5), line("8", 5, 0.25), line("9", 6, 0.75)].concat();
        let gauges = parse(text.as_bytes()).unwrap();
        let seen = |rank| {
            let Scrape { running, kv_usage, generated, engines, cache, .. } = gauges.of(rank)?;
            Some((running, kv_usage, generated, engines, cache.blocks))
        };
        assert_eq!(seen(Some(0)), Some((5, 0.25, Some(500), 1, Some(10_000))));
        assert_eq!(seen(Some(1)), Some((6, 0.75, Some(600), 1, Some(10_000))));
        assert_eq!(seen(Some(2)), Some((7, 0.5, Some(700), 1, Some(10_000))));
        assert_eq!(seen(Some(3)), None, "there is none");
        assert_eq!(seen(None), Some((18, 0.5, Some(1800), 3, Some(30_000))), "all of them");
    }

    #[test]
    fn a_cache_of_no_engine_is_everybodys() {
        let text = "vllm:num_requests_running{engine=\"3\"} 1.0\n\
                    vllm:num_requests_waiting{engine=\"3\"} 0.0\n\
                    vllm:kv_cache_usage_perc{engine=\"3\"} 0.5\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"30000\"} 1.0\n";
        let gauges = parse(text.as_bytes()).unwrap();
        assert_eq!((gauges.scrape.engines, gauges.scrape.cache.blocks), (1, Some(30_000)));
    }

    /// An older vLLM with `--data-parallel-size 4`: the front end has summed the blocks of its engines, and writes that sum once
    /// for each of them.
    #[test]
    fn blocks_that_every_engines_line_says_of_all_engines_are_not_added_up_again() {
        let line = |engine| {
            format!(
                "vllm:num_requests_running{{engine=\"{engine}\"}} 1.0\n\
                 vllm:num_requests_waiting{{engine=\"{engine}\"}} 0.0\n\
                 vllm:kv_cache_usage_perc{{engine=\"{engine}\"}} 0.5\n\
                 vllm:cache_config_info{{block_size=\"16\",engine=\"{engine}\",num_gpu_blocks=\"76000\"}} 1.0\n"
            )
        };
        let scrape = parse((0..4).map(line).collect::<String>().as_bytes()).unwrap().scrape;
        assert_eq!((scrape.engines, scrape.cache.blocks), (4, Some(76_000)));
    }

    #[test]
    fn a_value_that_cannot_be_voids_the_scrape() {
        for value in ["NaN", "-1", "1e30", "+Inf", "twelve", ""] {
            let text = USUAL.replace("12.0", value);
            assert!(parse(text.as_bytes()).is_err(), "{value:?}");
        }
        assert_eq!(
            parse(USUAL.replace("} 0.25", "} 25").as_bytes()),
            Err(GaugeError::Unusable(KV_USAGE))
        );
    }

    #[test]
    fn a_count_of_tokens_that_cannot_be_is_none() {
        let none = |text: String| parse(text.as_bytes()).unwrap().scrape.generated;
        assert_eq!(none(USUAL.replace(GENERATED, "vllm:renamed")), None);
        for value in ["NaN", "-1", "1e30", "many"] {
            assert_eq!(none(USUAL.replace("1.234567e+06", value)), None, "{value:?}");
        }
        let none = |text: String| parse(text.as_bytes()).unwrap().scrape.cache_use;
        for wrong in [USUAL.replace(FOUND, "vllm:renamed"), USUAL.replace("2.25e+06", "-1")] {
            assert_eq!(none(wrong), None);
        }
    }

    #[test]
    fn a_gauge_that_is_missing_is_named() {
        let text = USUAL.replace("vllm:num_requests_running{", "vllm:renamed{");
        assert_eq!(parse(text.as_bytes()), Err(GaugeError::Missing(RUNNING)));
        assert_eq!(parse(b"<html>\xff"), Err(GaugeError::Missing(RUNNING)));
        assert_eq!(parse(b""), Err(GaugeError::Missing(RUNNING)));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic() {
        for garbage in ["}{", "vllm:num_requests_running}", "vllm:num_requests_running{ 1", "{ {"] {
            assert!(parse(garbage.as_bytes()).is_err(), "{garbage:?}");
        }
        assert_eq!(cache_info("{}{\"=,"), CacheInfo::default());
    }

    #[test]
    fn what_an_engine_does_not_say_of_its_cache_is_not_known() {
        let of = |labels| cache_info(labels);
        let none = "{block_size=\"None\",enable_prefix_caching=\"None\",num_gpu_blocks=\"None\",kv_cache_size_tokens=\"\"";
        assert_eq!(of(none), CacheInfo::default());
        let before = of(
            "{block_size=\"64\",cache_hit_alignment_tokens=\"528\",enable_prefix_caching=\"False\",mamba_block_size=\"32\",user_num_gpu_blocks=\"7\"",
        );
        let want = CacheInfo {
            block_tokens: Some(64),
            found_tokens: Some(528),
            prefix_caching: Some(false),
            ..CacheInfo::default()
        };
        assert_eq!(before, want, "labels of longer names are others");
        // One of several engines that keeps nothing of prompts decides for all of them.
        let kept = CacheInfo { prefix_caching: Some(true), ..CacheInfo::default() };
        assert_eq!(beside(kept, before).prefix_caching, Some(false));
        assert_eq!(beside(kept, CacheInfo::default()).prefix_caching, Some(true));
    }
}
