// The memory as a contact sheet: a group per class, the most important first.
import { json } from "./api.js";
import { at, count, make, named, rate, sharpen, write } from "./dom.js";
import { lazily } from "./lazily.js";
import { facts, ready } from "./thumbnails.js";

const groups = new Map(); // label -> its heading and list
const sheet = at("sheet");

/** Says that the memory changed. */
export const due = lazily(at("memory"), at("memory-note"), 1, async () => update(await json("v1/memory?each=" + at("each").value)));

at("each").addEventListener("change", () => due(true));

function update(memory) {
  const labels = new Set(memory.classes.map((one) => one.label));
  for (const [label, group] of groups) if (!labels.has(label)) (group.box.remove(), groups.delete(label));
  const items = memory.classes.flatMap((one) => one.items);
  const weights = items.map((item) => item.importance).filter((weight) => weight != null).sort((a, b) => a - b);
  for (const one of memory.classes) renew(groups.get(one.label) ?? add(one.label), one, weights);
  const boxes = memory.classes.map((one) => groups.get(one.label).box);
  if (boxes.some((box, i) => sheet.children[i] !== box)) sheet.append(...boxes);
  at("each-choice").hidden = !memory.size;
  at("memory-key").hidden = !weights.length;
  at("memory-none").hidden = memory.size > 0;
  ready();
}

function add(label) {
  const held = make("small"), list = make("ul", { "aria-label": label });
  const group = { label, box: make("div", {}, make("h3", {}, named(label), held), list), held, list, shown: new Map() };
  groups.set(label, group);
  return group;
}

/** Pictures that stay keep their elements: nothing flickers. */
function renew(group, one, weights) {
  const less = one.items.length < one.count ? ", " + count(one.items.length) + " shown" : "";
  write(group.held, count(one.count) + " held" + less);
  const before = group.shown;
  group.shown = new Map();
  const elements = one.items.map((item) => {
    const key = item.row + " " + item.since + " " + item.thumbnail;
    const element = before.get(key) ?? picture(item);
    group.shown.set(key, element);
    weigh(element, group.label, item, weights);
    return element;
  });
  const same = elements.length === group.list.children.length && elements.every((element, i) => group.list.children[i] === element);
  if (!same) group.list.replaceChildren(...elements);
}

function picture(item) {
  const shown = item.thumbnail?.startsWith("data:image/")
    ? sharpen(make("img", { src: item.thumbnail, decoding: "async" }))
    : make("span", { class: "blank", role: "img" }, "no picture");
  return make("li", { tabindex: -1 }, shown);
}

/** How many of those shown are less important, from 0 to 1: a rank, because importances differ by orders. */
function weigh(element, label, item, weights) {
  const below = item.importance == null ? null : weights.findIndex((weight) => weight >= item.importance);
  const level = below === null || weights.length < 2 ? 1 : below / (weights.length - 1);
  element.style.setProperty("--level", level.toFixed(3));
  element.classList.toggle("weighed", below !== null);
  const lines = ["row " + item.row, "since sample " + count(item.since)];
  if (below !== null) lines.unshift("importance " + rate(item.importance));
  if (item.thumbnail === null) lines.push("kept as features of the frozen network, without its picture");
  facts.set(element, { label, lines });
  element.firstChild.setAttribute(item.thumbnail === null ? "aria-label" : "alt", label + ", " + lines.join(", "));
}
