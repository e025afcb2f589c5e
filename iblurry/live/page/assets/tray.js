// Pictures dropped, chosen or pasted: asked about at once; taught when their guess is confirmed or they are given a label.
import { Refused } from "./api.js";
import { answered, ask } from "./asking.js";
import { at, count, make, named, percent, say, sharpen, write } from "./dom.js";
import { relabel, teach } from "./teaching.js";

const MOST = 100; // pictures at a time
const NOTHING_LEARNT = 409; // status of the answer to a question

const pictures = new Set();
let turn = Promise.resolve(); // teaching keeps the order: a stream has one
let newest = { model: 0, model_operation: 0 }; // status of the service
let goal = null; // sample and operation that the model is to have learnt before the pictures are asked about again

/** A new status: once what was taught here is learnt, all pictures are asked about again. */
export function follow(status) {
  newest = status;
  if (goal === null || [...pictures].some((picture) => picture.busy)) return;
  if (status.model < goal.sample || status.model_operation < goal.operation) return;
  goal = null;
  question([...pictures], "All pictures were predicted again.");
}

function add(files) {
  const fit = [...files].filter((file) => !file.type || file.type.startsWith("image/"));
  const left = MOST - pictures.size;
  note(
    fit.length > left ? `The page takes ${MOST} pictures at a time; for a folder: iblurry live send FOLDER.`
      : fit.length < files.length ? "Only pictures can be used, such as PNG or JPEG files." : "",
  );
  const fresh = fit.slice(0, left).map(entry);
  at("tray").prepend(...fresh.map((picture) => picture.row));
  changed();
  question(fresh);
}

function entry(file) {
  const source = URL.createObjectURL(file);
  const image = sharpen(make("img", { src: source, alt: "", decoding: "async" }));
  image.addEventListener("error", () => image.replaceWith(make("span", { class: "blank" }, "no preview")), { once: true });
  const said = make("div", { class: "answers" }), fate = make("p", { class: "fate" });
  const confirm = make("button", { type: "button", class: "confirm", hidden: true });
  const field = make("input", { list: "labels", "aria-label": "Label of " + file.name, placeholder: "label", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const button = make("button", { type: "submit" }), away = make("button", { type: "button", class: "away", "aria-label": "Remove " + file.name }, "×");
  const form = make("form", {}, confirm, field, button);
  const row = make("li", {}, image, make("div", {}, make("p", { class: "file" }, named(file.name)), said, form, fate), away);
  const picture = { file, source, row, said, fate, confirm, field, button, id: null, guess: null, sample: null, label: null, busy: false, stop: new AbortController() };
  confirm.addEventListener("click", () => upload(picture, picture.guess));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const label = field.value.trim() || (picture.sample === null ? at("label").value.trim() : "");
    if (label) upload(picture, label);
    else field.focus();
  });
  away.addEventListener("click", () => (remove(picture), changed(), at("files").focus()));
  pictures.add(picture);
  return picture;
}

function remove(picture) {
  picture.stop.abort();
  URL.revokeObjectURL(picture.source);
  picture.row.remove();
  pictures.delete(picture);
}

/** Those that are neither taught nor on their way. */
function open() {
  return [...pictures].filter((picture) => picture.sample === null && !picture.busy);
}

function changed() {
  at("actions").hidden = pictures.size === 0;
  at("tray-none").hidden = pictures.size > 0;
  write(at("teach-all"), open().length > 1 ? "Teach " + count(open().length) : "Teach");
  for (const { file, sample, busy, guess, confirm, field, button } of pictures) {
    confirm.disabled = field.disabled = button.disabled = busy;
    confirm.hidden = guess === null || sample !== null;
    write(button, sample === null ? "Teach" : "Relabel");
    button.setAttribute("aria-label", button.textContent + " " + file.name);
  }
}

async function question(asked, summary) {
  for (const picture of asked) {
    if (!pictures.has(picture)) continue;
    await attempt(picture.said, async () => {
      const answer = await ask(picture.file);
      [picture.id, picture.guess] = [answer.id, answer.label];
      picture.said.replaceChildren(...answered(answer, picture.label));
      picture.confirm.replaceChildren("✓ ", named(answer.label));
      picture.confirm.setAttribute("aria-label", "Confirm " + answer.label + " for " + picture.file.name);
      if (!summary) say(picture.file.name + ": " + (answer.unknown ? "unknown; perhaps " : "") + answer.label + ", " + percent(answer.probability, 0));
    }, NOTHING_LEARNT);
    changed();
  }
  if (summary) say(summary);
}

/** One after the other; a picture is taught once, and another label for it relabels that sample. */
function upload(picture, label) {
  picture.busy = true;
  tell(picture, "Waiting for its turn.");
  changed();
  turn = turn.then(async () => {
    const again = (sentence, seconds) => tell(picture, sentence + " Trying again in " + count(seconds) + " s.");
    await attempt(picture.fate, async () => {
      tell(picture, "Sending …");
      const { sample, stop } = picture;
      const receipt = await (sample === null ? teach(picture, label, again, stop.signal) : relabel(sample, label, again, stop.signal));
      if (receipt === null) return; // removed meanwhile
      picture.sample ??= receipt.first;
      picture.label = label;
      picture.field.value = "";
      goal = { sample: Math.max(picture.sample, goal?.sample ?? 0), operation: Math.max(receipt.operation ?? 0, goal?.operation ?? 0) };
      tell(picture, "✓ sample " + count(picture.sample) + ": ", label);
      say((sample === null ? "Accepted as sample " : "Relabelled: sample ") + count(picture.sample) + ": " + label);
    });
    picture.busy = false;
    changed();
    follow(newest);
  });
}

/** If it did not go well, the reason is written where the result would stand; one of status `usual` is no fault. */
async function attempt(place, work, usual) {
  try {
    await work();
  } catch (problem) {
    if (!(problem instanceof Refused || problem instanceof DOMException)) throw problem; // DOMException: the file went away
    const sentence = problem instanceof Refused ? problem.message : "The file can no longer be read; choose it again.";
    place.replaceChildren(problem.status === usual ? make("p", {}, sentence) : make("span", { class: "miss" }, sentence));
    say(sentence);
  }
}

function tell(picture, text, label) {
  picture.fate.replaceChildren(text, ...(label === undefined ? [] : [named(label)]));
}

function note(text) {
  write(at("try-note"), text);
}

/** Each under its own label, or else under the one for all. */
at("teach").addEventListener("submit", (event) => {
  event.preventDefault();
  const common = at("label").value.trim(), given = open().map((picture) => [picture, picture.field.value.trim() || common]);
  const bare = given.some(([, label]) => !label);
  note(!given.length ? "Drop or choose a picture first." : bare ? "Enter a label first." : "");
  if (!given.length) return at("files").focus();
  if (bare) return at("label").focus();
  given.forEach(([picture, label]) => upload(picture, label));
});
at("again").addEventListener("click", () => question([...pictures]));
at("clear").addEventListener("click", () => ([...pictures].forEach(remove), changed(), note(""), at("files").focus()));
at("files").addEventListener("change", () => (add(at("files").files), (at("files").value = "")));
addEventListener("paste", (event) => event.clipboardData?.files.length && (event.preventDefault(), add(event.clipboardData.files)));
addEventListener("dragover", (event) => {
  if (!event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  at("drop").classList.add("over");
});
addEventListener("dragleave", (event) => event.relatedTarget === null && at("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  at("drop").classList.remove("over");
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  add(event.dataTransfer.files);
});
