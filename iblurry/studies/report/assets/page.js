// What all parts of the page use: the data, elements made safely, numbers as text.
const blocks = JSON.parse(document.getElementById("data").textContent);
const redraws = []; // called when the colours change

/** An element with attributes and children; strings become text, never HTML. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

/** A rate as text: 0.001, 3.3e-5. */
function rate(value) {
  return value >= 1e-3 ? String(+value.toPrecision(3)) : value.toExponential(1).replace(".0e", "e");
}

/** Where the tooltip goes: beside the pointer, inside its box. */
function place(tip, x, y) {
  const room = tip.parentElement.clientWidth;
  tip.hidden = false;
  const left = x + 16 + tip.offsetWidth <= room ? x + 16 : x - 16 - tip.offsetWidth;
  tip.style.left = Math.max(0, Math.min(left, room - tip.offsetWidth)) + "px";
  tip.style.top = Math.max(0, y) + "px";
}
