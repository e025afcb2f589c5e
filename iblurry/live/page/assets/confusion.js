// The confusion matrix of the recent answers: the classes that are confused most, the rest together.
import { json } from "./api.js";
import { at, count, make, named, percent } from "./dom.js";
import { lazily } from "./lazily.js";

const MOST = 12; // classes with a row of their own
const PAIRS = 3; // that are named below it
const REST = "others";

/** Says that samples were tested. */
export const due = lazily(at("confusion-panel"), at("confusion-note"), 1, async () => update(await json("v1/confusion")));

function update({ window, counts }) {
  const wrong = counts.filter((one) => one.answer !== one.label).sort((a, b) => b.count - a.count);
  at("confusion").hidden = at("confusion-key").hidden = !counts.length;
  at("confusion-none").hidden = counts.length > 0;
  if (!counts.length) return;
  const { rows, columns } = axes(counts, wrong);
  const cells = new Map(), sums = new Map();
  const place = (label, among) => (label !== null && among.includes(label) ? label : REST);
  for (const { label, answer, count: n } of counts) {
    const row = place(label, rows), column = place(answer, columns);
    const cell = cells.get(row + "\n" + column) ?? { n: 0, right: 0 };
    cells.set(row + "\n" + column, { n: cell.n + n, right: cell.right + (label === answer ? n : 0) });
    sums.set(row, (sums.get(row) ?? 0) + n);
  }
  const head = make("tr", {}, make("th", { scope: "col" }, "true class"), ...columns.map((label) => make("th", { scope: "col", class: "n" }, named(label))));
  const lines = rows.map((label) => make("tr", {}, make("th", { scope: "row" }, named(label)), ...columns.map((answer) => cell(label, answer, cells.get(label + "\n" + answer), sums.get(label)))));
  at("confusion").firstElementChild.replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
  const total = counts.reduce((sum, one) => sum + one.count, 0), missed = wrong.reduce((sum, one) => sum + one.count, 0);
  const pairs = wrong.slice(0, PAIRS).flatMap(({ label, answer, count: n }) => ["; ", named(label), " taken for ", answer === null ? "a deleted class" : named(answer), ` ${count(n)}×`]);
  at("confusion-key").replaceChildren(`${count(missed)} of ${count(total)} recent answers were wrong`, ...pairs, `. Rows: the true class; columns: the predicted class, over the last ${count(window)} samples.`);
}

/** The labels with rows and columns, in order of the alphabet. */
function axes(counts, wrong) {
  const all = [...new Set(counts.flatMap((one) => [one.label, one.answer]))].filter((label) => label !== null);
  const weight = new Map(all.map((label) => [label, 0]));
  for (const { label, answer, count: n } of wrong) for (const one of [label, answer]) if (one !== null) weight.set(one, weight.get(one) + n);
  const chosen = all.sort((a, b) => weight.get(b) - weight.get(a)).slice(0, MOST);
  chosen.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const more = (hidden) => (hidden ? [...chosen, REST] : chosen);
  return {
    rows: more(counts.some((one) => !chosen.includes(one.label))),
    columns: more(counts.some((one) => one.answer === null || !chosen.includes(one.answer))),
  };
}

function cell(label, answer, { n = 0, right = 0 } = {}, sum) {
  const kind = label === answer && label !== REST ? "right" : n > right ? "wrong" : "right";
  const element = make("td", { class: "n " + kind, title: n ? `${label}, answered ${answer}: ${count(n)} of ${count(sum)}, ${percent(n / sum, 0)}` : false }, n ? count(n) : "·");
  element.style.setProperty("--part", n ? (0.12 + (0.6 * n) / sum).toFixed(3) : 0);
  return element;
}
