// Teaches one picture; what fails for a moment is sent again under the same key, so that it counts once.
import { Refused, json } from "./api.js";
import { sending } from "./asking.js";
import { pause } from "./dom.js";

const LONGEST = 30; // seconds between two attempts

/** The service's receipt, or null if `signal` ended it; `waiting(sentence, seconds)` before every new attempt. */
export async function teach(file, label, waiting, signal) {
  const request = await sending(file, { "Idempotency-Key": key() });
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      return await json("v1/learn?label=" + encodeURIComponent(label), request);
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
