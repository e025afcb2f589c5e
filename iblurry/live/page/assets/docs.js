// Reads /openapi.json and lays it out; every text goes in as text, never as HTML.
import { Refused, json } from "./api.js";
import { at, make } from "./dom.js";

/** Paragraphs, with `code` as code. */
function prose(text) {
  return (text || "").split(/\n\s*\n/).filter((part) => part.trim()).map((part) =>
    make("p", {}, ...part.trim().split("`").map((piece, i) => (i % 2 ? make("code", {}, piece) : piece))));
}

class Description {
  constructor(spec) {
    this.spec = spec;
  }

  /** Every endpoint, in the order of the description. */
  *endpoints() {
    for (const [path, methods] of Object.entries(this.spec.paths)) {
      for (const [method, about] of Object.entries(methods)) yield { path, method, ...about };
    }
  }

  meant(schema) {
    if (!schema || !schema.$ref) return schema || {};
    return schema.$ref.slice(2).split("/").reduce((part, step) => part[step], this.spec);
  }

  /** What kind of value it is, in a few words. */
  kind(given) {
    const schema = this.meant(given);
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
    const several = schema.anyOf || schema.oneOf;
    if (several) return several.map((one) => this.kind(one)).join(" or ");
    if (schema.type === "array") return "list of " + this.kind(schema.items);
    const [least, most] = [schema.minimum ?? schema.minLength, schema.maximum ?? schema.maxLength];
    const from = least === undefined ? "" : " from " + least, to = most === undefined ? "" : " to " + most;
    const unit = schema.maxLength === undefined ? "" : " characters";
    return (schema.title && schema.type === "object" ? schema.title : schema.type || "anything") + from + to + unit;
  }

  /** The parts of a value, and theirs; `depth` ends what would never end. */
  parts(given, depth = 0) {
    const schema = this.meant(given);
    if (depth > 8) return null;
    if (schema.type === "array") return this.parts(schema.items, depth + 1);
    if (schema.oneOf || schema.anyOf) {
      const inner = (schema.oneOf || schema.anyOf).map((one) => this.parts(one, depth + 1)).filter(Boolean);
      return inner.length ? make("div", {}, ...inner.flatMap((one, i) => (i ? [make("p", { class: "muted" }, "or"), one] : [one]))) : null;
    }
    if (!schema.properties) return null;
    const required = new Set(schema.required || []);
    return make("ul", { class: "schema" }, ...Object.entries(schema.properties).map(([name, value]) =>
      make("li", {}, make("code", {}, name), " ", make("span", { class: "muted" },
        this.kind(value) + (required.has(name) ? "" : ", optional")),
      this.meant(value).description ? make("small", {}, this.meant(value).description) : null,
      this.parts(value, depth + 1))));
  }
}

/** Commands that can be typed as they stand, one for each kind of body. */
function commands(endpoint) {
  const words = ["curl"];
  if (endpoint.security?.length) words.push("-H 'Authorization: Bearer TOKEN'");
  if (endpoint.responses["200"]?.content?.["text/event-stream"]) words.push("-N");
  const labelled = (endpoint.parameters || []).some((one) => one.name === "label");
  const address = location.origin + endpoint.path;
  const kinds = Object.entries(endpoint.requestBody?.content || {});
  if (!kinds.length) return [[...words, quoted(address)].join(" ")];
  return kinds.map(([kind, content]) => {
    const json = kind === "application/json";
    const type = `-H 'Content-Type: ${kind.replace("*", "png")}'`;
    const data = json ? `-d ${quoted(JSON.stringify(content.example))}` : `--data-binary @${kind === "image/*" ? "picture.png" : "pixels.bin"}`;
    return [...words, type, data, quoted(address + (labelled && !json ? "?label=cat" : ""))].join(" ");
  });
}

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

function command(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it"; // a browser may not allow it
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return make("div", { class: "curl" }, make("pre", {}, make("code", {}, text)), button);
}

const table = (rows) => make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, ...rows)));

function heading(text, ...rest) {
  const there = rest.filter(Boolean);
  return there.length ? [make("h4", {}, text), ...there] : [];
}

function card(description, endpoint) {
  const method = endpoint.method.toUpperCase();
  const title = make("h3", {}, make("span", { class: "method " + endpoint.method }, method),
    make("code", {}, endpoint.path), make("span", {}, endpoint.summary));
  const rows = (endpoint.parameters || []).map((one) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, one.name)),
    make("td", {}, one.description || "", make("small", {}, one.in + ", " + description.kind(one.schema)
      + (one.required ? "" : ", optional")
      + (one.schema.default !== undefined ? ", usually " + one.schema.default : "")))));
  const bodies = Object.entries(endpoint.requestBody?.content || {}).map(([kind, content]) =>
    make("details", {}, make("summary", {}, make("code", {}, kind)),
      make("p", {}, content.schema.description || ""), description.parts(content.schema)));
  const all = Object.entries(endpoint.responses);
  const answers = all.filter(([status]) => status < 400).map(([status, answer]) => {
    const [kind, content] = Object.entries(answer.content || {})[0] || [];
    if (!content) return make("p", {}, make("code", {}, status), " ", answer.description);
    return make("details", {}, make("summary", {}, make("code", {}, status), " ",
      description.meant(content.schema).description || make("code", {}, kind)), description.parts(content.schema));
  });
  const refusals = make("details", {}, make("summary", {}, "Errors: a code, and a sentence that says what to do"),
    table(all.filter(([status]) => status >= 400).map(([status, answer]) => make("tr", {},
      make("th", { scope: "row" }, make("code", {}, status)), make("td", {}, answer.description)))));
  return make("article", { id: endpoint.operationId }, title, ...prose(endpoint.description),
    ...heading("Try it", ...commands(endpoint).map(command)),
    ...heading("Parameters", rows.length ? table(rows) : null),
    ...heading("Body", ...prose(endpoint.requestBody?.description), ...bodies),
    ...heading("Answers", ...answers, refusals));
}

function show(spec) {
  const description = new Description(spec), all = [...description.endpoints()];
  at("about").replaceChildren(...prose(spec.info.description), make("p", { class: "muted" }, "Version " + spec.info.version));
  at("contents").replaceChildren(make("ul", {}, ...all.map((one) =>
    make("li", {}, make("a", { href: "#" + one.operationId }, one.path)))));
  at("endpoints").replaceChildren(...spec.tags.flatMap((tag) => [make("h2", {}, tag.name),
    make("p", { class: "muted" }, tag.description),
    ...all.filter((one) => one.tags.includes(tag.name)).map((one) => card(description, one))]));
  if (location.hash) at(location.hash.slice(1))?.scrollIntoView();
}

try {
  show(await json("/openapi.json"));
} catch (problem) {
  if (!(problem instanceof Refused)) throw problem;
  at("trouble").textContent = problem.message;
}
