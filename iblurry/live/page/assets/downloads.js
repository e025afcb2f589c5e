// What can be taken home: the current model as a file, and the history as a table.
import { Refused, call, json } from "./api.js";
import { at, count, make, say, write } from "./dom.js";

/** Fetched rather than linked to: a link cannot send the token, nor say why it was refused. */
async function save(button) {
  const kind = button.dataset.save;
  button.disabled = true;
  write(at("save-note"), kind === "csv" ? "" : "Writing the model; this takes some seconds.");
  try {
    const answer = kind === "csv" ? null : await call("v1/model?format=" + kind);
    const blob = answer ? await answer.blob() : table((await json("v1/history")).points);
    const link = make("a", { href: URL.createObjectURL(blob), download: (kind === "csv" ? "history." : "model.") + kind });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    write(at("save-note"), answer ? `It has learnt ${count(answer.headers.get("X-Samples"))} of ${count(answer.headers.get("X-Accepted"))} samples.` : "");
    say(`${link.download}: ${count(blob.size)} bytes.`);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    write(at("save-note"), problem.message);
  } finally {
    button.disabled = false;
  }
}

function table(points) {
  const columns = Object.keys(points[0] ?? { at: 0 });
  const lines = [columns, ...points.map((point) => columns.map((name) => point[name] ?? ""))];
  return new Blob([lines.map((line) => line.join(",") + "\r\n").join("")], { type: "text/csv" });
}

at("save").addEventListener("click", (event) => event.target.dataset.save && save(event.target));
