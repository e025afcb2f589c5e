// The live curves: accuracy, recent and overall, and the learning rate below it.
import { at, count, make, percent, rate } from "./dom.js";

const PAUSE = 250; // milliseconds between two drawings
const MOST = 800; // points, then the service's thinned history is better
const FONT = "12px system-ui, sans-serif";

const grid = { stroke: () => css("--grid"), width: 1 };
const ticks = { stroke: () => css("--line"), size: 5 };

let points = [];
let plots = null; // made at the first point
let whole = true; // everything is shown, and the newest point stays in sight
let limit = MOST;
let drawn = 0, waiting = false;

/** The service's history; points heard since it was written stay. */
export function load(history) {
  const end = history.at(-1)?.at ?? -1;
  points = [...history, ...points.filter((point) => point.at > end)];
  limit = Math.max(MOST, 2 * points.length);
  draw();
}

/** Forgets all points: the service may have begun anew. */
export function reset() {
  points = [];
}

/** One more point; true if the history should be loaded again. */
export function add(point) {
  const last = points.at(-1)?.at ?? -1;
  if (point.at < last) return reset(), true;
  if (point.at === last) points.pop();
  points.push(point);
  draw();
  return points.length > limit;
}

function draw() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => requestAnimationFrame(() => {
    waiting = false;
    drawn = performance.now();
    const tested = points.some((point) => point.accuracy != null);
    at("curves-none").hidden = tested;
    at("curves").hidden = at("keys").hidden = !tested;
    if (tested) fresh();
  }), Math.max(0, drawn + PAUSE - performance.now()));
}

function fresh() {
  const column = (name, scale) => points.map((point) => (point[name] == null ? null : scale * point[name]));
  const xs = points.map((point) => point.at);
  const data = [[xs, column("recent_accuracy", 100), column("accuracy", 100)], [xs, column("learning_rate", 1).map((v) => v || null)]];
  plots ??= build(data);
  plots.forEach((u, i) => {
    const { min, max } = u.scales.x;
    u.batch(() => (u.setData(data[i], whole), whole || u.setScale("x", { min, max })));
  });
  at("curves").dataset.points = points.length;
}

function build(data) {
  const holder = make("div", {
    class: "plot", tabindex: 0, role: "group",
    "aria-label": "Curves to samples learnt; arrow keys read values, 0 shows all",
  });
  const tip = make("div", { class: "tip", hidden: true }), spoken = make("div", { class: "spoken", "aria-live": "polite" });
  at("curves").append(holder);
  const accuracy = new uPlot(options(holder, 0.5, [180, 330], {
    series: [{}, line("--c0", 2), line("--c1", 1.5, [7, 4])],
    y: { range: [0, 100] }, axis: { values: (u, ticks) => ticks.map((v) => v + " %") },
    hooks: { draw: [arrivals], setCursor: [(u) => read(u, tip)], setScale: [(u, key) => key === "x" && zoomed(u)] },
  }), data[0], holder);
  const rates = new uPlot(options(holder, 0.22, [112, 140], {
    series: [{}, line("--c2", 1.6)],
    y: { distr: 3, range: (u, low, high) => (low == null ? [1e-4, 1] : uPlot.rangeLog(low, high, 10, true)) },
    axis: {
      filter: decades, grid: { ...grid, filter: decades }, ticks: { ...ticks, filter: decades },
      values: (u, ticks) => ticks.map((v) => (v == null ? "" : rate(v))), label: "rate", labelSize: 18, labelFont: FONT, size: 46,
    },
    x: { label: "samples learnt", labelSize: 18, labelGap: 0, labelFont: FONT },
    hooks: {},
  }), data[1], holder);
  const both = [accuracy, rates];
  holder.append(tip, spoken);
  holder.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const xs = accuracy.data[0], { idx, left } = accuracy.cursor;
      const next = idx == null || left < 0 ? (step > 0 ? 0 : xs.length - 1) : idx + step;
      accuracy.setCursor({ left: accuracy.valToPos(xs[Math.max(0, Math.min(xs.length - 1, next))], "x"), top: 10 }, true, true);
      spoken.textContent = tip.innerText;
    } else if (event.key === "0" || event.key === "Escape") {
      both.forEach((u) => u.setScale("x", { min: u.data[0][0], max: u.data[0].at(-1) }));
    } else return;
    event.preventDefault();
  });
  holder.addEventListener("blur", () => (tip.hidden = true));
  new ResizeObserver(() => both.forEach((u) => u.setSize(u.fit()))).observe(holder);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => both.forEach((u) => u.redraw(false)));
  return both;
}

function options(holder, share, [least, most], { series, x, y, axis, hooks }) {
  const fit = () => ({ width: holder.clientWidth, height: Math.round(Math.max(least, Math.min(most, share * holder.clientWidth))) });
  const common = { stroke: () => css("--muted"), font: FONT, ticks };
  return {
    ...fit(), series, hooks, legend: { show: false }, padding: [10, 24, 0, 0],
    plugins: [{ hooks: { init: (u) => (u.fit = fit) } }],
    scales: { x: { time: false, range: (u, low, high) => (low === high ? [0, high] : [low, high]) }, y },
    axes: [
      { ...common, grid: { show: false }, size: 28, space: 64, values: (u, ticks) => ticks.map((v) => (v % 1 ? "" : count(v))), ...x },
      { ...common, grid, size: x ? 46 : 64, ...axis },
    ],
    cursor: { sync: { key: "live" }, drag: { x: true, y: false, dist: 6 }, points: { size: 7 }, y: false },
  };
}

function line(colour, width, dash) {
  return { stroke: () => css(colour), width, dash, spanGaps: true, points: { show: (u) => u.data[0].length < 3 } };
}

/** Of a logarithmic axis: 0.001, 0.01, 0.1. */
function decades(u, values) {
  return values.map((value) => (value.toExponential(6).startsWith("1.000000") ? value : null));
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function zoomed(u) {
  const xs = u.data[0];
  whole = u.scales.x.min <= xs[0] && u.scales.x.max >= xs.at(-1);
}

/** What stands under the pointer. */
function read(u, tip) {
  const { left, idx } = u.cursor;
  const point = idx == null || left < 0 ? null : points[idx];
  tip.hidden = !point;
  if (!point) return;
  const pair = (name, text) => make("div", {}, make("span", {}, name), make("span", {}, text));
  tip.replaceChildren(
    make("b", {}, count(point.at) + " samples"),
    pair("recent", percent(point.recent_accuracy)), pair("overall", percent(point.accuracy)),
    pair("learning rate", rate(point.learning_rate)), pair("classes", count(point.classes)),
  );
  const x = left + u.over.offsetLeft, wide = tip.offsetWidth;
  tip.style.left = Math.max(0, x + 16 + wide <= tip.parentElement.clientWidth ? x + 16 : x - 16 - wide) + "px";
  tip.style.top = u.over.offsetTop + 8 + "px";
}

/** A tick on the lower edge where classes were met for the first time. */
function arrivals(u) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.strokeStyle = css("--muted");
  ctx.lineWidth = 1.2 * ratio;
  ctx.setLineDash([]);
  points.forEach((point, i) => {
    if (point.classes <= (i ? points[i - 1].classes : 0)) return;
    const x = u.valToPos(point.at, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
    ctx.beginPath();
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, bottom - 8 * ratio);
    ctx.stroke();
  });
  ctx.restore();
}
