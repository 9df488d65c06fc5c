// The pods: one cell each, trouble first. Five hundred cells are drawn once; afterwards only those
// whose figures changed are touched.

import { at, h, keyed, mark, percent, put, vary } from "./dom.js";
import { podLink } from "./board.js";
import { count, time, unbroken, whole } from "./words.js";

/** Up to so many pods have cells with words in them. */
const ROOMY = 24;
/** A phone shows so many, until it is asked for all. */
const ON_PHONE = 40;
const phone = matchMedia("(max-width: 640px)");
let allPods = false;
const RANK = { broken: 0, draining: 1, leaving: 1, drained: 2, cordoned: 3, ready: 5 };
const MARKS = { broken: "✕", draining: "↓", leaving: "→", drained: "○", cordoned: "‖", ready: "" };

/** How much of a pod is used: its step against the tightest TPOT it holds, and its KV cache. */
export function used(pod) {
  const pace = pod.tightest_tpot_ms ? pod.step_ms / pod.tightest_tpot_ms : 0;
  return { pace, kv: pod.kv_usage ?? 0 };
}

export function levelOf(pod) {
  const { pace, kv } = used(pod);
  if (pod.phase === "broken" || pod.breaker?.open) return "late";
  if (pod.phase !== "ready") return "off";
  if (pace > 1 || kv > 0.98) return "late";
  return pace > 0.9 || kv > 0.9 ? "tight" : "ok";
}

// Whole steps only, so that cells do not change places with every scrape.
function rank(pod) {
  const level = levelOf(pod);
  if (level === "late" && pod.phase === "ready") return RANK.broken + 0.5;
  return level === "tight" ? 4 : (RANK[pod.phase] ?? 5);
}

export function drawPods(pods) {
  const cells = at("pod-cells");
  const prefix = pods.length > ROOMY ? common(pods) : "";
  const items = pods.map((pod) => cell(pod, prefix)).sort((a, b) => a.rank - b.rank || (a.pod < b.pod ? -1 : 1));
  mark(cells, "class", items.length > ROOMY ? "dense" : "roomy");
  const shown = phone.matches && !allPods ? items.slice(0, ON_PHONE) : items;
  const more = at("pods-more");
  more.hidden = shown.length === items.length;
  more.onclick = () => ((allPods = true), drawPods(pods));
  put(more, `Show all ${items.length}`);
  keyed(cells, shown, (pod) => pod.key, make, draw);
  put(at("pods-note"), summary(items, prefix));
}

// Names of hundreds of pods begin alike: what they share is said once.
function common(pods) {
  const [first, last] = pods.map((pod) => pod.pod).sort().filter((_, index, all) => index === 0 || index === all.length - 1);
  let end = 0;
  while (end < first.length && first[end] === last[end]) end += 1;
  return first.slice(0, end).replace(/[^-_.]*$/, "");
}

function cell(pod, prefix) {
  const { pace, kv } = used(pod);
  return {
    // Beside one that leaves there may be another of its name.
    key: pod.phase === "leaving" ? `${pod.pod} ${pod.address}` : pod.pod,
    pool: pod.pool, pod: pod.pod, short: `\u200e${pod.pod.slice(prefix.length)}\u200e`, phase: pod.phase, level: levelOf(pod), rank: rank(pod),
    residents: pod.residents, pending: pod.pending, pace: percent(pace), kv: percent(kv), full: whole(kv),
    step: time(pod.step_ms), tightest: pod.tightest_tpot_ms && time(pod.tightest_tpot_ms), left: pod.drain?.left,
  };
}

function make(pod) {
  const gauge = (name) => h("i", { class: `gauge ${name}` });
  // A tooltip for 500 cells is written when it is looked at, not once a second.
  const onpointerenter = (event) => mark(event.target, "title", event.target.getAttribute("aria-label"));
  return h("div", { role: "listitem" }, h("a", { href: podLink(pod), class: "pod", onpointerenter },
    h("span", { class: "mark" }), h("span", { class: "name" }), h("b"), gauge("pace"), gauge("kv"), h("span", { class: "words" })));
}

function draw(el, pod) {
  const a = el.firstElementChild;
  const title = words(pod);
  mark(a, "data-level", pod.level);
  mark(a, "data-phase", pod.phase);
  mark(a, "aria-label", `${pod.pod}: ${title}`);
  put(a.querySelector(".name"), pod.short);
  put(a.querySelector(".mark"), MARKS[pod.phase] ?? "");
  put(a.querySelector("b"), pod.left ?? pod.residents);
  put(a.querySelector(".words"), title);
  vary(a, "--pace", pod.pace);
  vary(a, "--kv", pod.kv);
}

function words(pod) {
  const state = pod.phase === "ready" ? "" : pod.left ? `${pod.phase}, ${count(pod.left)} left. ` : `${pod.phase}. `;
  const pace = pod.tightest ? `step ${pod.step} of ${pod.tightest}` : `step ${pod.step}`;
  return unbroken(`${state}${count(pod.residents)} resident${pod.residents === 1 ? "" : "s"}, ${count(pod.pending)} before the first token, ${pace}, KV ${pod.full}`);
}

function summary(items, prefix) {
  const off = ["broken", "draining", "leaving", "drained", "cordoned"]
    .map((phase) => [items.filter((pod) => pod.phase === phase).length, phase])
    .filter(([number]) => number)
    .map(([number, phase]) => `${number} ${phase}`);
  const tight = items.filter((pod) => pod.phase === "ready" && pod.level !== "ok").length;
  return [`${items.length}`, ...off, tight && `${tight} with little room`, "trouble first", prefix && `names begin with ${prefix}`].filter(Boolean).join(" · ");
}
