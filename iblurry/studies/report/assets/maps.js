// Maps of accuracy, class by class: one per row, for the seed that is chosen.
const LABELS = 30; // classes that still have room for their names
const ONCE = 0.96; // of the stream, from where on the answers are drawn of a method that is asked at its end only

function drawMaps(box, block) {
  const seeds = [...new Set(block.maps.map((map) => map.seed))].sort((a, b) => a - b);
  const grid = make("div", { class: "grid" });
  const stops = RAMP.map((stop, i) => stop + " " + Math.round((100 * i) / (RAMP.length - 1)) + "%").join(", ");
  const bar = make("i", {});
  bar.style.background = "linear-gradient(90deg, " + stops + ")";
  const buttons = seeds.map((seed) => {
    const button = make("button", { type: "button" }, "seed " + seed);
    button.addEventListener("click", () => choose(seed));
    return button;
  });
  function choose(seed) {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", seeds[i] === seed));
    const maps = block.maps.filter((map) => map.seed === seed);
    grid.replaceChildren(...maps.map((map) => drawMap(block, map)));
    grid.querySelectorAll("canvas").forEach((canvas) => canvas.paint());
  }
  const ramp = make("span", { class: "ramp" }, "0 %", bar, "100 % right");
  box.append(make("div", { class: "bar" }, ...(seeds.length > 1 ? buttons : []), make("span", { class: "gap" }), ramp), grid);
  choose(seeds[0]);
  const paint = () => grid.querySelectorAll("canvas").forEach((canvas) => canvas.paint());
  new ResizeObserver(paint).observe(grid);
  redraws.push(paint);
}

function drawMap(block, map) {
  const heading = make("h4", {}, key(block, map.row), block.names[map.row]);
  const canvas = make("canvas", { role: "img", "aria-label": "Accuracy of each class over the stream, " + block.names[map.row] + ", seed " + map.seed });
  const tip = make("div", { class: "tip", hidden: true });
  const lines = map.cells.map((line) => line.match(/../g).map((cell) => (cell === "--" ? null : parseInt(cell, 16))));
  const tall = lines.length <= LABELS ? 17 : Math.max(2, Math.floor(340 / lines.length));
  const foot = 20;
  let left = 0;

  canvas.paint = () => {
    const width = canvas.parentElement.clientWidth, height = tall * lines.length + foot;
    const ratio = devicePixelRatio, ctx = canvas.getContext("2d");
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = height + "px";
    ctx.scale(ratio, ratio);
    ctx.font = "12px system-ui, sans-serif";
    ctx.fillStyle = css("--muted");
    ctx.textBaseline = "middle";
    const named = lines.length <= LABELS;
    left = named ? Math.min(110, 8 + Math.max(...map.labels.map((name) => ctx.measureText(name).width))) : 4;
    if (named) map.labels.forEach((name, i) => ctx.fillText(shorten(ctx, name, left - 8), 0, tall * (i + 0.5)));
    const across = x(width);
    const first = map.at.length > 1 ? 0 : ONCE * map.at[0]; // asked once: not as if it had been asked all along
    ctx.fillStyle = css("--head");
    ctx.fillRect(left, 0, across(first) - left, tall * lines.length);
    lines.forEach((line, i) => line.forEach((value, j) => {
      const from = across(j ? map.at[j - 1] : first), to = across(map.at[j]);
      ctx.fillStyle = value == null ? css("--head") : shade(value / 100);
      ctx.fillRect(from, tall * i, Math.max(1, to - from) + 0.4, tall - (tall > 6 ? 1 : 0));
    }));
    ctx.fillStyle = css("--muted");
    ctx.textBaseline = "top";
    [0, 0.5, 1].forEach((share, i) => {
      ctx.textAlign = ["left", "center", "right"][i];
      ctx.fillText(count(share * block.chart.samples), left + share * (width - left), height - foot + 5);
    });
    ctx.textAlign = "left";
  };
  function x(width) {
    return (at) => left + ((width - left) * at) / block.chart.samples;
  }
  canvas.addEventListener("pointermove", (event) => {
    const at = ((event.offsetX - left) / (canvas.clientWidth - left)) * block.chart.samples;
    const i = Math.floor(event.offsetY / tall), j = map.at.findIndex((end) => at <= end && (map.at.length > 1 || at >= ONCE * end));
    if (i < 0 || i >= lines.length || j < 0 || at < 0) return void (tip.hidden = true);
    const value = lines[i][j];
    tip.replaceChildren(make("b", {}, map.labels[i]), value == null ? "not met yet" : value + " % right", make("p", {}, count(map.at[j]) + " samples"));
    place(tip, event.offsetX, event.offsetY + canvas.offsetTop - 30);
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  return make("div", { class: "map" }, heading, canvas, tip);
}

function shorten(ctx, name, width) {
  if (ctx.measureText(name).width <= width) return name;
  let short = name;
  while (short && ctx.measureText(short + "…").width > width) short = short.slice(0, -1);
  return short + "…";
}
