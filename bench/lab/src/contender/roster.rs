//! The names, with a line about each: what `--policy` takes and what the documentation lists.

/// A contender that can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether it is one of those that Weir is to beat wherever requests are served, and not Weir itself.
    pub rival: bool,
}

const fn rival(name: &'static str, about: &'static str) -> Entry {
    Entry { name, about, rival: true }
}

const fn own(name: &'static str, about: &'static str) -> Entry {
    Entry { name, about, rival: false }
}

/// A rival that decides as the one before it where no request asks for an adapter: not one of `rivals`, who would be there twice.
const fn of_adapters(name: &'static str, about: &'static str) -> Entry {
    Entry { name, about, rival: false }
}

/// Caps per pod that a sweep tries.
pub(super) const CAPS: [&str; 9] =
    ["cap-16", "cap-24", "cap-32", "cap-48", "cap-64", "cap-96", "cap-128", "cap-192", "cap-256"];

/// Everybody, in the order in which tables show them.
pub(super) const ENTRIES: [Entry; 61] = [
    own("weir", "hold until a pod has headroom; the default of weir serve"),
    rival("round-robin", "push at once, each pod in turn"),
    rival("random", "push at once to any pod"),
    rival("least-request", "push at once to the pod with the fewest requests in flight"),
    rival(
        "power-of-two",
        "push at once to the one of two drawn pods with fewer requests in flight",
    ),
    rival("jspt", "push to the pod with the lowest predicted TTFT"),
    rival(
        "load-prefix",
        "llm-d's scorers for KV use, queue and prefix, weighted 1, 1, 1, on Weir's ledger",
    ),
    rival("load-prefix-322", "the same, prefix, queue and KV use weighted 3, 2, 2"),
    rival("predicted-latency", "llm-d: push by predicted headroom, drawn by score, packing"),
    rival("pl-least", "llm-d's predicted latency, the pod with the least positive headroom"),
    rival("pl-most", "llm-d's predicted latency, the pod with the most headroom"),
    rival("slo-aware", "llm-d's SLO-aware routing: pods with headroom, drawn by score"),
    rival("llmd-composite", "llm-d's default scorers 3, 2, 2 on the last scrape alone"),
    of_adapters("llmd-lora", "the same with its LoRA affinity scorer, weight 1"),
    rival(
        "llmd-fc",
        "llm-d's flow control: earliest deadline at mean saturation, then llmd-composite",
    ),
    of_adapters("llmd-fc-lora", "the same with its LoRA affinity scorer, weight 1"),
    rival("flow-control", "the rules of llmd-fc on Weir's ledger"),
    rival("llumnix-slo", "Llumnix: the lowest predicted latency, none at or above its threshold"),
    rival("sglang-cache-aware", "SGLang's router: longest known prefix while loads are balanced"),
    rival("dynamo-kv", "NVIDIA Dynamo: fewest blocks to compute and to hold"),
    rival("aibrix-pull", "AIBrix: pull by profiled capacity, least slack first, backfill"),
    rival("pattern-pull", "the same with a strict head and demotion"),
    rival("slices", "Knative: 100 slots per pod in turn behind one queue; slices-N for N"),
    rival("cap-16", "one queue, at most 16 requests in flight per pod; cap-N for any N"),
    rival("cap-24", "the same with 24"),
    rival("cap-32", "the same with 32"),
    rival("cap-48", "the same with 48"),
    rival("cap-64", "the same with 64"),
    rival("cap-96", "the same with 96"),
    rival("cap-128", "the same with 128"),
    rival("cap-192", "the same with 192"),
    rival("cap-256", "the same with 256"),
    rival(
        "cap-16-bands",
        "one queue, the highest band first, at most 16 in flight per pod; cap-N-bands for any N",
    ),
    rival("cap-32-bands", "the same with 32"),
    rival("cap-64-bands", "the same with 64"),
    rival("cap-128-bands", "the same with 128"),
    own("weir:order-deadline", "weir without a head start of long prompts"),
    own("weir:order-fifo", "weir in the order of arrival"),
    own("weir:order-slack", "weir, the least slack first"),
    own("weir:order-violation", "weir, the likeliest violation first"),
    own("weir:strict", "weir, nothing passes a head that found no pod"),
    own("weir:reservation", "weir, a head always claims a pod and much smaller ones pass it"),
    own("weir:backfill", "weir, whatever fits passes a head"),
    own("weir:push", "weir's placement, never holding"),
    own("weir:no-demotion", "weir, lost causes keep their place"),
    own("weir:refuse", "weir, what cannot be in time is refused"),
    own("weir:no-affinity", "weir, nobody waits for a warm pod"),
    own("weir:binds-0.1", "weir, lower bands are held back a tenth of a TTFT later; binds-X"),
    own("weir:margin-1.0", "weir using all of a TPOT objective; margin-X for any share"),
    own("weir:margin-0.9", "weir using 90 % of a TPOT objective"),
    own("weir:buffer-0", "weir, no prompt is sent while another is pending; buffer-N for any N"),
    own("weir:buffer-1024", "weir, 1024 prompt tokens pending"),
    own("weir:buffer-8192", "weir, 8192 prompt tokens pending"),
    own("weir:buffer-unbounded", "weir, any number of prompts pending"),
    own(
        "weir:risk-0.02",
        "weir, a prefill may cost .02 residents their pace, however long it waited; risk-X",
    ),
    own("weir:risk-0.5", "weir, half of one at once"),
    own(
        "weir:holds-1",
        "weir, a blocked head holds its own band back however long requests wait; holds-X for a share",
    ),
    own(
        "weir:late-1",
        "weir, late requests leave no pods to those that can be in time; late-X for a share",
    ),
    own("weir:spread", "weir, no pods kept for long prompts"),
    own("weir:length-known", "weir told the length of every answer"),
    own("weir:perfect", "weir told every length and what every step costs"),
];
