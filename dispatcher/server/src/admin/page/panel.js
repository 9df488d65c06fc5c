// The panel beside the board: a lane's requests, a tenant's, one request, one pod. What it shows is in
// the address, so it can be sent to a colleague.

import { at, h, mark, put, redraw } from "./dom.js";
import { get } from "./api.js";
import { link, requestLink } from "./board.js";
import { cancelMany, cancelRequest, changePod, moveRequest, pauseLane } from "./acts.js";
import { requestList } from "./list.js";
import { drawPod } from "./pod.js";
import { drawRequest, factList } from "./request.js";
import { bytes, count, drain, minus, time, why } from "./words.js";

const EVERY_MS = 2000;
const KINDS = { lane: lanePage, find: findPage, request: requestPage, pod: podPage };
let open = null;
let board = null;
let cameFrom = null;

/** Tells the panel of a new board: lanes are drawn from it. */
export function seeBoard(fresh) {
  board = fresh;
}

/** Opens what the address says, or closes the panel. */
export function route() {
  const [kind, query] = location.hash.slice(1).split("?");
  if (query == null && open == null) return;
  stop();
  const make = KINDS[kind];
  const panel = at("panel");
  const was = !panel.hidden;
  panel.hidden = !make || query == null;
  mark(document.body, "data-panel", !panel.hidden);
  if (panel.hidden) return giveBack();
  if (!was) cameFrom = document.activeElement;
  start(make(Object.fromEntries(new URLSearchParams(query))), panel);
}

// The focus goes back to where it came from, unless it has gone elsewhere since.
function giveBack() {
  const free = document.activeElement === document.body || at("panel").contains(document.activeElement);
  if (free && cameFrom?.isConnected) cameFrom.focus();
  cameFrom = null;
}

function stop() {
  clearInterval(open?.timer);
  open = null;
}

export function close() {
  if (open) location.hash = "";
}

// The frame stays while its contents change: the buttons keep the focus.
function start(page, panel) {
  const frame = {
    title: h("h2", { tabindex: -1 }, page.title), note: h("p", { class: "note" }, "Reading…"),
    acts: h("p", { class: "acts" }), body: h("div", { class: "body" }),
  };
  const shut = h("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: close }, "✕");
  panel.replaceChildren(h("div", { class: "top" }, frame.title, shut), frame.note, frame.acts, frame.body);
  const mine = { ...page, frame, timer: 0, data: null };
  mine.update = () => update(mine);
  open = mine;
  mine.timer = setInterval(mine.update, EVERY_MS);
  mine.update();
  frame.title.focus({ preventScroll: true });
}

async function update(page) {
  if (document.hidden) return;
  try {
    const data = await page.load();
    if (open !== page) return;
    page.data = data;
    draw(page);
  } catch (error) {
    put(page.frame.note, error.message);
  }
}

function draw(page) {
  const { frame, data } = page;
  put(frame.title, page.name?.(data) ?? page.title);
  put(frame.note, page.state(data));
  const buttons = page.buttons(data);
  redraw(frame.acts, buttons.map(([label]) => label), () => buttons.map(([label, act]) => button(page, label, act)));
  if (page.list && !frame.body.contains(page.list.el)) frame.body.append(page.facts ?? "", page.list.el);
  if (!page.list) redraw(frame.body, [data, page.turn], () => page.draw(data, () => ((page.turn = !page.turn), draw(page))));
  page.after?.(data);
}

// A button acts on what is known when it is pressed, not when it was made.
const button = (page, label, act) =>
  h("button", { type: "button", onclick: async () => (await act(page.data)) && page.update() }, label);

/** Does what a shortcut says on what is open; says whether there was something. */
export function shortcut(name) {
  const act = open?.data && open.keys?.[name];
  if (act) Promise.resolve(act(open.data)).then(open.update);
  return Boolean(act);
}

function lanePage({ pool, lane }) {
  const list = requestList({ pool, lane });
  const facts = h("div");
  const empty = { pool, lane, depth: 0, gone: true };
  return {
    title: lane, list, facts,
    load: async () => (list.refresh(), await laneOf(pool, lane) ?? empty),
    state: (of) => (of.gone ? "Nothing waits in this lane." : of.paused ? "Paused by an operator." : `Head: ${why(of.reason)}.`),
    buttons: (of) => [[of.paused ? "Resume" : "Pause…", pauseLane], ["Cancel requests…", () => cancelMany(lane, { pool, lane })]],
    after: (of) => redraw(facts, of, () => (of.gone ? null : laneFacts(of))),
    keys: { pause: pauseLane, cancel: () => cancelMany(lane, { pool, lane }) },
  };
}

async function laneOf(pool, lane) {
  const is = (of) => of.pool === pool && of.lane === lane;
  return board?.queues.find(is) ?? (await get("/queues", { pool })).queues.find(is);
}

const laneFacts = (of) => factList([
  ["waiting", count(of.depth)], ["bytes", bytes(of.bytes)],
  ["head waited", time(of.head_wait_ms)], ["drains in", drain(of.drain_ms)],
  ["too late", count(of.risk?.late)], ["tight", count(of.risk?.tight)], ["in time", count(of.risk?.ok)], ["band", minus(of.band)], ["pattern", of.pattern],
]);

function findPage(asked) {
  const query = asked.late ? { ...asked, late: true } : asked;
  const list = requestList(query);
  const title = query.tenant ? `Tenant ${query.tenant}` : query.late ? "Requests that cannot make it" : "Requests";
  return {
    title, list, load: async () => (list.refresh(), query),
    state: () => "Waiting requests, oldest first.",
    buttons: () => [["Cancel requests…", () => cancelMany(title.toLowerCase(), query)]],
    keys: { cancel: () => cancelMany(title.toLowerCase(), query) },
  };
}

function requestPage({ pool, id }) {
  const waits = (of) => of.state === "waiting";
  return {
    title: id, name: (of) => of.request_id ?? id, draw: drawRequest,
    load: () => get(`/requests/${encodeURIComponent(id)}`, { pool }),
    state: (of) => [of.state, of.lane, of.id != null && `number ${of.id}`].filter(Boolean).join(" · "),
    buttons: (of) => (waits(of) ? [["Move band…", moveRequest], ["Cancel…", cancelRequest]] : []),
    keys: { cancel: (of) => waits(of) && cancelRequest(of) },
  };
}

function podPage({ pool, pod }) {
  const takes = (of) => of.phase === "ready" || of.phase === "broken";
  return {
    title: pod, draw: drawPod,
    load: () => get(`/pods/${encodeURIComponent(pod)}`, { pool }),
    state: (of) => [of.phase, of.class, of.address].filter(Boolean).join(" · "),
    buttons: (of) => of.phase === "leaving" ? [] : [
      takes(of) ? ["Cordon…", (one) => changePod(one, "cordon")] : ["Uncordon", (one) => changePod(one, "uncordon")],
      (takes(of) || of.phase === "cordoned") && ["Drain…", (one) => changePod(one, "drain")],
    ].filter(Boolean),
    keys: { drain: (of) => of.phase !== "leaving" && changePod(of, "drain") },
  };
}

/** Looks for a request by id; what is none is taken for a tenant, if anything of it waits. */
export async function find(text, pool) {
  try {
    await get(`/requests/${encodeURIComponent(text)}`, { pool });
    location.hash = link("request", { pool, id: text });
  } catch (error) {
    if (error.status !== 404) throw error;
    const { requests, next } = await get("/requests", { pool, tenant: text, limit: 1 });
    // Of a long queue a page may be empty and have a next one.
    if (!requests.length && !next) throw new Error(`No request is called ${text}, and nothing of a tenant of that name waits.`);
    location.hash = link("find", { pool, tenant: text });
  }
}
