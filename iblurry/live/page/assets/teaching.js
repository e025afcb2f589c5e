// Teaches one picture; what fails for a moment is sent again under the same key, so that it counts once.
import { Refused, json } from "./api.js";
import { sending } from "./asking.js";
import { pause } from "./dom.js";

const LONGEST = 30; // seconds between two attempts
const GONE = [404, 410]; // statuses: the service no longer has the picture of that answer

/** The service's receipt, or null if `signal` ended it; `waiting(sentence, seconds)` before every new attempt. */
export async function teach({ file, id }, label, waiting, signal) {
  if (id !== null) {
    try {
      return await persist("v1/label", written({ labels: [{ id, label }] }), waiting, signal);
    } catch (problem) {
      if (!(problem instanceof Refused && GONE.includes(problem.status))) throw problem;
    }
  }
  return persist("v1/learn?label=" + encodeURIComponent(label), await sending(file), waiting, signal);
}

/** Another label for a sample that was taught. */
export function relabel(sample, label, waiting, signal) {
  return persist("v1/correct", written({ corrections: [{ action: "relabel", sample, label }] }), waiting, signal);
}

function written(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function persist(path, { headers, ...request }, waiting, signal) {
  request.headers = { ...headers, "Idempotency-Key": key() };
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      return await json(path, request);
    } catch (problem) {
      if (!(problem instanceof Refused && problem.passing)) throw problem;
      const seconds = problem.retryAfter ?? Math.min(LONGEST, 2 ** failures);
      waiting(problem.message, seconds);
      await pause(seconds, signal);
    }
  }
  return null;
}

/** 128 random bits; crypto.randomUUID would need HTTPS. */
function key() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
