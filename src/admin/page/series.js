// The last hour in slots of ten seconds: those of /v1/history, then the sums of live frames.

const SLOT = 10;
const HOUR = 3600;
const WINDOWS = { "1m": [60, "minute"], "10m": [600, "10 minutes"], "60m": [HOUR, "hour"] };
// The most limits, and the most routes, of a slot.
const MAX_ENTRIES = 200;
const DENIED = ["denied", "banned", "blocked", "missing"];
// Those of requests to upstreams with `overload`, the first one first.
const CLASSES = ["critical", "high", "normal", "low"];

// By the start of the slot. A Map keeps the order of insertion, which is that of time.
const slots = new Map();

function slotOf(frame) {
  // The middle, since the ends of frames lie a little before or after those of slots.
  const start = Math.floor((frame.time - frame.seconds / 2) / SLOT) * SLOT;
  if (!slots.has(start)) {
    const empty = { requests: 0, denied: 0, errors: 0, responses: 0, p50: 0, p99: 0, measured: 0 };
    slots.set(start, { start, seconds: 0, ...empty, limits: new Map(), routes: new Map(), admissions: new Map() });
  }
  return slots.get(start);
}

function addFrame(frame) {
  const slot = slotOf(frame);
  slot.seconds += frame.seconds;
  slot.requests += frame.requests;
  slot.denied += frame.responses["429"];
  slot.errors += frame.responses["5xx"];
  addLatency(slot, frame);
  for (const { name, decisions, settled = {} } of frame.limits) {
    const units = Object.entries(settled).map(([outcome, count]) => [`settled_${outcome}`, count]);
    addCounts(slot.limits, name, { ...decisions, ...Object.fromEntries(units) });
  }
  for (const route of frame.routes) {
    const { requests, "429": denied, "5xx": errors } = route;
    addLatency(addCounts(slot.routes, route.name, { requests, denied, errors }), route);
  }
  for (const { upstream, limit, in_flight: inFlight, refused = {} } of frame.admissions ?? []) {
    const servers = frame.upstreams.find(({ name }) => name === upstream)?.servers ?? [];
    const served = servers.reduce((sum, { requests }) => sum + requests, 0);
    // The limit and the requests in flight are those at the end of the slot.
    Object.assign(addCounts(slot.admissions, upstream, { ...refused, served }), { limit, inFlight });
  }
  for (const start of slots.keys()) {
    if (start + SLOT >= frame.time - HOUR) break;
    slots.delete(start);
  }
}

// How many of the last sixty minutes the slots reach back.
function coveredMinutes(now) {
  const [first] = slots.keys();
  return Math.min(60, Math.floor((now - first) / 60) + 1);
}

// The start of the charts: an hour ago, or that of the first slot, or of the process within it.
function chartStart(now) {
  const [first = now - HOUR] = slots.keys();
  return Math.max(now - HOUR, first, Math.min(hello?.started ?? first, first + SLOT));
}

function addCounts(table, name, counts) {
  let entry = table.get(name);
  if (!entry) {
    entry = { name };
    if (table.size < MAX_ENTRIES) table.set(name, entry);
  }
  for (const [outcome, count] of Object.entries(counts)) entry[outcome] = (entry[outcome] ?? 0) + count;
  return entry;
}

// Quantiles of several frames can't be computed from theirs: p50 is their mean, p99 the highest.
function addLatency(entry, { latency, requests }) {
  if (!latency || requests === 0) return;
  const before = entry.measured ?? 0;
  entry.measured = before + requests;
  entry.p50 = ((entry.p50 ?? 0) * before + latency.p50 * requests) / entry.measured;
  entry.p99 = Math.max(entry.p99 ?? 0, latency.p99);
}

// Sums over the last `span` seconds: the slots' own numbers, and those of limits and routes by name. With `withMinutes` the
// field `minutes` of a limit or route has its denials in each minute of the last hour.
function totals(span, now, withMinutes) {
  const all = { seconds: 0, requests: 0, denied: 0, errors: 0, measured: 0, limits: new Map(), routes: new Map() };
  for (const slot of slots.values()) {
    const isInside = slot.start + SLOT > now - span;
    if (!isInside && !withMinutes) continue;
    if (isInside) {
      all.seconds += slot.seconds;
      for (const field of ["requests", "denied", "errors"]) all[field] += slot[field];
      if (slot.measured > 0) addLatency(all, { latency: slot, requests: slot.measured });
    }
    const minute = 59 - Math.floor((now - slot.start) / 60);
    for (const part of ["limits", "routes"]) {
      for (const entry of slot[part].values()) addEntry(all[part], entry, isInside, minute);
    }
  }
  return all;
}

function addEntry(table, entry, isInside, minute) {
  let sum = table.get(entry.name);
  if (!sum) table.set(entry.name, (sum = { name: entry.name, minutes: new Array(60).fill(0), isInside: false }));
  if (minute >= 0 && minute < 60) sum.minutes[minute] += denials(entry);
  if (!isInside) return;
  sum.isInside = true;
  for (const [field, value] of Object.entries(entry)) {
    if (!["name", "p50", "p99", "measured"].includes(field)) sum[field] = (sum[field] ?? 0) + value;
  }
  if (entry.measured) addLatency(sum, { latency: entry, requests: entry.measured });
}

// The requests of the last minute to an upstream: those that it has refused by class, and those that its servers got.
function recentAdmissions(upstream, now) {
  const recent = [...slots.values()].filter((slot) => slot.start + SLOT > now - 60).map((slot) => slot.admissions.get(upstream));
  const sum = (field) => recent.reduce((all, admission) => all + (admission?.[field] ?? 0), 0);
  const refused = CLASSES.map((word) => [word, sum(word)]).filter(([, count]) => count > 0);
  return { refused, count: refused.reduce((all, [, some]) => all + some, 0), served: sum("served") };
}

// The denials of a limit, or the responses 429 of a route.
function denials(entry) {
  return DENIED.reduce((sum, outcome) => sum + (entry[outcome] ?? 0), 0);
}

function decisions(entry) {
  const counted = ["allowed", "near_limit", "shadow_denied", "marked", "exempt"];
  return counted.reduce((sum, outcome) => sum + (entry[outcome] ?? 0), denials(entry));
}

// When the current denials of a limit have started: there was none in the two minutes before, or since the process started.
// `isExact` is false if the slots do not reach back that far.
function deniedSince(name) {
  let since = null;
  for (const slot of [...slots.values()].reverse()) {
    const entry = slot.limits.get(name);
    if (entry && denials(entry) > 0) since = slot.start;
    else if (since !== null && since - slot.start > 120) return { since, isExact: true };
  }
  const first = [...slots.keys()][0];
  const isComplete = hello.started > first - SLOT;
  return { since, isFromStart: isComplete && since < hello.started + SLOT, isExact: isComplete || since - first > 120 };
}
