// Model versions: which one predicts, how well, why one was refused, and what can be done about it.

import { at, h, put, redraw } from "./dom.js";
import { get } from "./api.js";
import { changeModel } from "./acts.js";
import { clock, count, share, time, version } from "./words.js";

/** Reads the pool's models and draws them. */
export async function refreshModels(pool) {
  const { pools } = await get("/models", { pool });
  const models = pools.find((of) => of.pool === pool) ?? pools[0];
  if (models) drawModels(models);
}

function drawModels(models) {
  const what = models.serving == null ? "none serves, predictions are those of the" : `serving ${version(models.serving)},`;
  put(at("models-note"), [`${what} ${models.evaluator}`, models.pinned != null && `pinned ${version(models.pinned)}`, models.pin_failing, models.fallback].filter(Boolean).join(" · "));
  const table = (all) => (all.versions.length ? [head(), h("tbody", {}, all.versions.flatMap((one) => rows(one, all)))] : [none()]);
  redraw(at("model-table"), models, table);
  redraw(at("model-acts"), [models.pool, models.pinned, models.versions.length], () => acts(models));
}

const none = () => h("caption", {}, "No version was published: run weir train, or set trainer.run.");

const head = () =>
  h("thead", {}, h("tr", {}, ["version", "state", "trained", "rows", "TTFT error: holdout", "live", "TPOT error: holdout", "live", "live p90 covers", ""]
    .map((name, index) => h("th", { scope: "col", class: index > 1 && index < 9 ? "number" : null }, name))));

function rows(one, models) {
  const { holdout, live } = one;
  const figures = [
    one.created_unix_ms ? `${clock(one.created_unix_ms)}, ${time(one.age_s * 1000)} ago` : "–", count(one.rows),
    share(holdout?.mape_ttft), share(live?.mape_ttft), share(holdout?.mape_tpot), share(live?.mape_tpot),
    live?.coverage_ttft == null ? "–" : `${share(live.coverage_ttft)} / ${share(live.coverage_tpot)}`,
  ];
  const onclick = () => changeModel(models, "pin", one.version);
  const pin = ["loaded", "available", "rolled_back"].includes(one.state) ? h("button", { class: "quiet", type: "button", onclick }, "Pin") : null;
  const row = h("tr", { "data-state": one.state }, h("th", { scope: "row" }, version(one.version)), h("td", {}, one.state),
    figures.map((figure) => h("td", { class: "number" }, figure)), h("td", {}, pin));
  return [row, one.refused && more("refused", one.refused), one.features?.length && features(one.features)].filter(Boolean);
}

const more = (name, text) => h("tr", { class: "more" }, h("td", { colspan: 10 }, h("span", { class: "late" }, `${name}: `), text));

function features(all) {
  const first = (name) => [...all].sort((a, b) => (b[name] ?? 0) - (a[name] ?? 0)).slice(0, 4);
  const line = (name, label) => h("p", {}, `${label}: ${first(name).map((of) => `${of.name} ${share(of[name])}`).join(", ")}`);
  const scale = h("p", { class: "note" }, "Share of the gain in its trees.");
  const details = h("details", {}, h("summary", {}, "What it looks at"), line("gain_ttft", "TTFT"), line("gain_tpot", "TPOT"), scale);
  return h("tr", { class: "more" }, h("td", { colspan: 10 }, details));
}

function acts(models) {
  const button = (name, label) => h("button", { type: "button", onclick: () => changeModel(models, name) }, label);
  const back = models.versions.length > 1 && button("rollback", "Roll back…");
  return [button("reload", "Reload"), models.pinned != null && button("unpin", "Unpin"), back].filter(Boolean);
}
