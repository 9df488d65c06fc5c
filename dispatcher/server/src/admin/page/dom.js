// What the page needs of the DOM: making elements, and touching only what changed.

const remembered = new WeakMap();
const listening = new WeakSet();

/** Makes an element; `on...` are listeners, `vars` are custom properties (a style attribute would need an open CSP). */
export function h(tag, props = {}, ...kids) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) assign(el, name, value);
  el.append(...kids.flat().filter((kid) => kid != null && kid !== false));
  return el;
}

function assign(el, name, value) {
  if (value == null || value === false) return;
  if (name.startsWith("on")) listening.add(el), el.addEventListener(name.slice(2), value);
  else if (name === "vars") for (const [key, of] of Object.entries(value)) vary(el, key, of);
  else el.setAttribute(name, value === true ? "" : value);
}

/** Makes an SVG element. */
export function s(tag, props = {}, ...kids) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) el.setAttribute(name, value);
  el.append(...kids);
  return el;
}

export const at = (id) => document.getElementById(id);

/** Sets a text, unless it is there already. */
export function put(el, text) {
  if (el.textContent !== String(text)) el.textContent = text;
}

export function mark(el, name, value) {
  const text = value == null || value === false ? null : String(value);
  if (el.getAttribute(name) === text) return;
  if (text == null) el.removeAttribute(name);
  else el.setAttribute(name, text);
}

export function vary(el, name, value) {
  if (el.style.getPropertyValue(name) !== String(value)) el.style.setProperty(name, value);
}

/** A share as a CSS percentage, coarse enough that a bar does not change for nothing. */
export const percent = (share) => `${Math.round(Math.min(1, Math.max(0, share || 0)) * 200) / 2}%`;

/**
 * Brings the children of `parent` in line with `items`: rows are made once per key, drawn again only
 * when their item differs from the one before, and moved only when the order changed.
 */
export function keyed(parent, items, keyOf, make, draw) {
  const before = remembered.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const key = keyOf(item);
    after.set(key, before.get(key) ?? { el: make(item), seen: null });
  }
  for (const [key, row] of before) if (!after.has(key)) row.el.remove();
  remembered.set(parent, after);
  place(parent, items, (item) => after.get(keyOf(item)), draw);
}

function place(parent, items, rowOf, draw) {
  let next = parent.firstElementChild;
  for (const item of items) {
    const row = rowOf(item);
    const seen = JSON.stringify(item);
    if (row.seen !== seen) draw(row.el, item);
    row.seen = seen;
    if (row.el === next) next = next.nextElementSibling;
    else parent.insertBefore(row.el, next);
  }
}

/** Brings the content of an element in line with what `draw` makes of the data, when that has changed. */
export function redraw(el, data, draw) {
  const seen = JSON.stringify(data);
  if (remembered.get(el) === seen) return;
  remembered.set(el, seen);
  const fresh = el.cloneNode(false);
  fresh.append(...[draw(data)].flat().filter(Boolean));
  patch(el, fresh);
}

// Keeps every node that can stay, so that focus, scroll and open details survive. What listens is
// replaced: its listener knows the data it was made from.
function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || listening.has(fresh)) return swap(old, fresh);
  if (old.nodeType === Node.TEXT_NODE) return put(old, fresh.data);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "style") mark(old, name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  patch(old, fresh);
}

function swap(old, fresh) {
  const focused = old === document.activeElement;
  old.replaceWith(fresh);
  if (focused) fresh.focus();
}

function patch(el, fresh) {
  const [had, kids] = [[...el.childNodes], [...fresh.childNodes]];
  kids.forEach((kid, index) => (had[index] ? morph(had[index], kid) : el.append(kid)));
  for (const gone of had.slice(kids.length)) gone.remove();
}

/** One tab stop for a list; the arrows move inside it, by what lies where on the screen. */
export function roving(parent, selector = "a") {
  const items = () => [...parent.querySelectorAll(selector)];
  parent.addEventListener("focusin", (event) => {
    for (const item of items()) item.tabIndex = item === event.target ? 0 : -1;
  });
  parent.addEventListener("keydown", (event) => {
    const to = target(items(), event);
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
}

const STEPS = { ArrowRight: "next", ArrowLeft: "last", ArrowDown: "down", ArrowUp: "up", j: "down", k: "up", Home: "first", End: "end" };

function target(items, event) {
  const here = items.indexOf(event.target);
  const step = event.ctrlKey || event.metaKey || event.altKey ? null : STEPS[event.key];
  if (here < 0 || !step) return null;
  if (step === "first") return items[0];
  if (step === "end") return items.at(-1);
  if (step === "next") return items[here + 1];
  if (step === "last") return items[here - 1];
  return beside(items, here, step === "down" ? 1 : -1);
}

// The nearest item of the next line: as far along as this one.
function beside(items, here, step) {
  const from = items[here].getBoundingClientRect();
  for (let at = here + step; items[at]; at += step) {
    const box = items[at].getBoundingClientRect();
    const other = Math.abs(box.top - from.top) > 4;
    if (other && (step > 0 ? box.right > from.left + 4 : box.left < from.right - 4)) return items[at];
  }
  return null;
}
