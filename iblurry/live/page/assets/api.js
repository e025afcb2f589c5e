// Requests to the service: with the token, and every refusal as its sentence.
import * as token from "./token.js";

const PASSING = [0, 429, 502, 503, 504]; // may go well in a moment: no connection, a full queue, a restart
const PATIENCE = 60_000; // milliseconds for a whole request

let asked = null; // the question for the token, while it is open
let declined = false; // nobody is asked again until they say so

/** A request that the service did not fulfil, in its own words. */
export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, if the service said so
  }

  get passing() {
    return PASSING.includes(this.status);
  }
}

/** The answer to a request, or Refused. `until` makes the signal that ends an attempt. */
export async function call(path, { until = () => AbortSignal.timeout(PATIENCE), ...options } = {}) {
  for (;;) {
    const used = token.kept();
    const headers = used === null ? options.headers : { ...options.headers, Authorization: "Bearer " + used };
    const response = await reach(path, { cache: "no-store", ...options, headers, signal: until() });
    if (response.ok) return response;
    const refusal = await refused(response);
    if (response.status !== 401 || declined) throw refusal;
    if (token.kept() === used) {
      asked ??= token.ask(used !== null).finally(() => (asked = null));
      declined = (await asked) === null;
    }
    if (declined) throw refusal;
  }
}

export async function json(path, options) {
  const response = await call(path, options);
  try {
    return await response.json();
  } catch {
    throw new Refused(0, "The response of the service is incomplete.");
  }
}

/** The token may be asked for again. */
export function askAgain() {
  declined = false;
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Refused(0, "The service does not answer."); // fetch tells no more
  }
}

async function refused(response) {
  const said = await response.json().catch(() => null); // a proxy may answer in HTML
  const message = typeof said?.message === "string" ? said.message : `The service answered with status ${response.status}.`;
  const seconds = Number(response.headers.get("Retry-After") || NaN);
  return new Refused(response.status, message, seconds >= 0 ? seconds : undefined);
}
