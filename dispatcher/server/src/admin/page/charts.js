// Four small charts of the last five minutes, drawn from /history. The figures of the second under the
// pointer, or of now, stand in the caption in the colour of their line: no legend, no axis to read.

import { at, h, s } from "./dom.js";
import { count, share, time } from "./words.js";

const HEIGHT = 76;
const SMOOTHED_S = 10;

const CHARTS = {
  ttft: { title: "TTFT, median", lines: [["measured", (p) => p.ttft_ms, time], ["predicted", (p) => p.predicted_ms, time]] },
  attainment: { title: "SLO attained", floor: 1, lines: [["attained", (p) => p.attained, share]] },
  queue: { title: "Queue", lines: [["waiting", (p) => p.waiting, count], ["in-flight", (p) => p.in_flight, count]] },
  sheds: { title: "Refused per second", lines: [["refused", (p) => p.refused, count]] },
};

// The first line of a chart is drawn over the second, which may lie on it all the way and is wider where it may.

/** Draws all charts from the seconds of /history. */
export function drawCharts(seconds) {
  const points = seconds.map((second, index) => point(second, seconds.slice(Math.max(0, index - SMOOTHED_S + 1), index + 1)));
  for (const [name, chart] of Object.entries(CHARTS)) draw(at(`chart-${name}`), chart, points);
}

// Attainment of one second is noise: a sum over a few.
function point(second, window) {
  const sum = (name) => window.reduce((total, of) => total + (of[name] ?? 0), 0);
  const sent = sum("sent");
  return {
    ttft_ms: second.ttft_p50_ms, predicted_ms: second.predicted_ttft_p50_ms,
    waiting: second.waiting, in_flight: second.in_flight, refused: second.refused,
    attained: sent ? sum("attained") / sent : null,
  };
}

function draw(figure, chart, points) {
  const width = Math.max(200, figure.clientWidth);
  const values = chart.lines.map(([, of]) => points.map(of));
  const known = values.flat().filter((value) => value != null);
  const top = chart.floor ?? ceiling(Math.max(...known, 0));
  // Attainment is read near 1: its axis begins where the worst second is.
  const bottom = chart.floor ? Math.min(0.9, Math.floor(Math.min(...known, 1) * 10) / 10) : 0;
  const x = (index) => (index / Math.max(1, points.length - 1)) * width;
  const y = (value) => HEIGHT - ((value - bottom) / (top - bottom || 1)) * (HEIGHT - 4) - 1;
  const scale = { x, y };
  const caption = h("figcaption");
  const hair = s("line", { class: "hair", y1: 0, y2: HEIGHT, visibility: "hidden" });
  const picture = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": chart.title },
    ...[bottom, top].map((value) => s("line", { class: "grid", x1: 0, x2: width, y1: scale.y(value), y2: scale.y(value) })),
    ...values.map((of, index) => path(chart.lines[index][0], of, scale, index === 0)).reverse().flat(), hair,
    ...[bottom, top].map((value) => s("text", { x: width, y: scale.y(value) - 3, "text-anchor": "end" }, chart.lines[0][2](value))));
  const say = (index) => tell(caption, chart, values, index, points.length);
  picture.addEventListener("pointermove", (event) => follow(event, picture, points.length, hair, scale, say));
  // A second without a first token has no median: what is said then is the last one that has, or now if none has.
  const last = values[0].findLastIndex((value) => value != null);
  const rest = () => say(last < 0 ? points.length - 1 : last);
  picture.addEventListener("pointerleave", () => (hair.setAttribute("visibility", "hidden"), rest()));
  rest();
  figure.replaceChildren(caption, picture);
}

function follow(event, picture, length, hair, scale, say) {
  const box = picture.getBoundingClientRect();
  const index = Math.max(0, Math.min(length - 1, Math.round(((event.clientX - box.left) / box.width) * (length - 1))));
  hair.setAttribute("visibility", "visible");
  hair.setAttribute("transform", `translate(${scale.x(index)})`);
  say(index);
}

function tell(caption, chart, values, index, length) {
  const ago = length - 1 - index;
  caption.replaceChildren(h("b", {}, chart.title),
    ...chart.lines.map(([name, , form], line) => h("span", { class: name }, `${name.replace("-", " ")} ${form(values[line][index])}`)),
    h("span", { class: "note" }, ago > 0 ? `${time(ago * 1000)} ago` : ""));
}

// Gaps stay gaps: a second without a first token has no median.
function path(name, values, { x, y }, filled) {
  let pen = "";
  let from = null;
  let area = "";
  values.forEach((value, index) => {
    if (value == null) return (from = null);
    const spot = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    pen += `${from == null ? "M" : "L"}${spot}`;
    area += from == null ? `M${x(index).toFixed(1)} ${HEIGHT}L${spot}` : `L${spot}`;
    from = index;
    if (values[index + 1] == null) area += `V${HEIGHT}Z`;
  });
  const line = s("path", { class: `line ${name}`, d: pen });
  return filled ? [s("path", { class: `area ${name}`, d: area }), line] : [line];
}

// The next round figure: 1, 2 or 5 times a power of ten.
function ceiling(value) {
  const size = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value) ?? 1;
}
