// What comes with every board: vital figures, trouble, lanes, classes, refusals, decisions.

import { at, h, keyed, mark, percent, put, vary } from "./dom.js";
import { bytes, count, drain, inARow, minus, plain, share, time, version, why } from "./words.js";

const LANES_SHOWN = 10;
const DECISIONS_SHOWN = 40;
let allLanes = false;

export const link = (kind, query) => `#${kind}?${new URLSearchParams(query)}`;

export function drawBoard(board, pool) {
  vitals(pool);
  trouble(pool, board);
  lanes(board.queues);
  classes(pool.attainment);
  sheds(pool.refused);
}

function vitals(pool) {
  const figures = [
    ["waiting", count(pool.waiting), bytes(pool.waiting_bytes)],
    ["oldest", time(pool.oldest_wait_ms), "since arrival"],
    ["drains in", drain(pool.drain_ms), "predicted"],
    ["late", count(pool.late), pool.late ? "cannot make it" : "none", pool.late ? "late" : null, link("find", { pool: pool.pool, late: true })],
    ["in flight", count(pool.in_flight), "on pods"],
    ["pods", `${count(pool.pods_ready)}/${count(pool.pods)}`, pool.need ? `${count(pool.need.pods)} needed` : "take requests", pool.pods_ready < pool.pods ? "tight" : null],
    ["attained", attained(pool.attainment), worst(pool.attainment)],
    ["model", pool.model_version == null ? "none" : version(pool.model_version), `policy ${pool.policy}`],
  ];
  keyed(at("vitals"), figures, ([name]) => name, makeVital, drawVital);
}

const makeVital = ([name, , , , href]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("a", { href })), h("dd", { class: "note" }));

function drawVital(el, [, value, note, level]) {
  put(el.children[1].firstChild, value);
  put(el.children[2], note);
  mark(el, "class", level);
}

const className = (of) => (of.objective ? `${of.objective} · ${minus(of.band)}` : `band ${minus(of.band)}`);
const rate = (of) => (of.sent ? of.attained / of.sent : null);

function attained(all = []) {
  const sum = (name) => all.reduce((total, of) => total + of[name], 0);
  return share(rate({ sent: sum("sent"), attained: sum("attained") }));
}

function worst(all = []) {
  const known = all.filter((of) => of.sent).sort((a, b) => rate(a) - rate(b));
  return known.length ? `lowest: ${className(known[0])}, ${share(rate(known[0]))}` : "nothing sent yet";
}

// Trouble is said in sentences, worst first, each a way to where it is seen.
function trouble(pool, board) {
  const found = [...poolTrouble(pool), ...laneTrouble(board.queues), ...podTrouble(board.pods)].slice(0, 5);
  at("trouble").hidden = !found.length;
  keyed(at("trouble"), found, (one) => one.href, makeTrouble, drawTrouble);
}

function* poolTrouble(pool) {
  if (pool.draining) yield { level: "late", what: "Weir is shutting down", why: "it takes no new requests", href: "#main" };
  if (pool.decided_by) yield { level: "tight", what: `The dispatcher at ${pool.decided_by} decides`, why: "what waits is there", href: "#main" };
  if (!pool.pods_ready) yield { level: "late", what: "No pod takes requests", why: "everything waits", href: "#pods" };
  if (pool.paused) yield { level: "tight", what: "The pool is paused", why: "it accepts and holds", href: "#lanes" };
}

function* laneTrouble(queues) {
  for (const lane of queues.filter((lane) => lane.risk.late).slice(0, 3)) {
    const head = lane.paused ? "paused by an operator" : `head: ${why(lane.reason)}`;
    const late = `${count(lane.risk.late)} of ${count(lane.depth)} too late`;
    yield { level: "late", what: `${lane.lane}: ${late}`, why: head, href: laneLink(lane) };
  }
}

function* podTrouble(pods) {
  const broken = pods.filter((pod) => pod.breaker?.open || pod.phase === "broken");
  if (!broken.length) return;
  const [first, ...others] = broken;
  const names = broken.slice(0, 4).map((pod) => pod.pod).join(", ");
  const what = others.length ? `${broken.length} pods are broken` : `${first.pod} is broken`;
  const reason = plain(first.breaker?.reason ?? inARow(first.breaker?.failures));
  yield { level: "tight", what, why: others.length ? `${names}${broken.length > 4 ? ", …" : ""}; the first: ${reason}` : reason, href: podLink(first) };
}

const makeTrouble = (one) => h("li", {}, h("a", { href: one.href }, h("b"), h("span")));

function drawTrouble(el, one) {
  mark(el, "class", one.level);
  put(el.querySelector("b"), one.what);
  put(el.querySelector("span"), one.why);
}

export const laneLink = (lane) => link("lane", { pool: lane.pool, lane: lane.lane });
export const podLink = (pod) => link("pod", { pool: pod.pool, pod: pod.pod });
export const requestLink = (of) => link("request", { pool: of.pool ?? "", id: of.id == null ? of.request_id : `#${of.id}` });

function lanes(queues) {
  const deepest = Math.max(1, ...queues.map((lane) => lane.depth));
  const shown = allLanes ? queues : queues.slice(0, LANES_SHOWN);
  const items = shown.map((lane) => ({ ...pick(lane), scale: Math.sqrt(lane.depth / deepest) }));
  keyed(at("lane-rows"), items, (lane) => lane.lane, makeLane, drawLane);
  put(at("lanes-note"), queues.length ? `${queues.length}, most at risk first` : "nothing waits");
  const more = at("lanes-more");
  more.hidden = queues.length <= LANES_SHOWN;
  put(more, allLanes ? "Show fewer" : `Show all ${queues.length}`);
  more.onclick = () => ((allLanes = !allLanes), lanes(queues));
}

const pick = ({ pool, lane, pattern, band, depth, risk, scanned, head_wait_ms, paused, reason }) => ({
  pool, lane, pattern, band, depth, risk, scanned, paused,
  waited: time(head_wait_ms),
  why: paused ? "paused by an operator" : why(reason),
});

function makeLane(lane) {
  const bar = h("span", { class: "bar" }, ...["late", "tight", "ok"].map((level) => h("i", { class: level })));
  const cells = ["name", "depth", "lates", "waited", "why"].map((name) => h("span", { class: name }));
  cells.splice(1, 0, bar);
  return h("div", { role: "listitem" }, h("a", { class: "lane", href: laneLink(lane) }, cells));
}

function drawLane(el, lane) {
  const a = el.firstElementChild;
  const text = (name, value) => put(a.querySelector(`.${name}`), value);
  const { late = 0, tight = 0, ok = 0 } = lane.risk ?? {};
  // A lane that is younger than the last count has no risk yet: its bar stays grey.
  const known = late + tight + ok;
  vary(a, "--depth", percent(lane.scale));
  for (const [name, value] of [["late", late], ["tight", tight], ["ok", ok]])
    vary(a.querySelector(`.bar .${name}`), "--part", percent(known ? value / known : 0));
  text("name", lane.lane);
  text("depth", count(lane.depth));
  text("lates", late ? `${count(late)} late` : tight ? `${count(tight)} tight` : known ? "in time" : "not counted");
  mark(a.querySelector(".lates"), "data-level", late ? "late" : tight ? "tight" : "ok");
  text("waited", lane.waited);
  text("why", lane.why);
  mark(a, "data-paused", lane.paused);
}

function classes(all = []) {
  const items = [...all].sort((a, b) => b.band - a.band);
  keyed(at("class-rows"), items, (of) => of.band, makeClass, drawClass);
}

const makeClass = () =>
  h("div", { class: "class", role: "listitem" }, h("span", { class: "name" }), h("span", { class: "bar" }, h("i")), h("b"), h("span", { class: "note" }));

function drawClass(el, of) {
  const held = rate(of);
  put(el.children[0], className(of));
  vary(el.children[1], "--depth", percent(held));
  put(el.children[2], share(held));
  mark(el, "data-level", held == null ? null : held >= 0.95 ? "ok" : held >= 0.9 ? "tight" : "late");
  put(el.children[3], `${count(of.attained)} of ${count(of.sent)} in ${time(of.window_s * 1000)}, ${count(of.refused)} refused`);
}

function sheds(refused = {}) {
  const items = Object.entries(refused).filter(([, number]) => number).sort((a, b) => b[1] - a[1]);
  const most = items[0]?.[1] ?? 1;
  const total = items.reduce((sum, [, number]) => sum + number, 0);
  put(at("sheds-note"), total ? count(total) : "nothing");
  keyed(at("shed-rows"), items.map((item) => [...item, most]), ([name]) => name, makeShed, drawShed);
}

const makeShed = ([name]) =>
  h("div", { class: "shed", role: "listitem" }, h("span", { class: "name" }, plain(name)), h("span", { class: "bar" }, h("i")), h("b"));

function drawShed(el, [, number, most]) {
  vary(el.children[1], "--depth", percent(number / most));
  put(el.children[2], count(number));
}

let decided = [];

/** Puts new decisions before those shown. */
export function drawDecisions(fresh, pool) {
  const known = new Set(decided.map((one) => one.key));
  const stamped = fresh.map((one) => ({ ...one, key: `${one.pool}/${one.number}`, time: Date.now() - one.at_ms }));
  decided = [...stamped.filter((one) => !known.has(one.key)), ...decided].slice(0, DECISIONS_SHOWN);
  const items = decided.filter((one) => one.pool === pool);
  put(at("decisions-note"), items.length ? `the last ${items.length}` : "none yet");
  keyed(at("decision-rows"), items, (one) => one.key, makeDecision, () => {});
}

function note(one, lost) {
  if (one.reason === "shared_prompt") return "for all who share its prompt";
  return one.kind === "dispatch" && lost.length ? `rather than ${lost.join(", ")}` : `waited ${time(one.wait_ms)}`;
}

function makeDecision(one) {
  const [first, second] = one.alternatives?.filter((other) => other.pod !== one.pod) ?? [];
  const lost = [first, second].filter(Boolean).map((other) => `${other.pod} ${time(other.ttft_ms)}`);
  return h("div", { role: "listitem" }, h("a", { class: "decision", href: requestLink(one), "data-kind": one.kind },
    h("time", {}, new Date(one.time).toLocaleTimeString("en-GB")),
    h("b", {}, one.kind),
    h("span", { class: "name" }, one.request_id || one.id),
    h("span", {}, one.pod ? `to ${one.pod}, TTFT ${time(one.ttft_ms)}` : why(one.waited_for ?? one.reason)),
    h("span", { class: "note" }, note(one, lost))));
}
