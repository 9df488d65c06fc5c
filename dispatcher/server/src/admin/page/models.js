// Model versions: which one predicts, how well, why one was refused, and what can be done about it.

import { at, h, put, redraw } from "./dom.js";
import { get } from "./api.js";
import { changeModel } from "./acts.js";
import { clock, count, share, time } from "./words.js";

/** Reads the pool's models and draws them. */
export async function refreshModels(pool) {
  const { pools } = await get("/models", { pool });
  const models = pools.find((of) => of.pool === pool) ?? pools[0];
  if (models) drawModels(models);
}

function drawModels(models) {
  const serving = models.versions.find((version) => version.state === "serving");
  put(at("models-note"), [serving ? `serving ${serving.version}` : `serving ${models.serving ?? "without a bundle"}`, models.evaluator, models.pinned && "pinned"].filter(Boolean).join(" · "));
  redraw(at("model-table"), models, (all) => [head(), h("tbody", {}, all.versions.flatMap((version) => rows(version, all)))]);
  redraw(at("model-acts"), [models.pool, models.pinned, models.versions.length], () => acts(models));
}

const head = () =>
  h("thead", {}, h("tr", {}, ["version", "state", "trained", "rows", "TTFT error: holdout", "live", "TPOT error: holdout", "live", "live p90 covers", ""]
    .map((name, index) => h("th", { scope: "col", class: index > 1 && index < 9 ? "number" : null }, name))));

function rows(version, models) {
  const { holdout = {}, live = {} } = version;
  const figures = [
    version.created_unix_ms ? `${clock(version.created_unix_ms)}, ${time(version.age_s * 1000)} ago` : "–", count(version.rows),
    share(holdout?.mape_ttft), share(live?.mape_ttft), share(holdout?.mape_tpot), share(live?.mape_tpot),
    live?.coverage_ttft == null ? "–" : `${share(live.coverage_ttft)} / ${share(live.coverage_tpot)}`,
  ];
  const pin = version.state === "serving" || version.state === "refused" ? null
    : h("button", { class: "quiet", type: "button", onclick: () => changeModel(models, "pin", version.version) }, "Pin");
  const row = h("tr", { "data-state": version.state }, h("th", { scope: "row" }, version.version), h("td", {}, version.state),
    figures.map((figure) => h("td", { class: "number" }, figure)), h("td", {}, pin));
  return [row, version.refused && more("refused", version.refused), version.features && features(version.features)].filter(Boolean);
}

const more = (name, text) => h("tr", { class: "more" }, h("td", { colspan: 10 }, h("span", { class: "late" }, `${name}: `), text));

function features(all) {
  const most = (name) => all.reduce((top, of) => Math.max(top, of[name] ?? 0), 0) || 1;
  const line = (name, label) => `${label}: ` + [...all].sort((a, b) => (b[name] ?? 0) - (a[name] ?? 0)).slice(0, 4)
    .map((of) => `${of.name} ${Math.round(((of[name] ?? 0) / most(name)) * 100)}`).join(", ");
  return h("tr", { class: "more" }, h("td", { colspan: 10 }, h("details", {}, h("summary", {}, "What it looks at"),
    h("p", {}, line("gain_ttft", "TTFT")), h("p", {}, line("gain_tpot", "TPOT")), h("p", { class: "note" }, "Gain, the greatest being 100."))));
}

function acts(models) {
  const button = (name, label) => h("button", { type: "button", onclick: () => changeModel(models, name) }, label);
  return [button("reload", "Reload"), models.pinned && button("unpin", "Unpin"), models.versions.length > 1 && button("rollback", "Roll back…")].filter(Boolean);
}
