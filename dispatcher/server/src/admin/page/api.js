// Calls to /api/v1, with the token when one is needed, and the stream of boards.

const KEY = "weir-token";
let prompt = async () => null;

/** Says who asks for a token when the server wants one: a function that resolves to it, or to null. */
export function onToken(ask) {
  prompt = ask;
}

function headers(more = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const text = new URLSearchParams(given).toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

/** An answer that is not a success, with the server's own words. */
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    Object.assign(this, { status, code: error?.code });
  }
}

async function call(path, query, options = {}) {
  for (;;) {
    const reply = await fetch(address(path, query), { ...options, headers: headers(options.headers) });
    if (reply.ok) return reply;
    const error = (await reply.json().catch(() => null))?.error;
    if (reply.status !== 401 || !(await askToken(error))) throw new Refused(reply.status, error);
  }
}

let asking = null;

// Calls that are refused at the same time share one question.
function askToken(error) {
  asking ??= prompt(error).then((token) => {
    asking = null;
    if (token) sessionStorage.setItem(KEY, token);
    return Boolean(token);
  });
  return asking;
}

export const get = async (path, query, signal) => (await call(path, query, { signal })).json();

export const post = async (path, body = {}) =>
  (await call(path, {}, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })).json();

/**
 * Reads boards until `signal` says stop, and comes back after every end. By fetch, because an
 * EventSource cannot send a token. `said` hears of the state: "open", or "lost" with the reason.
 */
export async function boards(signal, each, said) {
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      const reply = await call("/events", {}, { signal });
      await events(reply.body, (board) => {
        failures = 0;
        said("open");
        each(board);
      });
      said("lost", "the stream ended");
    } catch (error) {
      if (!signal.aborted) said("lost", error.message);
    }
    // Spread, so that many open pages do not come back in one moment.
    await pause(Math.min(8000, 500 * 2 ** failures) * (0.5 + Math.random() / 2), signal);
  }
}

async function events(body, each) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let kept = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (kept + value).split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) dispatch(block, each);
  }
}

function dispatch(block, each) {
  const lines = block.split("\n");
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
  if (data.length && lines.includes("event: board")) each(JSON.parse(data.join("\n")));
}

export const pause = (ms, signal) =>
  new Promise((over) => {
    const timer = setTimeout(over, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), over()), { once: true });
  });
