// Elements made safely, and numbers as people read them.
export const NONE = "–";

export function at(id) {
  return document.getElementById(id);
}

/** An element with attributes and children; strings become text, never HTML. */
export function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** A label as it was given: isolated, so that its direction does not turn what stands beside it. */
export function named(label) {
  return make("bdi", { title: label.length > 40 && label }, label);
}

/** A picture that keeps its pixels where it is shown larger than it is. */
export function sharpen(image) {
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 128));
  return image;
}

/** New text, only if it is new: what did not change is not drawn again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** How full a bar is, from 0 to 1. */
export function fill(bar, share) {
  bar.style.width = (100 * Math.max(0, Math.min(1, share || 0))).toFixed(1) + "%";
}

/** Tells those who listen to the page rather than look at it. */
export function say(text) {
  write(at("spoken"), text);
}

export function count(value) {
  return value == null ? NONE : Math.round(value).toLocaleString("en-US");
}

export function percent(value, digits = 1) {
  return value == null ? NONE : (100 * value).toFixed(digits) + " %";
}

/** A rate as text: 0.001, 3.3e-5. */
export function rate(value) {
  if (value == null) return NONE;
  return value === 0 || Math.abs(value) >= 1e-3 ? String(+value.toPrecision(3)) : value.toExponential(1).replace(".0e", "e");
}

/** Seconds as one number and a unit. */
export function duration(seconds) {
  if (seconds < 10) return Math.max(0, seconds).toFixed(1) + " s";
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

export function bytes(value) {
  if (value == null) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = value < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
  return +(value / 1000 ** step).toPrecision(3) + " " + units[step];
}

/** After so many seconds, or when `signal` says so. */
export function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
