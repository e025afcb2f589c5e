// Lines over the samples: one legend for the charts of a configuration, which zoom together.
const KINDS = {
  accuracy: { value: "y", low: "low", high: "high", text: (v) => v.toFixed(1) + " %", axis: "accuracy (%)" },
  rate: { value: "rate", low: "rate_low", high: "rate_high", text: rate, axis: "learning rate", log: true },
};

/** The charts of a block share which rows are shown and the part of the stream that is seen. */
function together(block) {
  return { block, plots: [], hidden: new Set(), marks: { spread: true, tasks: true, arrivals: true } };
}

function label(block, line) {
  if (line.kind === "level") return block.names[line.row] + " (asked at the end only)";
  if (line.done) return block.names[line.row];
  return block.names[line.row] + " (unfinished: seed " + line.seeds.join(", ") + ")";
}

/** Values of a line at the places of all lines; none where it has no point. */
function spread(xs, line, name) {
  const at = new Map(line.x.map((x, i) => [x, line[name][i]]));
  return xs.map((x) => at.get(x) ?? null);
}

function drawChart(box, group) {
  const { block } = group;
  const kind = KINDS[box.dataset.kind];
  const lines = block.chart.lines.filter((line) => line[kind.value]);
  const xs = [...new Set([0, block.chart.samples, ...lines.flatMap((line) => line.x)])].sort((a, b) => a - b); // the whole stream
  const data = [xs], series = [{}], bands = [];
  for (const line of lines) {
    const level = line.kind === "level"; // one answer at the end: a point there, and a faint line to compare with
    const kinds = level ? [2, 6] : line.done ? dash(block, line.row) : [1.5, 4];
    const number = block.chart.lines.indexOf(line); // uPlot copies what it is given, so the line itself is not found again
    const own = { number, spanGaps: true, points: { show: level || line.x.length < 3 } };
    if (level) Object.assign(own.points, { size: 9, fill: () => colour(block, line.row), filter: () => [xs.length - 1] });
    if (line[kind.low]) {
      bands.push({ series: [series.length, series.length + 1], fill: () => (group.marks.spread ? faded(block, line.row, 0.17) : "#0000") });
      const edge = { ...own, edge: true, stroke: "#0000", width: 0, points: { show: false } };
      series.push(edge, edge);
      data.push(spread(xs, line, kind.high), spread(xs, line, kind.low));
    }
    series.push({ ...own, stroke: () => colour(block, line.row), width: level ? 1 : line.done ? 1.8 : 1.4, dash: kinds });
    data.push(spread(xs, line, kind.value));
  }
  const plot = make("div", {
    class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart",
    "aria-label": kind.axis + " to samples seen; arrow keys read values, plus and minus zoom, 0 shows all",
  });
  const tip = make("div", { class: "tip", hidden: true });
  const spoken = make("div", { class: "spoken", "aria-live": "polite" });
  box.append(plot);
  const axis = { stroke: () => css("--muted"), font: "12px system-ui, sans-serif", ticks: { stroke: () => css("--line"), size: 5 } };
  const options = {
    ...size(plot), legend: { show: false }, bands, series,
    padding: [22, 22, 0, 0],
    scales: {
      x: { time: false, range: (u, low, high) => [low, high] },
      y: kind.log ? { distr: 3 } : { range: within },
    },
    axes: [
      { ...axis, grid: { show: false }, values: (u, splits) => splits.map(count), label: "samples seen", size: 32, labelSize: 20, labelGap: 0, labelFont: axis.font, space: 70 },
      {
        ...axis, grid: { stroke: () => css("--grid"), width: 1 }, size: kind.log ? 64 : 48, label: kind.axis, labelSize: 20, labelFont: axis.font,
        ...(kind.log ? { values: (u, splits) => splits.map((v) => (v == null ? "" : rate(v))) } : {}),
      },
    ],
    cursor: { drag: { x: true, y: false, dist: 6 }, points: { size: 7 }, y: false },
    hooks: {
      drawAxes: [(u) => group.marks.tasks && drawTasks(u, block.chart)],
      draw: [(u) => group.marks.arrivals && drawArrivals(u, block.chart), (u) => box.dataset.kind === "accuracy" && drawEnds(u, lines, group)],
      setCursor: [(u) => readOut(u)],
      setScale: [(u, key) => key === "x" && follow(u)],
    },
  };
  const u = new uPlot(options, data, plot);
  plot.append(tip, spoken);
  group.plots.push(u);

  function readOut(u) {
    const { left, idx } = u.cursor;
    if (idx == null || left < 0) return void (tip.hidden = true);
    const said = describe(group, lines, kind, xs[idx], (u.scales.x.max - u.scales.x.min) / 90);
    if (said.length < 2) return void (tip.hidden = true);
    tip.replaceChildren(...said);
    place(tip, left + u.over.offsetLeft, u.over.offsetTop + 8);
  }
  function follow(u) {
    const { min, max } = u.scales.x;
    for (const other of group.plots) {
      if (other !== u && (other.scales.x.min !== min || other.scales.x.max !== max)) other.setScale("x", { min, max });
    }
  }
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const at = u.cursor.idx == null || u.cursor.left < 0 ? (step > 0 ? 0 : xs.length - 1) : u.cursor.idx + step * (event.shiftKey ? 10 : 1);
      const idx = Math.max(0, Math.min(xs.length - 1, at));
      u.setCursor({ left: u.valToPos(xs[idx], "x"), top: 10 });
      readOut(u);
      spoken.textContent = tip.innerText;
    } else if (event.key === "+" || event.key === "=") zoom(u, 0.5);
    else if (event.key === "-") zoom(u, 2);
    else if (event.key === "0" || event.key === "Escape") zoom(u, Infinity);
    else return;
    event.preventDefault();
  });
  plot.addEventListener("blur", () => (tip.hidden = true));
  new ResizeObserver(() => u.setSize(size(plot))).observe(plot);
  redraws.push(() => u.redraw(false));
  return u;
}

/** What stands at one place of the stream, the best first. */
function describe(group, lines, kind, x, near) {
  const { chart } = group.block;
  const task = chart.ends.findIndex((end) => x <= end) + 1;
  const head = make("b", {}, count(x) + " samples" + (task && chart.ends.length > 1 ? ", task " + task : ""));
  const shown = lines.filter((line) => !group.hidden.has(line)).map((line) => ({ line, i: line.x.findLastIndex((at) => at <= x) }));
  const values = shown
    .filter(({ line, i }) => i >= 0 && (i === line.x.length - 1 ? line.x[i] === x : line.kind !== "level"))
    .map(({ line, i }) => ({ line, value: line[kind.value][i], range: line[kind.high] && (line[kind.high][i] - line[kind.low][i]) / 2 }))
    .sort((a, b) => b.value - a.value);
  const parts = values.map(({ line, value, range }) =>
    make("div", {}, make("span", {}, key(group.block, line.row), label(group.block, line)),
      make("span", {}, kind.log || range == null ? kind.text(value) : value.toFixed(1) + " ± " + range.toFixed(1))));
  const arrived = group.marks.arrivals ? chart.arrivals.filter(([at]) => Math.abs(at - x) <= near) : [];
  const named = arrived.slice(0, 4).map(([at, name, seeds]) => name + " (seed " + seeds.join(", ") + ")");
  const news = arrived.length ? make("p", {}, "new: " + named.join(", ") + (arrived.length > 4 ? ", …" : "")) : null;
  return [head, ...parts, news].filter(Boolean);
}

function within(u, low, high) {
  if (low == null) return [0, 100];
  const room = Math.max(1, 0.06 * (high - low));
  return [Math.max(0, low - room), Math.min(100, high + room)];
}

function size(plot) {
  const width = Math.max(220, plot.clientWidth);
  return { width, height: Math.round(Math.max(280, Math.min(440, 0.46 * width))) };
}

function zoom(u, factor) {
  const { min, max } = u.scales.x;
  const [first, last] = [u.data[0][0], u.data[0][u.data[0].length - 1]];
  const middle = u.cursor.left > 0 ? u.posToVal(u.cursor.left, "x") : (min + max) / 2;
  const low = Math.max(first, middle - (middle - min) * factor);
  const high = Math.min(last, middle + (max - middle) * factor);
  u.setScale("x", factor === Infinity ? { min: first, max: last } : { min: low, max: high });
}
