// The header: how the service is, in a word, a sentence and twelve numbers.
import { NONE, at, bytes, count, duration, fill, make, percent, rate, say, write } from "./dom.js";

const CARDS = {
  recent: "recent accuracy", overall: "overall accuracy", learnt: "learnt", queue: "queue", pace: "samples per second", known: "classes",
  held: "memory", model: "model version", drift: "class drift", rate: "learning rate", checkpoint: "checkpoint", disk: "disk",
};
const BARS = ["queue", "held"]; // parts of something

let last = null; // the newest status
let heardAt = 0; // when, by this page's clock

export function show(now) {
  if (last?.state !== now.state) say("The service is " + now.state + ". " + now.sentence);
  last = now;
  heardAt = performance.now();
  card("recent", percent(now.recent_accuracy), "of the last " + count(Math.min(now.window, now.tested) || now.window));
  card("overall", percent(now.accuracy), "of " + count(now.tested) + " tested");
  card("learnt", count(now.learnt), "of " + count(now.accepted) + " accepted");
  card("queue", count(now.queue), "room for " + count(now.queue_limit), now.queue / now.queue_limit);
  card("pace", (now.samples_per_second ?? 0).toLocaleString("en-US", { maximumFractionDigits: 1 }), count(now.updates) + " updates");
  card("known", count(now.classes), "at most " + count(now.max_classes));
  card("held", count(now.held), "of " + count(now.capacity), now.held / now.capacity);
  card("drift", percent(now.drift), "since the last window");
  card("rate", rate(now.learning_rate), now.loss == null ? "" : "loss " + rate(now.loss));
  card("disk", bytes(now.disk_bytes), "at most " + bytes(now.disk_most));
  at("queue-bar").classList.toggle("full", now.queue >= 0.9 * now.queue_limit);
  write(at("held-out-text"), "held out: " + percent(now.held_out_accuracy) + " of " + count(now.held_out));
  write(at("sentence"), now.sentence);
  write(at("version"), "iblurry " + now.iblurry);
  badge(now.state);
  document.title = [percent(now.recent_accuracy), now.state, "iblurry live"].join(" · ");
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
  const facts = [last.method, last.network, last.image.join("×"), last.device, "up " + duration(last.uptime_seconds + since)];
  if (last.restarts) facts.push("restarts: " + last.restarts);
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
