// A list of waiting requests: read page by page as it is scrolled, and only the rows in sight exist.

import { h, mark, put, vary } from "./dom.js";
import { get } from "./api.js";
import { requestLink } from "./board.js";
import { clock, count, time, why } from "./words.js";

const ROW_PX = 28;
const PAGE = 200;
const CELLS = ["age", "left", "tokens", "tenant", "id", "why"];
const HEADS = ["waited", "left", "tokens in, out", "tenant", "request", "why it waits"];

/** Makes the list of what `query` finds; `refresh` reads its first page anew unless it was scrolled. */
export function requestList(query) {
  const list = { query, rows: [], cursor: null, ended: false, busy: false, el: null };
  list.runway = h("div", { class: "runway", role: "rowgroup" });
  list.note = h("p", { class: "note", role: "status" });
  const props = { class: "virtual", role: "table", "aria-label": "Waiting requests, oldest first" };
  list.box = h("div", { ...props, onscroll: () => show(list), onkeydown: (event) => move(list, event) }, heads(), list.runway);
  list.el = h("div", {}, list.box, list.note);
  list.refresh = () => (list.box.scrollTop > 0 || list.runway.contains(document.activeElement) ? null : read(list, true));
  return list;
}

const heads = () => h("div", { class: "row head", role: "row" }, HEADS.map((name) => h("span", { role: "columnheader" }, name)));

async function read(list, anew = false) {
  if (list.busy || (list.ended && !anew)) return;
  list.busy = true;
  try {
    const page = await get("/requests", { ...list.query, limit: PAGE, cursor: anew ? null : list.cursor });
    list.rows = anew ? page.requests : list.rows.concat(page.requests);
    list.cursor = page.next;
    list.ended = !page.next;
    list.time = Date.now();
  } finally {
    list.busy = false;
  }
  show(list);
}

function show(list) {
  const { box, runway, rows } = list;
  vary(runway, "--height", `${rows.length * ROW_PX}px`);
  const first = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - 5);
  const last = Math.min(rows.length, first + Math.ceil(box.clientHeight / ROW_PX) + 10);
  reuse(list, last - first);
  for (let index = first; index < last; index += 1) draw(runway.children[index - first], rows[index], index);
  const end = list.ended ? (rows.length ? `all ${count(rows.length)}` : "nothing waits here") : `the oldest ${count(rows.length)}; scroll for more`;
  put(list.note, `${end}, as of ${clock(list.time ?? Date.now())}`);
  mark(box, "aria-rowcount", list.ended ? rows.length + 1 : -1);
  if (last >= rows.length - PAGE / 4 && list.cursor) read(list);
}

function reuse({ runway }, wanted) {
  while (runway.childElementCount > wanted) runway.lastElementChild.remove();
  while (runway.childElementCount < wanted)
    runway.append(h("a", { class: "row", role: "row" }, CELLS.map((name) => h("span", { class: name, role: "cell" }))));
}

function draw(el, of, index) {
  vary(el, "--y", `${index * ROW_PX}px`);
  mark(el, "href", requestLink(of));
  mark(el, "aria-rowindex", index + 2);
  mark(el, "data-level", levelOf(of));
  const tokens = `${count(of.input_tokens)}, ${count(of.output_tokens)}`;
  const texts = [time(of.age_ms), time(of.deadline_ms), tokens, of.tenant || "–", of.request_id || of.id, why(of.reason)];
  texts.forEach((text, cell) => put(el.children[cell], text));
}

const levelOf = (of) => (of.late || of.slack_ms < 0 ? "late" : of.slack_ms < of.ttft_slo_ms / 4 ? "tight" : "ok");

// Rows move under the focus as the list scrolls: the focus goes to the row of the next number.
function move({ box, runway }, event) {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  const index = Number(document.activeElement.getAttribute("aria-rowindex"));
  if (!step || !index) return;
  event.preventDefault();
  const edge = (index - 2 + step) * ROW_PX;
  if (edge < box.scrollTop) box.scrollTop = edge;
  if (edge + 3 * ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = edge + 3 * ROW_PX - box.clientHeight;
  requestAnimationFrame(() => runway.querySelector(`[aria-rowindex="${index + step}"]`)?.focus({ preventScroll: true }));
}
