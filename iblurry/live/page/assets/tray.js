// Pictures dropped, chosen or pasted: asked about at once, taught when they are given a label.
import { Refused } from "./api.js";
import { answered, ask } from "./asking.js";
import { at, count, make, named, percent, say, write } from "./dom.js";
import { teach } from "./teaching.js";

const MOST = 100; // pictures at a time

const pictures = new Set();
let turn = Promise.resolve(); // teaching keeps the order: a stream has one

function add(files) {
  const fit = [...files].filter((file) => !file.type || file.type.startsWith("image/"));
  const left = MOST - pictures.size;
  note(
    fit.length > left ? `The page takes ${MOST} pictures at a time; for a folder: iblurry send FOLDER.`
      : fit.length < files.length ? "Only pictures can be asked about: PNG, JPEG and the like." : "",
  );
  const fresh = fit.slice(0, left).map(entry);
  at("tray").prepend(...fresh.map((picture) => picture.row));
  changed();
  question(fresh);
}

function entry(file) {
  const source = URL.createObjectURL(file);
  const image = make("img", { src: source, alt: "", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(make("span", { class: "blank" }, "no preview")), { once: true });
  const said = make("div", { class: "answers" }), fate = make("p", { class: "fate" });
  const away = make("button", { type: "button", class: "away", "aria-label": "Remove " + file.name }, "×");
  const row = make("li", {}, image, make("div", {}, make("p", { class: "file" }, named(file.name)), said, fate), away);
  const picture = { file, source, row, said, fate, taught: false, stop: new AbortController() };
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

function changed() {
  at("actions").hidden = pictures.size === 0;
  at("tray-none").hidden = pictures.size > 0;
  const open = [...pictures].filter((picture) => !picture.taught).length;
  write(at("teach-all"), open > 1 ? "Teach " + count(open) : "Teach");
}

async function question(asked) {
  for (const picture of asked) {
    if (!pictures.has(picture)) continue;
    await attempt(picture.said, async () => {
      const answer = await ask(picture.file);
      picture.said.replaceChildren(...answered(answer));
      say(picture.file.name + ": " + answer.top[0].label + ", " + percent(answer.top[0].probability, 0));
    });
  }
}

/** One after the other; what was taught, or is on its way, is not sent again. */
function upload(picture, label) {
  picture.taught = true;
  tell(picture, "Waiting for its turn.");
  turn = turn.then(async () => {
    picture.taught = await attempt(picture.fate, async () => {
      tell(picture, "Sending …");
      const again = (sentence, seconds) => tell(picture, sentence + " Trying again in " + count(seconds) + " s.");
      const receipt = await teach(picture.file, label, again, picture.stop.signal);
      if (receipt === null) return; // removed meanwhile
      tell(picture, "✓ sample " + count(receipt.first) + ": ", label);
      say("Accepted as sample " + count(receipt.first) + ": " + label);
    });
    changed();
  });
}

/** Whether it went well; if not, the reason is written where the result would stand. */
async function attempt(place, work) {
  try {
    await work();
    return true;
  } catch (problem) {
    if (!(problem instanceof Refused || problem instanceof DOMException)) throw problem; // DOMException: the file went away
    const sentence = problem instanceof Refused ? problem.message : "The file can no longer be read; choose it again.";
    place.replaceChildren(make("span", { class: "miss" }, sentence));
    say(sentence);
    return false;
  }
}

function tell(picture, text, label) {
  picture.fate.replaceChildren(text, ...(label === undefined ? [] : [named(label)]));
}

function note(text) {
  write(at("try-note"), text);
}

at("teach").addEventListener("submit", (event) => {
  event.preventDefault();
  const label = at("label").value.trim();
  const open = [...pictures].filter((picture) => !picture.taught);
  note(!open.length ? "Drop or choose a picture first." : label ? "" : "Give a label first: what is it?");
  if (!open.length) return at("files").focus();
  if (!label) return at("label").focus();
  open.forEach((picture) => upload(picture, label));
  changed();
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
