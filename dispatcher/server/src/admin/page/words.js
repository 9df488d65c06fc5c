// Numbers and reasons as people read them.

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const version = (value) => (value == null ? "–" : /^\d/.test(value) ? `v${value}` : value);
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value == null ? "–" : integer.format(value));
export const share = (value) => (value == null ? "–" : `${exact.format(Math.floor(value * 1000) / 10)} %`);
export const whole = (value) => (value == null ? "–" : `${Math.round(value * 100)} %`);
export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

/** Milliseconds, in the unit in which they are read: 47.5 ms, 840 ms, 2.31 s, 41 s, 2 min 10 s, 3 h 5 min. */
export function time(ms) {
  if (ms == null || !Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  if (size < 100) return `${exact.format(ms)} ms`;
  if (size < 1000) return `${integer.format(ms)} ms`;
  if (size < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (size < 120_000) return `${integer.format(ms / 1000)} s`;
  return parts(ms / 1000);
}

/** What a pod is taken out for, where it did not say why. */
export const inARow = (failures = 0) => `${count(failures)} ${failures === 1 ? "failure" : "failures in a row"}`;

/** A predicted drain: an hour is as far as it is predicted. */
export const drain = (ms) => (ms >= 3_600_000 ? "over 1 h" : time(ms));

/** Figures and their units, so that no line ends between them. */
export const unbroken = (text) => text.replace(/(\d) (ms|s|min|h|%)(?!\w)/g, "$1\u00a0$2");

export const minus = (number) => String(number).replace("-", "−");

function parts(s) {
  const sign = s < 0 ? "−" : "";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const from = units.findIndex(([, size]) => Math.abs(s) >= size);
  const [[big, size], small] = [units[from], units[from + 1]];
  const rest = Math.floor((Math.abs(s) % size) / small[1]);
  return `${sign}${Math.floor(Math.abs(s) / size)} ${big}${rest ? ` ${rest} ${small[0]}` : ""}`;
}

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  const unit = value < 1 ? 0 : Math.min(3, Math.floor(Math.log2(value) / 10));
  return `${exact.format(value / 1024 ** unit)} ${units[unit]}`;
}

const REASONS = {
  not_considered: () => "has just arrived",
  behind_its_lane: () => "behind the head of its lane",
  no_pod_ready: () => "no pod takes requests",
  behind_head: (r) => `behind request ${r.head}, which comes first`,
  pods_claimed: () => "every pod it may use is claimed by a head before it",
  pending_full: () => "the pods have as many prompts without a first token as they may",
  step_full: () => "on every pod another prompt begins with the next step",
  kv_full: () => "no pod has room in its KV cache",
  batch_full: () => "every pod runs as many sequences as it may",
  pods_full: () => "the pods say that they take no more for now",
  adapters_full: () => "every pod runs as many other LoRA adapters as it may",
  kv_kept: () => "what is left of the KV caches is kept for higher bands or for those in time",
  ttft_over_slo: (r) => `TTFT would be ${time(r.ttft_ms)}, objective ${time(r.slo_ms)}`,
  tpot_over_slo: (r) => `TPOT would be ${time(r.tpot_ms)}, limit ${time(r.limit_ms)}`,
  stall_over_budget: (r) => `its prefill would stall residents ${time(r.stall_ms)} and cost ${r.at_risk.toFixed(2)} of them their pace, ${r.bearable.toFixed(2)} at most`,
  waits_for_warm_pod: () => "waits for the pod that has its prefix",
  waits_for_faster_pod: () => "the empty pods would be late, a faster one may be in time",
  late: () => "can no longer make its objective; goes after those that can",
  pool_saturated: (r) => `the pool is ${share(r.saturation)} full, more than its band may use`,
  over_capacity: () => "over the profiled capacity on every pod",
  pods_stale: () => "the last scrape of every pod is too old",
  failure_domain: () => "every pod shares a failure domain with one that failed",
  latency_over_threshold: () => "over the latency threshold on every pod",
  paused: () => "paused by an operator",
};

/** Why something waits, as a sentence's end. */
export function why(reason) {
  if (!reason) return "";
  return inWords(REASONS, reason);
}

// A reason is its name alone, or has the figures of its sentence with it.
function inWords(words, reason) {
  const name = typeof reason === "string" ? reason : reason.reason;
  const known = words[name];
  return known && (known.length === 0 || typeof reason === "object") ? known(reason) : plain(name);
}

const VERDICTS = {
  pending_full: () => "prefill buffer full",
  step_full: () => "another prompt begins with the step",
  kv_full: () => "KV cache full",
  batch_full: () => "batch full",
  pod_full: () => "says it is full",
  adapters_full: () => "no slot for its adapter",
  kv_kept: () => "KV cache kept for others",
  stall_over_budget: (r) => `would stall residents ${time(r.stall_ms)} and cost ${r.at_risk.toFixed(2)} of ${r.bearable.toFixed(2)}`,
  ttft_over_slo: () => "TTFT over SLO",
  tpot_over_slo: (r) => `TPOT ${time(r.tpot_ms)} over ${time(r.limit_ms)}`,
  claimed: (r) => `claimed by ${r.by}`,
  left_to_others: () => "left to those in time",
  late: () => "too late everywhere",
};

/** Why one pod does not take a request, short enough for a table's cell. */
export function verdict(reason) {
  if (!reason) return "";
  return inWords(VERDICTS, reason);
}

export const plain = (name) =>
  String(name ?? "").replaceAll("_", " ").replace(/\b(slo|ttft|tpot|kv)\b/g, (word) => word.toUpperCase());
