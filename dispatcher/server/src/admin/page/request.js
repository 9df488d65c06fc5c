// One request: why it waits, drawn as time against its objective and as what each pod would make of it.

import { h, percent } from "./dom.js";
import { requestLink, podLink } from "./board.js";
import { bytes, count, minus, plain, time, unbroken, verdict, whole, why } from "./words.js";

const PODS_SHOWN = 20;
let allPods = false;

/** The blocks of a request's page, from GET /requests/{id}. */
export function drawRequest(of, again) {
  return [
    h("p", { class: "because" }, because(of)),
    of.explanation && h("p", { class: "explanation" }, unbroken(of.explanation)),
    of.state === "waiting" && timeline(of),
    facts(of),
    of.running && pace(of.running),
    of.decision && decision(of.decision),
    of.pods?.length ? podTable(of, again) : null,
    of.history?.length ? story(of.history) : null,
  ];
}

function because(of) {
  if (of.state === "running") return `Runs on ${of.pod ?? "a pod"}.`;
  if (of.state === "recent") return `Over: ${plain(of.history?.at(-1)?.what ?? "done").replace(/^ended: /, "")}.`;
  const head = of.reason?.head;
  if (head == null) return `Waits: ${why(of.reason)}.`;
  return ["Waits: behind ", h("a", { href: requestLink({ pool: of.pool, id: head }) }, `request ${head}`), ", which comes first."];
}

const best = (pods = []) => pods.filter((pod) => pod.ttft_ms != null).sort((a, b) => a.ttft_ms - b.ttft_ms)[0];

// From arrival to the first token: what has passed, what the best pod would still need, and the SLO.
function timeline(of) {
  const first = best(of.pods);
  const slo = of.ttft_slo_ms;
  const end = Math.max(of.age_ms, first?.ttft_ms ?? 0, slo ?? 0) * 1.06 || 1;
  const late = slo != null && (first?.ttft_ms ?? of.age_ms) > slo;
  const part = (ms) => percent((ms ?? 0) / end);
  const vars = { "--age": part(of.age_ms), "--first": part(first?.ttft_ms ?? of.age_ms), "--slo": part(slo) };
  return h("figure", { class: "timeline", vars, "data-level": late ? "late" : "ok" },
    h("div", { class: "track", role: "img", "aria-label": `waited ${time(of.age_ms)}, objective ${time(slo)}` },
      h("i", { class: "waited" }), h("i", { class: "ahead" }), slo != null && h("i", { class: "slo" })),
    h("figcaption", {},
      h("span", {}, `waited ${time(of.age_ms)}`),
      first && h("span", {}, `first token predicted at ${time(first.ttft_ms)}, on ${first.pod}`),
      slo != null ? h("span", { class: "goal" }, `objective ${time(slo)}`) : h("span", {}, "no TTFT objective")));
}

function facts(of) {
  const waits = of.state === "waiting";
  const all = [
    ["left", waits && of.deadline_ms == null ? "no deadline" : time(of.deadline_ms)], ["slack", time(of.slack_ms)],
    ["TPOT SLO", time(of.tpot_slo_ms)], ["band", of.band == null ? null : minus(of.band)], ["tenant", of.tenant || "–"], ["adapter", of.adapter ?? of.running?.adapter],
    ["input tokens", count(of.input_tokens)], [waits ? "output tokens, predicted" : "output tokens", count(of.output_tokens)],
    ["body", bytes(of.body_bytes)], ["attempts", of.attempts], ["answer", of.streamed == null ? null : of.streamed ? "streamed" : "in one piece"],
  ];
  return factList(all);
}

export const factList = (all) =>
  h("dl", { class: "facts" }, all.filter(([, value]) => value != null && value !== "–")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

function pace(view) {
  return h("section", {}, h("h3", {}, "On its pod"), factList([
    ["waited", time(view.wait_ms)], ["TTFT", time(view.ttft_ms)], ["predicted", time(view.predicted_ttft_ms)],
    ["TPOT", time(view.tpot_ms)], ["predicted ", time(view.predicted_tpot_ms)], ["tokens", count(view.tokens)],
  ]));
}

function decision(of) {
  const lost = (of.alternatives ?? []).filter((other) => other.pod !== of.pod);
  const against = (other) => (other.verdict ? `, ${verdict(other.verdict)}` : other.kept ? ", kept for long prompts" : "");
  const words = (other) => `${other.pod} ${time(other.ttft_ms)}${against(other)}`;
  const where = of.pod ? ` to ${of.pod}` : `, ${plain(of.reason)}`;
  const when = of.ttft_ms == null ? "" : `, TTFT predicted ${time(of.ttft_ms)}`;
  const rather = lost.length ? ` Rather than ${lost.map(words).join("; ")}.` : "";
  return h("section", {}, h("h3", {}, "Decision"), h("p", {}, `${plain(of.kind)}${where} after ${time(of.wait_ms)}${when}.${rather}`));
}

// Hundreds of pods are read as a count per verdict first, then as a table of the nearest ones.
function podTable(of, again) {
  const pods = [...of.pods].sort((a, b) => b.fits - a.fits || (b.headroom_ms ?? -1e12) - (a.headroom_ms ?? -1e12));
  const shown = allPods ? pods : pods.slice(0, PODS_SHOWN);
  const onclick = () => ((allPods = !allPods), again());
  const more = pods.length > PODS_SHOWN
    && h("button", { class: "quiet", type: "button", onclick }, allPods ? "Show the nearest" : `Show all ${count(pods.length)}`);
  return h("section", {}, h("h3", {}, `What each pod says `, h("span", { class: "note" }, "most headroom first")),
    tally(pods),
    h("div", { class: "wide" }, h("table", { class: "looks" }, looksHead(), h("tbody", {}, shown.map((look) => lookRow(look, of))))), more);
}

// A pod that takes nothing says so by its phase alone.
const said = (look) => (look.fits ? "fits" : verdict(look.verdict) || look.phase);
const kind = (look) => (look.fits ? "fits" : verdict(look.verdict?.reason ?? look.verdict) || look.phase);

function tally(pods) {
  const counts = new Map();
  for (const look of pods) counts.set(kind(look), (counts.get(kind(look)) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return h("ul", { class: "tally" }, sorted.map(([name, number]) =>
    h("li", { vars: { "--part": percent(number / pods.length) }, "data-level": name === "fits" ? "ok" : null }, h("b", {}, count(number)), ` ${name}`)));
}

const LOOKS = ["pod", "verdict", "TTFT", "headroom", "TPOT", "cached", "to prefill", "ahead of it", "on it", "KV after", "stall"];
const looksHead = () =>
  h("thead", {}, h("tr", {}, LOOKS.map((name, index) => h("th", { scope: "col", class: index > 1 ? "number" : null }, name))));

function lookRow(look, of) {
  const stall = look.stall_budget_ms == null ? time(look.stall_ms) : `${time(look.stall_ms)} of ${time(look.stall_budget_ms)}`;
  const on = look.pending ? `${count(look.residents)} + ${count(look.pending)}` : count(look.residents);
  const numbers = [
    time(look.ttft_ms), time(look.headroom_ms), time(look.tpot_ms), count(look.cached_tokens), count(look.uncached_tokens),
    count(look.backlog_tokens), on, whole(look.kv_after), stall,
  ];
  const head = look.claimed_by ?? look.verdict?.by;
  const claimed = head != null && h("a", { href: requestLink({ pool: of.pool, id: head }) }, `claimed by ${head}`);
  return h("tr", { "data-level": look.fits ? "ok" : look.headroom_ms < 0 ? "late" : null, title: look.text },
    h("th", { scope: "row" }, h("a", { href: podLink({ pool: of.pool, pod: look.pod }) }, look.pod)),
    h("td", {}, claimed || said(look)), numbers.map((text) => h("td", { class: "number" }, text)));
}

function story(history) {
  return h("section", {}, h("h3", {}, "History"), h("ol", { class: "story" }, history.map((step) =>
    h("li", {}, h("time", {}, step.at_ms == null ? "" : `${time(step.at_ms)} ago`), h("span", {}, plain(step.what))))));
}
