// Elements. What the server sends becomes text and attributes, never HTML: clients write keys.

const byId = (id) => document.getElementById(id);

// Attributes that are null are left out. Children are nodes or texts.
function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

function element(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// Writes only what has changed, so that selected text stays selected.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Shows a message, or hides its place if there is none.
function show(id, message) {
  const place = byId(id);
  setText(place, message ?? "");
  place.hidden = !message;
}

// A mark and a word: the mark differs in shape and in colour.
function state(kind, text) {
  return element("span", { class: "state", "data-state": kind }, mark(), element("span", {}, text));
}

function mark() {
  return element("span", { class: "mark", "aria-hidden": "true" });
}

function bar(share) {
  const fill = element("i");
  fill.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element("span", { class: "share", "aria-hidden": "true" }, fill);
}

function sparkline(values) {
  const [width, height] = [120, 20];
  const most = Math.max(...values, 1e-9);
  const step = width / values.length;
  const column = (value, index) => {
    if (value <= 0) return "";
    const tall = Math.max(1.5, (value / most) * height);
    return `M${(index * step).toFixed(1)} ${height}v${(-tall).toFixed(1)}h${(step * 0.8).toFixed(1)}V${height}z`;
  };
  const path = svg("path", { d: values.map(column).join("") });
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, path);
}

// A list of names and values.
function pairs(list, entries) {
  const items = entries.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  list.replaceChildren(...items);
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}
