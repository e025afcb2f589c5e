// The classes as a table that sorts, and as the labels to choose from.
import { json } from "./api.js";
import { arrived } from "./curves.js";
import { at, count, fill, make, named, percent, say, write } from "./dom.js";
import { lazily } from "./lazily.js";

const FLASH = 6000; // milliseconds a new class is marked

const table = at("classes").querySelector("table");
const body = table.tBodies[0];
const lines = new Map(); // label -> its row and the cells that change
let by = null, falling = true; // nothing: in order of arrival
let first = true; // what is there at the start is not new

/** Says that counts or classes changed. */
export const due = lazily(null, at("classes-note"), 1, async () => update((await json("v1/classes")).classes));

function update(classes) {
  const labels = new Set(classes.map((one) => one.label));
  for (const [label, line] of lines) if (!labels.has(label)) (line.row.remove(), lines.delete(label));
  const fresh = classes.filter((one) => !lines.has(one.label)).map((one) => one.label);
  const most = Math.max(...classes.flatMap((one) => [one.recent_share, one.before_share]));
  table.classList.toggle("early", classes.every((one) => !one.before_share));
  classes.forEach((one, arrival) => renew(lines.get(one.label) ?? add(one.label), one, arrival, most));
  if (fresh.length && !first) announce(fresh);
  if (fresh.length) at("labels").replaceChildren(...classes.map((one) => make("option", { value: one.label })));
  first = false;
  arrived(classes);
  at("classes").hidden = at("classes-key").hidden = !classes.length;
  at("classes-none").hidden = classes.length > 0;
  order();
}

function add(label) {
  const bar = (mark) => make("span", { class: "meter", "aria-hidden": "true" }, make("i"), mark ? make("b") : null);
  const numbers = ["seen", "held", "accuracy", "recent_accuracy", "recent_share"];
  const cells = Object.fromEntries(numbers.map((name) => [name, make("td", { class: "n" }, make("span"))]));
  cells.recent_accuracy.append(bar(false));
  cells.recent_share.append(bar(true));
  const row = make("tr", {}, make("th", { scope: "row" }, named(label)), ...Object.values(cells));
  const line = { row, cells };
  lines.set(label, line);
  return line;
}

function renew(line, one, arrival, most) {
  Object.assign(line, { one, arrival });
  const texts = {
    seen: count(one.seen), held: count(one.held), accuracy: percent(one.accuracy, 0),
    recent_accuracy: percent(one.recent_accuracy, 0), recent_share: percent(one.recent_share, 0),
  };
  for (const [name, text] of Object.entries(texts)) write(line.cells[name].firstChild, text);
  fill(line.cells.recent_accuracy.querySelector("i"), one.recent_accuracy);
  fill(line.cells.recent_share.querySelector("i"), one.recent_share / most);
  line.cells.recent_share.querySelector("b").style.left = (100 * (one.before_share / most || 0)).toFixed(1) + "%";
  line.cells.recent_share.title = "now " + percent(one.recent_share) + ", before " + percent(one.before_share);
}

function announce(labels) {
  say((labels.length === 1 ? "New class: " : "New classes: ") + labels.join(", "));
  for (const { row } of labels.map((label) => lines.get(label))) {
    row.classList.add("new");
    setTimeout(() => row.classList.remove("new"), FLASH);
  }
}

function order() {
  const rows = [...lines.values()].sort((a, b) => compare(a, b) || a.arrival - b.arrival).map((line) => line.row);
  if (rows.some((row, i) => body.rows[i] !== row)) body.append(...rows);
}

function compare(a, b) {
  if (by === null) return 0;
  const [x, y] = [a.one[by], b.one[by]];
  if (x == null || y == null) return (x == null) - (y == null); // none last
  const sign = typeof x === "string" ? x.localeCompare(y) : x - y;
  return falling ? -sign : sign;
}

/** Largest first, or from A; again for the other way; and again for the order of arrival. */
table.tHead.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const start = button.dataset.by !== "label";
  if (by !== button.dataset.by) [by, falling] = [button.dataset.by, start];
  else if (falling === start) falling = !start;
  else by = null;
  for (const head of table.tHead.rows[0].cells) {
    if (head.firstElementChild.dataset.by === by) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  order();
});
