// The header: how the service is, in a word, a sentence and twelve numbers.
import { NONE, at, bytes, count, duration, fill, make, percent, rate, say, write } from "./dom.js";

const CARDS = { // what a number is called; those with a bar are shares of something
  recent: "recent accuracy", overall: "overall accuracy", learnt: "learnt", queue: "queue", pace: "samples per second", known: "classes",
  held: "memory", model: "model version", drift: "drift of the mix", rate: "learning rate", checkpoint: "checkpoint", disk: "disk",
};
const BARS = ["queue", "held"];

let last = null; // the newest status
let heardAt = 0; // when, by this page's clock

export function show(status) {
  if (last?.state !== status.state) say("The service is " + status.state + ". " + status.sentence);
  last = status;
  heardAt = performance.now();
  card("recent", percent(status.recent_accuracy), "of the last " + count(Math.min(status.window, status.tested) || status.window));
  card("overall", percent(status.accuracy), "of " + count(status.tested) + " tested");
  card("learnt", count(status.learnt), "of " + count(status.accepted) + " accepted");
  card("queue", count(status.queue), "room for " + count(status.queue_limit), status.queue / status.queue_limit);
  card("pace", status.samples_per_second < 10 ? (status.samples_per_second ?? 0).toFixed(1) : count(status.samples_per_second), count(status.updates) + " updates");
  card("known", count(status.classes), "of at most " + count(status.max_classes));
  card("held", count(status.held), "of " + count(status.capacity), status.held / status.capacity);
  card("drift", percent(status.drift), "against before");
  card("rate", rate(status.learning_rate), status.loss == null ? "" : "loss " + rate(status.loss));
  card("disk", bytes(status.disk_bytes), "at most " + bytes(status.disk_most));
  at("queue-bar").classList.toggle("full", status.queue >= 0.9 * status.queue_limit);
  write(at("sentence"), status.sentence);
  write(at("version"), "iblurry " + status.iblurry);
  badge(status.state);
  document.title = (status.recent_accuracy == null ? "" : percent(status.recent_accuracy) + " · ") + status.state + " · iblurry live";
  tick();
}

/** Without a connection the numbers are old, and look it; `why` in two words, null if there is one again. */
export function stale(why) {
  document.body.classList.toggle("stale", why !== null);
  if (why !== null) badge(why);
  else if (last) badge(last.state);
}

function badge(state) {
  write(at("state"), state);
  at("state").dataset.state = state;
}

/** Ages grow between two messages. */
function tick() {
  if (last === null) return;
  const since = (performance.now() - heardAt) / 1000;
  const saved = last.checkpoint_age_seconds;
  card("model", count(last.model), duration(last.model_age_seconds + since) + " old");
  card("checkpoint", saved == null ? "none yet" : duration(saved + since) + " ago", saved == null ? "" : "at sample " + count(last.checkpoint));
  const threads = last.threads === 1 ? "1 thread" : last.threads + " threads";
  const facts = [last.method, last.network, last.image.join("×"), last.device + ", " + threads, "up " + duration(last.uptime_seconds + since)];
  if (last.restarts) facts.push("restarted " + (last.restarts === 1 ? "once" : last.restarts + " times"));
  write(at("about"), facts.join(" · "));
}

function card(id, text, of, share) {
  write(at(id), text);
  write(at(id + "-of"), of);
  if (share !== undefined) fill(at(id + "-bar"), share);
}

at("cards").append(...Object.entries(CARDS).map(([id, name]) => {
  const bar = BARS.includes(id) ? make("span", { class: "meter", "aria-hidden": "true" }, make("i", { id: id + "-bar" })) : null;
  return make("div", {}, make("dt", {}, name), make("dd", {}, make("span", { id }, NONE), make("small", { id: id + "-of" }), bar));
}));
setInterval(tick, 1000);
