// Colours of the style sheet for the canvases, and the ramp of the maps.
const DASHES = [[], [9, 3.5], [9, 3, 2.5, 3], [2.5, 2.5], [9, 3, 2.5, 3, 2.5, 3], [5, 5], [14, 4]]; // kinds of line, as the marks in the tables

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A row's looks are numbers: of its colour and of its kind of line. */
function colour(block, row) {
  return css("--c" + block.looks[row][0]);
}

function dash(block, row) {
  return DASHES[block.looks[row][1]];
}

/** The mark that stands beside a row's name. */
function key(block, row) {
  const [colour, line] = block.looks[row];
  return make("i", { class: "key c" + colour + " d" + line, "aria-hidden": "true" });
}

function faded(block, row, share) {
  return colour(block, row) + Math.round(255 * share).toString(16).padStart(2, "0");
}

// Cividis (Nuñez, Anderton and Renslow 2018): even steps of brightness, the same with any colour vision.
const RAMP = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A share from 0 to 1 as a colour. */
function shade(share) {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  const [from, to] = [channels(RAMP[low]), channels(RAMP[low + 1])];
  return "rgb(" + from.map((value, i) => Math.round(value + (to[i] - value) * (at - low))).join(" ") + ")";
}

function redraw() {
  redraws.forEach((draw) => draw());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  document.querySelectorAll("details").forEach((details) => {
    details.dataset.was = details.open ? "open" : "";
    details.open = true;
  });
  redraw();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  document.querySelectorAll("details").forEach((details) => (details.open = details.dataset.was === "open"));
  redraw();
});
