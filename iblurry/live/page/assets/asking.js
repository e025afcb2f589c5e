// Asks about pictures and shows the answers, the likeliest first.
import { json } from "./api.js";
import { count, fill, make, named, percent } from "./dom.js";

const TOP = 3;

/** The body of a request: a picture's bytes. What is no picture the service refuses in its own words. */
export async function sending(file) {
  const type = file.type.startsWith("image/") ? file.type : "image/unknown";
  return { method: "POST", headers: { "Content-Type": type }, body: await file.arrayBuffer() };
}

/** Answers to one picture, the id under which it can be labelled, and the version of the model that gave them. */
export async function ask(file) {
  const { model, threshold, answers } = await json("v1/predict?top=" + TOP, await sending(file));
  return { model, threshold, ...answers[0] };
}

/** `right`: the label that the picture was taught under, if it was. */
export function answered({ model, top, unknown, threshold }, right) {
  const lines = top.map(({ label, probability }) => {
    const bar = make("i");
    fill(bar, probability);
    const sign = label === right ? make("span", { class: "sign", "aria-label": "as taught" }, "✓ ") : null;
    return make("li", {}, make("span", {}, sign, named(label)), make("span", {}, percent(probability, 0)), make("span", { class: "meter", "aria-hidden": "true" }, bar));
  });
  const doubt = unknown ? [make("p", { class: "unknown" }, "unknown: all are below " + percent(threshold, 0))] : [];
  return [...doubt, make("ol", {}, ...lines), make("p", {}, "by model version " + count(model))];
}
