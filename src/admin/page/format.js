// Numbers, durations and times as text, each with its unit.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const number = (value) => grouped.format(value);

// Three significant digits: 0.25, 3.2, 120, 12.4k.
function short(value) {
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  if (value < 1) return value.toFixed(2);
  if (value < 9.95) return value.toFixed(1).replace(".0", "");
  if (value < 9_950) return number(value);
  if (value < 999_500) return `${Number((value / 1e3).toPrecision(3))}k`;
  return `${Number((value / 1e6).toPrecision(3))}M`;
}

const perSecond = (value) => `${short(value)}/s`;

function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1 %";
  const value = 100 * share;
  return `${value > 0 && value < 9.95 ? value.toFixed(1).replace(".0", "") : Math.floor(value)} %`;
}

// A short time, such as a latency.
function seconds(value) {
  if (value == null) return "–";
  if (value < 0.000_999_5) return `${short(value * 1e6)} µs`;
  if (value < 0.999_5) return `${short(value * 1e3)} ms`;
  return `${short(value)} s`;
}

// A longer time, in its two largest units.
function duration(value) {
  const all = Math.max(0, Math.round(value));
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => all >= size);
  if (first < 0) return "0 s";
  const [unit, size] = units[first];
  const rest = units[first + 1];
  const count = rest ? Math.floor((all % size) / rest[1]) : 0;
  return `${Math.floor(all / size)} ${unit}${count > 0 ? ` ${count} ${rest[0]}` : ""}`;
}

// Times of day are local to the reader. `time` is in seconds of Unix time.
const timeOfDay = (time) => clock.format(new Date(time * 1000));
const timeWithSeconds = (time) => clockWithSeconds.format(new Date(time * 1000));

// A time of RFC 3339, with its date if that is not today.
function until(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("en-CA")} `;
  return day + clockWithSeconds.format(date);
}

const OUTCOMES = {
  banned: "banned",
  blocked: "blocked",
  missing: "without a key",
  exempt: "exempt",
};

// What a limit of this mode does with a request that exceeds it.
const DENIED_WORDS = { shadow: "would be denied", mark: "marked" };
const deniedWord = (mode) => DENIED_WORDS[mode] ?? "denied";

// Whether a limit of this mode denies nothing.
const isPassive = (mode) => mode in DENIED_WORDS;
