// Line charts of the last hour, with one cursor for all of them.

const HEIGHT = 104;
const TOP = 8;
const BOTTOM = 18;
const charts = [];
let cursor = null;

// A rounded number that is at least `value`, for the top of an axis.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// `lines`: { name, title, read: slot => number or null }.
function addChart(title, format, lines) {
  const readings = element("span", { class: "readings" });
  const drawing = svg("svg", { role: "img", tabindex: "0" });
  const caption = element("figcaption", {}, element("h2", {}, title), readings);
  byId("traffic").append(element("figure", { class: "chart" }, caption, drawing));
  const chart = { title, format, lines, readings, drawing };
  charts.push(chart);
  drawing.addEventListener("pointermove", (event) => moveCursor(timeAt(drawing, event.clientX)));
  drawing.addEventListener("pointerleave", () => moveCursor(null));
  drawing.addEventListener("blur", () => moveCursor(null));
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -SLOT, ArrowRight: SLOT }[event.key];
    if (step) moveCursor((cursor ?? lastTime) + step);
    if (event.key === "Escape") moveCursor(null);
    if (step) event.preventDefault();
  });
}

let lastTime = Date.now() / 1000;

function timeAt(drawing, clientX) {
  const { left, width } = drawing.getBoundingClientRect();
  return lastTime - HOUR + ((clientX - left) / width) * HOUR;
}

function moveCursor(time) {
  cursor = time === null ? null : Math.min(lastTime, Math.max(lastTime - HOUR, time));
  drawCharts(lastTime);
}

function drawCharts(now) {
  lastTime = now;
  const list = [...slots.values()];
  for (const chart of charts) drawChart(chart, list, now);
}

function drawChart({ title, format, lines, readings, drawing }, list, now) {
  const width = drawing.clientWidth || 300;
  const values = lines.map((line) => list.map(line.read));
  const most = Math.max(...values.flat().filter((value) => value != null), 0);
  const top = most > 0 ? ceiling(most) : 1;
  const x = (time) => ((time - (now - HOUR)) / HOUR) * width;
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const parts = [];
  lines.forEach((line, index) => {
    // A slot's point is in its middle, and the newest one's at the right edge.
    const points = list.map((slot, place) => [x(Math.min(now, slot.start + SLOT / 2)), values[index][place]]);
    parts.push(...curve(points, y, `series-${line.name}`, lines.length === 1));
  });
  const shown = cursor === null ? list.at(-2) ?? list.at(-1) : list.findLast((slot) => slot.start <= cursor);
  if (cursor !== null) parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: 0, y2: HEIGHT - BOTTOM }));
  drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  drawing.replaceChildren(...grid(top, y, width), ...parts, ...labels(top, most > 0 ? format : null, y), ...hours(now, x, width, HEIGHT));
  const reading = (line) => {
    const value = shown ? line.read(shown) : null;
    const label = lines.length > 1 ? [element("i", { class: `swatch series-${line.name}` }), `${line.title} `] : [];
    return element("span", { class: "value" }, element("small", {}, ...label), value == null ? "–" : format(value));
  };
  const at = cursor === null ? [] : [element("span", { class: "muted" }, timeWithSeconds(shown?.start ?? cursor))];
  readings.replaceChildren(...at, ...lines.map(reading));
  const said = lines.map((line) => `${line.title} ${shown && line.read(shown) != null ? format(line.read(shown)) : "no value"}`);
  const highest = most > 0 ? `; highest in the last hour ${format(most)}` : "";
  drawing.setAttribute("aria-label", `${title}: ${said.join(", ")}${highest}`);
}

function grid(top, y, width) {
  return [0, top / 2, top].map((value) => svg("line", { class: "grid", x1: 0, x2: width, y1: y(value), y2: y(value) }));
}

function labels(top, format, y) {
  return format ? [top / 2, top].map((value) => svg("text", { x: 0, y: y(value) + 11 }, format(value))) : [];
}

// The quarters of an hour, or the halves where there is little room, but for texts that would be cut off.
function hours(now, x, width, height) {
  const texts = [];
  const step = width < 260 ? 1800 : 900;
  for (let time = Math.ceil((now - HOUR) / step) * step; time <= now; time += step) {
    const place = x(time);
    if (place < 16 || place > width - 16) continue;
    texts.push(svg("text", { x: place, y: height - 4, "text-anchor": "middle" }, timeOfDay(time)));
  }
  return texts;
}

// A line that is interrupted where there is no value, and the area below it.
function curve(points, y, name, isFilled) {
  let [line, area, run] = ["", "", []];
  const end = () => {
    if (run.length === 1) run.push([run[0][0] + 1, run[0][1]]);
    if (run.length > 0) {
      const path = run.map(([px, value], index) => `${index ? "L" : "M"}${px.toFixed(1)} ${y(value).toFixed(1)}`).join("");
      line += path;
      area += `${path}L${run.at(-1)[0].toFixed(1)} ${y(0)}L${run[0][0].toFixed(1)} ${y(0)}z`;
    }
    run = [];
  };
  for (const point of points) {
    if (point[1] == null) end();
    else run.push(point);
  }
  end();
  const parts = [svg("path", { class: `line ${name}`, d: line })];
  return isFilled ? [svg("path", { class: `area ${name}`, d: area }), ...parts] : parts;
}

// The requests and denials of a key, as bars whose widths are the spans of the slots and whose heights are rates.
function keyBars(history, width) {
  const height = 120;
  const list = history.slots;
  const end = list.at(-1).from + list.at(-1).seconds;
  const rate = (slot, field) => (slot[field] / Math.max(slot.seconds, 1)) * 60;
  const most = ceiling(Math.max(...list.map((slot) => Math.max(rate(slot, "requests"), rate(slot, "denials"))), 1));
  const x = (time) => ((time - (end - HOUR)) / HOUR) * width;
  const y = (value) => height - BOTTOM - (value / most) * (height - BOTTOM - TOP);
  const bars = list.flatMap((slot) => ["requests", "denials"].filter((field) => slot[field] > 0).map((field) => {
    const box = { x: x(slot.from), width: Math.max(1, x(slot.from + slot.seconds) - x(slot.from) - 1) };
    const tall = Math.max(1.5, y(0) - y(rate(slot, field)));
    return svg("rect", { class: field, ...box, y: y(0) - tall, height: tall });
  }));
  const label = svg("text", { x: 0, y: y(most) + 11 }, `${short(most)}/min`);
  const sum = (field) => list.reduce((total, slot) => total + slot[field], 0);
  const said = `In the last hour ${plural(sum("requests"), "request")}, ${number(sum("denials"))} of them denied`;
  const box = { class: "bars", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said };
  const lines = [0, most].map((value) => svg("line", { class: "grid", x1: 0, x2: width, y1: y(value), y2: y(value) }));
  return svg("svg", box, ...lines, ...bars, label, ...hours(end, x, width, height));
}
