// The operator's page: boards come once a second and are drawn; everything else is asked for when it is
// looked at. No framework and nothing from elsewhere.

import { at, h, mark, put, roving } from "./dom.js";
import { boards, get } from "./api.js";
import { drawBoard, drawDecisions } from "./board.js";
import { drawCharts } from "./charts.js";
import { drawPods } from "./pods.js";
import { refreshModels } from "./models.js";
import { close, find, route, seeBoard, shortcut } from "./panel.js";
import { pausePool, say } from "./acts.js";
import { clock } from "./words.js";

const STALE_MS = 3500;
const HISTORY_MS = 5000;
const MODELS_MS = 15_000;
const state = { pool: null, board: null, seen: 0, stream: null, lost: null };

function take(board) {
  state.board = board;
  state.seen = Date.now();
  state.lost = null;
  const pools = board.overview.pools;
  state.pool ??= pools[0]?.pool;
  drawPools(pools);
  draw();
  drawDecisions(board.decisions ?? [], state.pool);
  live();
  if (!state.pictured) pictured();
}

function draw() {
  const { overview } = state.board;
  const pool = overview.pools.find((of) => of.pool === state.pool) ?? overview.pools[0];
  if (!pool) return;
  const mine = (of) => of.pool === pool.pool;
  const board = { queues: state.board.queues.filter(mine), pods: state.board.pods.filter(mine) };
  seeBoard(board);
  drawBoard(board, { ...pool, draining: overview.draining });
  drawPods(board.pods);
  put(at("pause-pool"), pool.paused ? "Resume pool" : "Pause pool");
  mark(document.querySelector("h1"), "title", `version ${overview.version}`);
}

// The first picture: what the browser test measures, and what brings the rest in.
function pictured() {
  state.pictured = true;
  performance.mark("first-picture");
  mark(document.body, "data-pictured", true);
  refresh(history);
  refresh(models);
}

function drawPools(pools) {
  const select = at("pool");
  select.hidden = pools.length < 2;
  if (select.childElementCount === pools.length) return;
  select.replaceChildren(...pools.map((of) => h("option", { value: of.pool, selected: of.pool === state.pool }, of.pool)));
}

// "live" while boards come; when none has come for a while, since when what is shown is old.
function live() {
  const stale = Date.now() - state.seen > STALE_MS;
  const text = !state.seen ? (state.lost ?? "opening") : stale ? `stale since ${clock(state.seen)}${state.lost ? `: ${state.lost}` : ""}` : "live";
  put(at("live"), text);
  mark(at("live"), "data-state", state.seen ? (stale ? "stale" : "live") : state.lost ? "stale" : "opening");
  mark(document.body, "data-stale", stale && state.seen > 0);
}

async function history() {
  const { seconds } = await get("/history", { pool: state.pool });
  drawCharts(seconds);
}

const models = () => refreshModels(state.pool);

// A figure that cannot be had now is not worth a message: the state of the stream says it.
const refresh = (what) => (state.pool && !document.hidden ? what().catch(() => null) : null);

// A page that nobody sees costs the dispatcher nothing.
function watch() {
  state.stream?.abort();
  if (document.hidden) return;
  state.stream = new AbortController();
  boards(state.stream.signal, take, (what, why) => (what === "lost" && (state.lost = why), live()));
  refresh(history);
}

const GO = { l: "lanes", o: "pods", m: "models", d: "decisions" };
const KEYS = {
  "/": () => at("query").focus(),
  "?": () => at("keys").showModal(),
  Escape: close,
  p: () => shortcut("pause") || pausePool(poolNow()),
  x: () => shortcut("cancel"),
  D: () => shortcut("drain"),
};

const poolNow = () => state.board?.overview.pools.find((of) => of.pool === state.pool);

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  const act = GO[event.key] ? () => go(GO[event.key]) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function go(id) {
  const section = at(id);
  section.scrollIntoView();
  (section.querySelector('[tabindex="0"], a, button') ?? section).focus({ preventScroll: true });
}

async function search(event) {
  event.preventDefault();
  const text = at("query").value.trim();
  // What is found takes the focus; closed again, the keys are shortcuts and not letters.
  at("query").blur();
  if (text) await find(text, state.pool).catch((error) => say(error.message, "late"));
}

function begin() {
  for (const id of ["lane-rows", "pod-cells", "decision-rows"]) roving(at(id));
  at("find").addEventListener("submit", search);
  at("query").addEventListener("keydown", (event) => event.key === "Escape" && event.target.blur());
  at("pool").addEventListener("change", (event) => ((state.pool = event.target.value), draw(), refresh(history), refresh(models)));
  at("pause-pool").addEventListener("click", () => poolNow() && pausePool(poolNow()));
  at("help").addEventListener("click", () => at("keys").showModal());
  document.addEventListener("keydown", key);
  document.addEventListener("changed", () => (refresh(models), refresh(history)));
  document.addEventListener("visibilitychange", watch);
  addEventListener("hashchange", route);
  setInterval(live, 1000);
  setInterval(() => refresh(history), HISTORY_MS);
  setInterval(() => refresh(models), MODELS_MS);
  watch();
  route();
}

begin();
