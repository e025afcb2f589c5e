// The live curves: accuracy, recent, overall and held out, and the learning rate below it.
import { at, count, make, named, percent, rate } from "./dom.js";

const PAUSE = 250; // milliseconds between two drawings
const MOST = 800; // points, then the service's thinned history is better
const NAMED = 8; // new classes named at a point
const CLOSE = 48; // pixels between marks that share a text
const STEPS = [1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, ...[1, 2, 7, 30, 90, 365].map((days) => 86400 * days)]; // seconds
const FONT = "12px system-ui, sans-serif";

const grid = { stroke: () => css("--grid"), width: 1 };
const ticks = { stroke: () => css("--line"), size: 5 };

let points = [];
let classes = []; // [{label, first}], by their first samples
let along = "at"; // or "time": what the curves run along
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

/** The classes there are: each has a mark with its name where its first sample was. */
export function arrived(known) {
  classes = known.filter((one) => one.first).sort((a, b) => a.first - b.first);
  draw();
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
    at("curves").hidden = at("keys").hidden = at("choices").hidden = !tested;
    if (tested) fresh();
  }), Math.max(0, drawn + PAUSE - performance.now()));
}

function fresh() {
  const column = (name, scale) => points.map((point) => (point[name] == null ? null : scale * point[name]));
  const xs = along === "at" ? points.map((point) => point.at) : times();
  const held = column("held_out_accuracy", 100);
  at("held-out-key").hidden = held.every((value) => value === null);
  const data = [[xs, recent(), column("accuracy", 100), held], [xs, column("learning_rate", 1).map((v) => v || null)]];
  plots ??= build(data);
  plots.forEach((u, i) => {
    const { min, max } = u.scales.x;
    u.batch(() => (u.setData(data[i], whole), whole || u.setScale("x", { min, max })));
  });
  at("curves").dataset.points = points.length;
}

/** Accuracy in percent within the window before each point, or since the last one where that lies further back. */
function recent() {
  const size = +at("window").value;
  let before = -1, widest = 0; // the last point that lies `size` samples or more behind
  const start = { at: points[0].at - (points[1]?.at - points[0].at || points[0].at), tested: 0, right: 0 }; // evenly spaced
  const values = points.map((point, i) => {
    while (before + 1 < i && points[before + 1].at <= point.at - size) before += 1;
    const { at: from, tested, right } = points[before] ?? start;
    point.span = point.at - from;
    widest = Math.max(widest, before >= 0 ? point.span : 0);
    if (point.tested == null || tested == null) return point.recent_accuracy == null ? null : 100 * point.recent_accuracy;
    return point.tested > tested ? (100 * (point.right - right)) / (point.tested - tested) : null;
  });
  at("recent-key").textContent = "last " + count(Math.max(size, widest));
  return values;
}

/** When the points were, in seconds; those that do not know it stand at the first that does, and none before another. */
function times() {
  let last = points.find((point) => point.time != null)?.time ?? 0;
  return points.map((point) => (last = Math.max(last, point.time ?? 0)));
}

/** Where a sample lies on the axis: between the points around it. */
function where(sample) {
  const xs = plots[0].data[0], i = points.findIndex((point) => point.at >= sample);
  if (along === "at" || i <= 0) return along === "at" ? sample : xs.at(i);
  const [low, high] = [points[i - 1].at, points[i].at];
  return xs[i - 1] + ((xs[i] - xs[i - 1]) * (sample - low)) / (high - low);
}

function build(data) {
  const holder = make("div", {
    class: "plot", tabindex: 0, role: "group",
    "aria-label": "Curves of accuracy and learning rate; arrow keys read values and new classes, 0 shows all",
  });
  const tip = make("div", { class: "tip", hidden: true }), spoken = make("div", { class: "spoken", "aria-live": "polite" });
  at("curves").append(holder);
  const accuracy = new uPlot(options(holder, 0.5, [180, 330], {
    series: [{}, line("--c0", 2), line("--c1", 1.5, [7, 4]), line("--c3", 2, [3, 3])],
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
    x: { label: along === "at" ? "samples learnt" : "time of acceptance", labelSize: 18, labelGap: 0, labelFont: FONT },
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
  const watch = new ResizeObserver(() => both.forEach((u) => u.setSize(u.fit())));
  watch.observe(holder);
  return Object.assign(both, { end: () => (watch.disconnect(), both.forEach((u) => u.destroy()), holder.remove()) });
}

function options(holder, share, [least, most], { series, x, y, axis, hooks }) {
  const fit = () => ({ width: holder.clientWidth, height: Math.round(Math.max(least, Math.min(most, share * holder.clientWidth))) });
  const common = { stroke: () => css("--muted"), font: FONT, ticks };
  return {
    ...fit(), series, hooks, legend: { show: false }, padding: [10, 30, 0, 0],
    plugins: [{ hooks: { init: (u) => (u.fit = fit) } }],
    scales: { x: { time: false, range: (u, low, high) => (low !== high ? [low, high] : along === "at" ? [0, high] : [low - 60, high]) }, y },
    axes: [
      { ...common, grid: { show: false }, size: 28, space: 64, values: (u, ticks) => ticks.map(along === "at" ? (v) => (v % 1 ? "" : count(v)) : clock(ticks)), ...(along === "time" && { incrs: STEPS }), ...x },
      { ...common, grid, size: x ? 46 : 64, ...axis },
    ],
    cursor: { sync: { key: "live" }, drag: { x: true, y: false, dist: 6 }, points: { size: 7 }, y: false },
  };
}

function line(colour, width, dash) {
  return { stroke: () => css(colour), width, dash, spanGaps: true, points: { show: (u) => u.data[0].length < 3 } };
}

/** Seconds since 1970 as a time of day, or as a day where ticks are that far apart. */
function clock(ticks) {
  const step = ticks[1] - ticks[0];
  const how = step >= 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), hour12: false };
  return (v) => new Date(1000 * v).toLocaleString("en-GB", how);
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
  const pair = (name, ...text) => make("div", {}, make("span", {}, name), make("span", {}, ...text));
  const value = u.data[1][idx], since = points[idx - 1]?.at ?? 0;
  const fresh = classes.filter((one) => one.first > since && one.first <= point.at).slice(0, NAMED);
  tip.replaceChildren(
    make("b", {}, count(point.at) + " samples"), ...(point.time == null ? [] : [make("div", {}, new Date(1000 * point.time).toLocaleString())]),
    pair("last " + count(point.span), percent(value == null ? null : value / 100)), pair("overall", percent(point.accuracy)),
    ...(point.held_out_accuracy == null ? [] : [pair("held out", percent(point.held_out_accuracy))]),
    pair("learning rate", rate(point.learning_rate)), pair("classes", count(point.classes)),
    ...fresh.map((one) => pair("new class", named(one.label))),
  );
  const x = left + u.over.offsetLeft, wide = tip.offsetWidth;
  tip.style.left = Math.max(0, x + 16 + wide <= tip.parentElement.clientWidth ? x + 16 : x - 16 - wide) + "px";
  tip.style.top = u.over.offsetTop + 8 + "px";
}

/** A tick on the lower edge where a class was met for the first time, with its name where there is room. */
function arrivals(u) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.strokeStyle = css("--muted");
  ctx.lineWidth = 1.2 * ratio;
  ctx.setLineDash([]);
  ctx.fillStyle = css("--muted");
  ctx.textAlign = "left";
  ctx.font = ratio * 11 + "px system-ui, sans-serif";
  const groups = []; // marks that are close share a text
  for (const { label, first } of classes) {
    const x = u.valToPos(where(Math.max(first, points[0].at)), "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    ctx.beginPath();
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, bottom - 8 * ratio);
    ctx.stroke();
    if (x - groups.at(-1)?.x < CLOSE * ratio) groups.at(-1).labels.push(label);
    else groups.push({ x, labels: [label] });
  }
  let free = -Infinity; // right of the last text
  for (const { x, labels } of groups) {
    const short = (label) => (label.length > 16 ? label.slice(0, 15) + "…" : label), shown = labels.length > 3 ? 2 : 3;
    const text = labels.slice(0, shown).map(short).join(", ") + (labels.length > shown ? " +" + (labels.length - shown) : "");
    const wide = ctx.measureText(text).width, left = Math.min(x, bbox.left + bbox.width - wide);
    if (left < free) continue;
    ctx.fillText(text, left, bottom - 11 * ratio);
    free = left + wide + 8 * ratio;
  }
  ctx.restore();
}

at("window").addEventListener("change", draw);
at("axis").addEventListener("change", () => {
  along = at("axis").value;
  plots?.end();
  plots = null;
  whole = true;
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots?.forEach((u) => u.redraw(false)));
