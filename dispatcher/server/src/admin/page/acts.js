// What an operator may change: each asks first, says what will happen, and says what has.

import { at, h, put } from "./dom.js";
import { post, onToken } from "./api.js";
import { count } from "./words.js";

let hide = 0;

/** Says something for a few seconds, to the eye and to a screen reader. */
export function say(text, level = "ok") {
  const box = at("said");
  box.replaceChildren(h("p", { class: level }, text));
  clearTimeout(hide);
  hide = setTimeout(() => box.replaceChildren(), level === "late" ? 12_000 : 5000);
}

/** Asks a question in a dialog; resolves to whether the answer was yes. */
export function ask({ title, text, body, yes, danger }) {
  const dialog = at("ask");
  const no = h("button", { value: "no", type: "submit", autofocus: danger }, "Leave it");
  const go = h("button", { value: "yes", type: "submit", class: danger ? "danger" : "go" }, yes);
  dialog.replaceChildren(h("form", { method: "dialog" },
    h("h2", { id: "ask-title" }, title), [text].flat().map((line) => h("p", {}, line)), body ?? null,
    // Enter in a field answers with the first button; they are shown the other way round.
    h("menu", {}, go, no)));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((answer) => (dialog.onclose = () => answer(dialog.returnValue === "yes")));
}

async function change(path, body, done) {
  try {
    const reply = await post(path, body);
    say(typeof done === "function" ? done(reply) : done);
    document.dispatchEvent(new Event("changed"));
    return reply;
  } catch (error) {
    say(`Not done: ${error.message}`, "late");
    return null;
  }
}

onToken(async (error) => {
  const field = h("input", { type: "password", "aria-label": "Token", autocomplete: "off", autofocus: true });
  const unknown = error?.code === "invalid_token";
  const text = unknown ? "This token is not one that Weir knows." : "Weir wants a token. It is kept until this tab is closed.";
  return (await ask({ title: "Token", text, body: field, yes: "Go on" })) ? field.value.trim() : null;
});

export async function pauseLane(lane) {
  if (lane.paused) return change("/queues/resume", { pool: lane.pool, lane: lane.lane }, `${lane.lane} goes on.`);
  const yes = await ask({
    title: `Pause ${lane.lane}?`, yes: "Pause",
    text: `Its ${count(lane.depth)} requests stay where they are and new ones are held too. `
      + "Their waits stay bounded: those that wait too long are refused.",
  });
  return yes ? change("/queues/pause", { pool: lane.pool, lane: lane.lane }, `${lane.lane} is paused.`) : null;
}

export async function pausePool(pool) {
  if (pool.paused) return change("/queues/resume", { pool: pool.pool }, `${pool.pool} goes on.`);
  const yes = await ask({
    title: `Pause the pool ${pool.pool}?`, yes: "Pause the pool", danger: true,
    text: `Nothing is sent to its ${count(pool.pods)} pods any more. ${count(pool.waiting)} requests and all new ones are held; `
      + "those that wait too long are refused. What runs goes on.",
  });
  return yes ? change("/queues/pause", { pool: pool.pool }, `${pool.pool} is paused.`) : null;
}

export async function cancelRequest(of) {
  const yes = await ask({
    title: `Cancel ${of.request_id ?? of.id}?`, yes: "Cancel the request", danger: true,
    text: "Its client is answered 503 cancelled_by_operator and told not to retry.",
  });
  return yes ? change(`/requests/%23${of.id}/cancel`, { pool: of.pool }, "Cancelled.") : null;
}

export async function moveRequest(of) {
  const field = h("input", { type: "number", value: of.band, "aria-label": "Band", autofocus: true });
  const text = "A higher band goes first. A band below 0 may be refused under overload.";
  const yes = await ask({ title: `Move ${of.request_id ?? of.id} to another band`, text, body: field, yes: "Move" });
  return yes ? change(`/requests/%23${of.id}/move`, { pool: of.pool, band: Number(field.value) }, `Moved to band ${field.value}.`) : null;
}

/** Cancels what a filter finds, after a dry run has said how many that are. */
export async function cancelMany(name, filter) {
  const late = h("input", { type: "checkbox" });
  const older = h("input", { type: "number", min: 0, step: 1, placeholder: "any" });
  const found = h("p", { class: "found", role: "status" }, "counting…");
  const wanted = () => ({ ...filter, ...(late.checked && { late: true }), ...(older.value && { older_than_ms: Number(older.value) * 1000 }) });
  const body = h("div", {}, h("label", {}, late, " only those too late"), h("label", {}, "older than ", older, " s"), found);
  const text = "Clients are answered 503 cancelled_by_operator and told not to retry.";
  const answered = ask({ title: `Cancel requests of ${name}`, text, body, yes: "Cancel them", danger: true });
  const recount = () => dryRun(wanted(), found);
  older.addEventListener("keydown", (event) => event.key === "Enter" && (event.preventDefault(), recount()));
  body.addEventListener("change", recount);
  recount();
  if (!(await answered)) return null;
  return change("/requests/cancel", { ...wanted(), dry_run: false }, (reply) => `Cancelled ${count(reply.cancelled)} requests.`);
}

async function dryRun(filter, found) {
  const go = at("ask").querySelector(".danger");
  go.disabled = true;
  try {
    const { matched, sample } = await post("/requests/cancel", { ...filter, dry_run: true });
    put(found, matched ? `${count(matched)} requests match now, such as ${sample.slice(0, 3).join(", ")}.` : "No request matches.");
    put(go, matched ? `Cancel ${count(matched)}` : "Cancel them");
    go.disabled = !matched;
  } catch (error) {
    put(found, error.message);
  }
}

const POD_ACTS = {
  cordon: { yes: "Cordon", text: (pod) => `It gets no new requests. Its ${count(pod.residents + pod.pending)} stay and finish.`, done: "is cordoned." },
  drain: {
    yes: "Drain", done: "is draining.",
    text: (pod) => `It gets no new requests. The ${count(pod.residents + pod.pending)} it has finish, then it counts as drained and may be stopped.`,
  },
};

/** Cordons, drains or uncordons a pod. */
export async function changePod(pod, verb) {
  const words = POD_ACTS[verb];
  const path = `/pods/${encodeURIComponent(pod.pod)}/${verb}`;
  if (!words) return change(path, { pool: pod.pool }, `${pod.pod} takes requests again.`);
  const text = [words.text(pod), "A restart of Weir forgets this."];
  const yes = await ask({ title: `${words.yes} ${pod.pod}?`, text, yes: words.yes, danger: verb === "drain" });
  return yes ? change(path, { pool: pod.pool }, `${pod.pod} ${words.done}`) : null;
}

const MODEL_ACTS = {
  reload: { title: "Look for new bundles now?", yes: "Reload", text: "A bundle is verified before it serves; one that fails stays out and the reason is shown." },
  unpin: { title: "Unpin?", yes: "Unpin", text: "The newest bundle that is good enough serves again." },
  rollback: {
    title: "Roll back?", yes: "Roll back", danger: true,
    text: "The version before the serving one is pinned. New bundles are loaded and not served until it is unpinned.",
  },
  pin: { yes: "Pin", text: "It serves until it is unpinned, whatever is trained meanwhile." },
};

export async function changeModel(models, verb, version) {
  const words = MODEL_ACTS[verb];
  const yes = await ask({ ...words, title: words.title ?? `Pin version ${version}?` });
  const serving = (reply) => reply.pools?.find((of) => of.pool === models.pool)?.serving;
  const done = (reply) => (serving(reply) == null ? "Done: no bundle serves." : `Done: version ${serving(reply)} serves.`);
  return yes ? change(`/models/${verb}`, version == null ? {} : { version }, done) : null;
}

