// One pod: how much room it has, how far its drain is, and what is on it.

import { h, percent } from "./dom.js";
import { requestLink } from "./board.js";
import { levelOf, used } from "./pods.js";
import { factList } from "./request.js";
import { count, inARow, minus, plain, share, time } from "./words.js";

/** The blocks of a pod's page, from GET /pods/{name}. */
export function drawPod(of) {
  const { pace, kv } = used(of);
  return [
    of.breaker?.open && h("p", { class: "because late" }, `Broken: ${plain(of.breaker.reason ?? inARow(of.breaker.failures))}.`),
    of.drain && draining(of),
    h("div", { class: "meters", "data-level": levelOf(of) },
      meter("Step against the tightest TPOT", pace, of.tightest_tpot_ms ? `${time(of.step_ms)} of ${time(of.tightest_tpot_ms)}` : `${time(of.step_ms)}, nobody has one`),
      meter("KV cache", kv, share(kv))),
    factList(podFacts(of)),
    h("section", {}, h("h3", {}, "On it ", h("span", { class: "note" }, "tightest TPOT first")), residents(of)),
  ];
}

function meter(name, part, text) {
  const level = part > 1 ? "late" : part > 0.9 ? "tight" : "ok";
  return h("div", { class: "meter", vars: { "--part": percent(part) }, "data-level": level }, h("span", {}, name), h("b", {}, text), h("i"));
}

const podFacts = (of) => [
  ["residents", count(of.residents)], ["before first token", count(of.pending)], ["tokens to prefill", count(of.pending_tokens)],
  ["stall they bear", time(of.stall_budget_ms)], ["engine runs", count(of.running)], ["engine queues", count(of.queued)],
  ["ledger − scrape", signed(of.ledger_minus_scrape)], ["last scrape", of.scrape_age_ms == null ? null : `${time(of.scrape_age_ms)} ago`],
  ["adapters", (of.adapters ?? []).map((one) => `${one.name} ${one.requests}${one.gives_way ? " (gives way)" : ""}`).join(", ") || null],
  ["TTFT error", share(of.error_ttft)], ["TPOT error", share(of.error_tpot)], ["dispatched so far", count(of.dispatched)],
];

const signed = (value) => (value == null ? null : value > 0 ? `+${count(value)}` : count(value));
const mostLeft = new Map();

// How many there were when the drain began is not told: the most that this page has seen.
function draining(of) {
  const most = Math.max(mostLeft.get(of.pod) ?? 0, of.drain.left, 1);
  mostLeft.set(of.pod, most);
  const words = of.phase === "drained" ? "Drained: nothing is left on it. It may be stopped."
    : `${of.phase === "leaving" ? "It left the pool" : "Draining for"} ${time(of.drain.since_ms)}${of.phase === "leaving" ? " ago" : ""}: ${awaited(of.drain)}.`;
  const done = 1 - of.drain.left / most;
  return h("figure", { class: "drain", vars: { "--part": percent(done) } },
    h("div", { class: "track", role: "progressbar", "aria-label": "drained", "aria-valuenow": Math.round(done * 100) }, h("i")),
    h("figcaption", {}, words));
}

// Beside what this pool has sent there may be requests of others, which its scrapes count.
function awaited({ left, others, expected_ms: expected }) {
  if (left) return `${count(left)} left${expected == null ? "" : `, about ${time(expected)} to go`}`;
  return others == null ? "0 left; its next scrape tells whether more is on it" : `${count(others)} on it that this dispatcher did not send`;
}

const HEADS = ["request", "band", "waited", "TTFT", "its SLO", "TPOT", "its SLO", "tokens"];

function residents(of) {
  if (!of.requests?.length) return h("p", { class: "note" }, "Nothing.");
  const heads = HEADS.map((name, index) => h("th", { scope: "col", class: index ? "number" : null }, name));
  const rows = of.requests.map((one) => residentRow(one, of));
  return h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}

function residentRow(one, pod) {
  const first = one.ttft_ms == null ? null : one.wait_ms + one.ttft_ms;
  const over = (value, slo) => (value != null && slo != null && value > slo ? "number late" : "number");
  const cell = (text, kind = "number") => h("td", { class: kind }, text);
  return h("tr", {}, h("th", { scope: "row" }, h("a", { href: requestLink({ ...one, pool: pod.pool }) }, one.request_id || one.id)),
    cell(minus(one.band)), cell(time(one.wait_ms)),
    cell(one.decoding || first == null ? time(first) : `${time(first)}…`, over(first, one.ttft_slo_ms)), cell(time(one.ttft_slo_ms)),
    cell(time(one.tpot_ms), over(one.tpot_ms, one.tpot_slo_ms)), cell(time(one.tpot_slo_ms)),
    cell(count(one.tokens)));
}
