// Line charts of the last hour, or since the start of the process, with one cursor for all of them.

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

// `lines`: { name, title, read: slot => number or null, isFilled }. A single line is filled. `place` is the id of the section.
function addChart(title, format, lines, place = "traffic") {
  const readings = element("span", { class: "readings" });
  const drawing = svg("svg", { role: "img", tabindex: "0" });
  const caption = element("figcaption", {}, element("h2", {}, title), readings);
  byId(place).append(element("figure", { class: "chart" }, caption, drawing));
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
  const start = chartStart(lastTime);
  return start + ((clientX - left) / width) * (lastTime - start);
}

function moveCursor(time) {
  cursor = time === null ? null : Math.min(lastTime, Math.max(chartStart(lastTime), time));
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
  const axis = timeAxis(chartStart(now), now, width);
  const { x } = axis;
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const parts = [];
  lines.forEach((line, index) => {
    // A slot's point is in its middle. The first and the last slot reach to their ends.
    const points = list.map((slot, place) => [x(slot.start + SLOT / 2), values[index][place]]);
    points.unshift([x(list[0]?.start ?? now), values[index][0]]);
    points.push([x(now), values[index].at(-1)]);
    parts.push(...curve(points, y, `series-${line.name}`, line.isFilled ?? lines.length === 1));
  });
  const shown = cursor === null ? list.at(-2) ?? list.at(-1) : list.findLast((slot) => slot.start <= cursor);
  if (cursor !== null) parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: 0, y2: HEIGHT - BOTTOM }));
  drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  drawing.replaceChildren(...grid(top, y, width), ...parts, ...labels(top, most > 0 ? format : null, y), ...times(axis, HEIGHT));
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

// The time from the left edge to the right one: `x` is the place of a time, within the edges.
function timeAxis(start, end, width) {
  const span = Math.max(1, end - start);
  return { start, end, width, x: (time) => Math.min(1, Math.max(0, (time - start) / span)) * width };
}

// Times of day below an axis, as close as there is room for, but for texts that would be cut off.
function times({ start, end, width, x }, height) {
  const texts = [];
  const step = [60, 300, 900].find((length) => ((end - start) / length) * 60 < width) ?? 1800;
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) {
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
  const axis = timeAxis(Math.max(list[0].from, end - HOUR), end, width);
  const { x } = axis;
  const y = (value) => height - BOTTOM - (value / most) * (height - BOTTOM - TOP);
  const bars = list.flatMap((slot) => ["requests", "denials"].filter((field) => slot[field] > 0).map((field) => {
    const box = { x: x(slot.from), width: Math.max(1, x(slot.from + slot.seconds) - x(slot.from) - 1) };
    const tall = Math.max(1.5, y(0) - y(rate(slot, field)));
    return svg("rect", { class: field, ...box, y: y(0) - tall, height: tall });
  }));
  const label = svg("text", { x: 0, y: y(most) + 11 }, `${short(most)}/min`);
  const sum = (field) => list.reduce((total, slot) => total + slot[field], 0);
  const said = `In the last hour ${plural(sum("requests"), "request")}, ${number(sum("denials"))} of them ${deniedWord(history.mode)}`;
  const box = { class: "bars", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said };
  const lines = [0, most].map((value) => svg("line", { class: "grid", x1: 0, x2: width, y1: y(value), y2: y(value) }));
  return svg("svg", box, ...lines, ...bars, label, ...times(axis, height));
}
