// What is drawn over the lines: ends of tasks, arrivals of classes; and the legend that hides and shows.
function drawTasks(u, chart) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = css("--mark");
  ctx.fillStyle = css("--muted");
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.font = 11.5 * ratio + "px system-ui, sans-serif";
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  const place = (x) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, u.valToPos(x, "x", true)));
  chart.ends.forEach((end, task) => {
    const from = place(task ? chart.ends[task - 1] : 0), to = place(end);
    if (task < chart.ends.length - 1 && to > bbox.left && to < bbox.left + bbox.width) {
      ctx.beginPath();
      ctx.moveTo(to, bbox.top);
      ctx.lineTo(to, bbox.top + bbox.height);
      ctx.stroke();
    }
    const name = to - from > 48 * ratio ? "task " + (task + 1) : to - from > 12 * ratio ? String(task + 1) : "";
    if (chart.ends.length > 1) ctx.fillText(name, (from + to) / 2, bbox.top - 4 * ratio);
  });
  ctx.restore();
}

/** A tick on the lower edge for the first sample of a class. */
function drawArrivals(u, chart) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = css("--muted");
  ctx.lineWidth = 1.2 * devicePixelRatio;
  ctx.setLineDash([]); // the last line's is still set
  const bottom = bbox.top + bbox.height;
  for (const [at] of chart.arrivals) {
    const x = u.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, bottom - 8 * devicePixelRatio);
    ctx.stroke();
  }
  ctx.restore();
}

/** Rings: the answers after the end of a task, where it changed them. */
function drawEnds(u, lines, group) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = 1.6 * devicePixelRatio;
  ctx.setLineDash([]);
  ctx.fillStyle = css("--card");
  for (const line of lines.filter((line) => !group.hidden.has(line))) {
    ctx.strokeStyle = colour(group.block, line.row);
    for (const [at, value] of line.after) {
      const x = u.valToPos(at, "x", true), y = u.valToPos(value, "y", true);
      if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
      ctx.beginPath();
      ctx.arc(x, y, 4 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    }
  }
  ctx.restore();
}

/** A button per line; pressed means shown. */
function legend(group) {
  const buttons = group.block.chart.lines.map((line, number) => {
    const button = make("button", { type: "button", "aria-pressed": "true" }, key(group.block, line.row), label(group.block, line));
    button.addEventListener("click", () => {
      const hide = !group.hidden.has(line);
      if (hide) group.hidden.add(line);
      else group.hidden.delete(line);
      button.setAttribute("aria-pressed", !hide);
      for (const u of group.plots) {
        u.batch(() => u.series.forEach((own, i) => own.number === number && u.setSeries(i, { show: !hide })));
      }
    });
    return button;
  });
  return make("div", { class: "legend", role: "group", "aria-label": "Lines shown" }, ...buttons);
}

/** Zoom, and what is marked. */
function tools(group) {
  const words = { spread: "spread", tasks: "tasks", arrivals: "new classes" };
  const boxes = Object.entries(words).map(([name, text]) => {
    const input = make("input", { type: "checkbox", checked: true });
    input.addEventListener("change", () => {
      group.marks[name] = input.checked;
      group.plots.forEach((u) => u.redraw(false));
    });
    return make("label", {}, input, text);
  });
  const steps = { "Zoom in": 0.5, "Zoom out": 2, "Show all": Infinity };
  const buttons = Object.entries(steps).map(([text, factor]) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => zoom(group.plots[0], factor));
    return button;
  });
  return make("div", { class: "bar" }, ...boxes, make("span", { class: "gap" }), ...buttons);
}
