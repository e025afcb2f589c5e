// A closer look at one picture of the sheet, by pointer, tap or arrow keys.
import { at, make, named, sharpen } from "./dom.js";

/** What to say of a picture's element. */
export const facts = new WeakMap();

const closer = at("closer"), sheet = at("sheet");

/** One picture can be reached by Tab, the others from it by arrows. */
export function ready() {
  const reached = sheet.querySelector("li[tabindex='0']") ?? sheet.querySelector("li");
  if (reached) reached.tabIndex = 0;
}

function show(item) {
  const known = item && facts.get(item);
  closer.hidden = !known;
  if (!known) return;
  closer.replaceChildren(
    ...(item.firstChild.src ? [sharpen(make("img", { src: item.firstChild.src, alt: "" }))] : []),
    make("span", {}, make("b", {}, named(known.label)), ...known.lines.map((line) => make("p", {}, line))),
  );
  const place = item.getBoundingClientRect();
  const left = Math.min(place.left, document.documentElement.clientWidth - closer.offsetWidth - 8);
  const below = place.bottom + 8;
  const above = place.top - 8 - closer.offsetHeight;
  closer.style.left = Math.max(8, left) + "px";
  closer.style.top = (below + closer.offsetHeight <= innerHeight || above < 0 ? below : above) + "px";
}

function reach(item) {
  sheet.querySelectorAll("li[tabindex='0']").forEach((other) => (other.tabIndex = -1));
  item.tabIndex = 0;
  item.focus();
}

sheet.addEventListener("pointerover", (event) => show(event.target.closest("li")));
sheet.addEventListener("pointerleave", () => show(null));
sheet.addEventListener("click", (event) => event.target.closest("li") && reach(event.target.closest("li")));
sheet.addEventListener("focusin", (event) => show(event.target.closest("li")));
sheet.addEventListener("focusout", () => show(null));
sheet.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return show(null);
  const items = [...sheet.querySelectorAll("li")], here = items.indexOf(document.activeElement);
  if (here < 0) return;
  const other = (item) => item.parentElement !== items[here].parentElement; // up and down: to another class
  const next = {
    ArrowRight: () => items[here + 1], ArrowLeft: () => items[here - 1],
    ArrowDown: () => items.slice(here).find(other), ArrowUp: () => items.slice(0, here).findLast(other)?.parentElement.firstElementChild,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  if (next()) reach(next());
});
addEventListener("scroll", () => show(null), { passive: true, capture: true });
