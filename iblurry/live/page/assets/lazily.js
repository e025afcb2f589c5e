// Work that waits until somebody looks, and is not done too often.
import { Refused } from "./api.js";
import { write } from "./dom.js";

/** A function that says the work is due. It is done when `section` is near the screen, and `seconds` apart unless `now`. */
export function lazily(section, note, seconds, work) {
  let due = false, seen = section === null, busy = false, timer = 0;

  async function go() {
    if (!due || !seen || busy || timer || document.hidden) return;
    due = false;
    busy = true;
    const began = performance.now();
    try {
      await work();
      note.hidden = true;
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      due = problem.passing && problem.status > 0;
      note.hidden = problem.status === 0; // no connection: said at the top, all is due after it
      write(note, problem.message);
    } finally {
      const spent = performance.now() - began; // one far away is asked less often
      busy = false;
      timer = setTimeout(rested, Math.max(1000 * seconds, Math.min(10 * spent, 15e3)));
    }
  }

  function rested() {
    clearTimeout(timer);
    timer = 0;
    go();
  }

  document.addEventListener("visibilitychange", go);
  if (section !== null) {
    const watch = (entries) => ((seen = entries.at(-1).isIntersecting), go());
    new IntersectionObserver(watch, { rootMargin: "200px" }).observe(section);
  }
  return (now) => ((due = true), now === true ? rested() : go());
}
