// Listens to the service and tells the parts of the page what is new.
import { json } from "./api.js";
import * as classes from "./classes.js";
import * as confusion from "./confusion.js";
import * as curves from "./curves.js";
import { at, count, write } from "./dom.js";
import "./downloads.js";
import { listen, tryNow } from "./events.js";
import { lazily } from "./lazily.js";
import * as memory from "./memory.js";
import * as status from "./status.js";
import { kept } from "./token.js";
import * as tray from "./tray.js";

let applied = -1; // operations: corrections change what is shown, too
let countdown;

const history = lazily(null, at("curves-note"), 1, async () => curves.load((await json("v1/history")).points));

function found() {
  clearInterval(countdown);
  at("lost").hidden = true;
  at("docs").hidden = kept() !== null; // a link cannot send the token
  status.stale(null);
  curves.reset();
  history();
  classes.due();
  memory.due();
  confusion.due();
}

function heard(name, data) {
  if (name === "status") {
    status.show(data);
    tray.follow(data);
    if (data.applied !== applied) {
      classes.due();
      memory.due();
      confusion.due();
    }
    applied = data.applied;
  } else if (name === "point") {
    if (curves.add(data)) history();
  } else if (name === "class") {
    classes.due();
  }
}

function lost(sentence, seconds) {
  status.stale(seconds === null ? "token needed" : "no connection");
  clearInterval(countdown);
  at("lost").hidden = false;
  write(at("lost-text"), sentence);
  write(at("lost-again"), seconds === null ? "Enter the token" : "Try now");
  const tell = () => write(at("lost-when"), seconds >= 1 ? ` Trying again in ${count(seconds)} s.` : "");
  tell();
  countdown = setInterval(() => ((seconds -= 1), tell()), 1000);
}

at("lost-again").addEventListener("click", tryNow);
listen({ found, heard, lost });
