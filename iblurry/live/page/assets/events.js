// Server-sent events, read by fetch because it can send a token; connects again by itself.
import { Refused, askAgain, call } from "./api.js";
import { pause } from "./dom.js";

const SILENCE = 40_000; // milliseconds; a living service writes at least every 15 seconds
const LONGEST = 30; // seconds between two attempts

let wake = new AbortController();

/** Never ends. `found` on every connection, `heard(name, data)`, `lost(sentence, seconds until the next attempt)`. */
export async function listen({ found, heard, lost }) {
  for (let failures = 0; ; failures += 1) {
    try {
      for await (const [name, data] of connection(found)) {
        failures = 0;
        heard(name, data);
      }
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      const seconds = problem.retryAfter ?? Math.min(LONGEST, 2 ** failures);
      lost(problem.message, problem.status === 401 ? null : seconds);
      wake = new AbortController();
      await pause(problem.status === 401 ? 1e6 : seconds, wake.signal);
    }
  }
}

/** The next attempt is made now. */
export function tryNow() {
  askAgain();
  wake.abort();
}

addEventListener("online", tryNow);

async function* connection(found) {
  let silence, timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE);
  };
  const until = () => ((silence = new AbortController()), alive(), silence.signal);
  const response = await call("v1/events", { until });
  found();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let text = ""; ; ) {
      const { done, value } = await reader.read().catch(() => ({ done: true }));
      if (done) throw new Refused(0, "The connection to the service is lost.");
      alive();
      const blocks = (text + value).split(/\r?\n\r?\n/);
      text = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** [name, data] of one event; null for a comment. */
function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^(\w*): ?(.*)$/.exec(line) || [];
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? [name, JSON.parse(data.join("\n"))] : null;
}
