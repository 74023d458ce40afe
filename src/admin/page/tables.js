// The tables of limits, routes and servers, and the state of the store.

let limitsByName = new Map();
const recentStore = { errors: 0, requests: 0, frames: [] };

const chosenWindow = () => document.querySelector("input[name=window]:checked").value;
const routeName = (name) => name || "(no route)";

const limitTable = new Table("limits", [
  { title: "Limit", fill: fillLimit },
  { title: "Requests", isNumber: true, sort: decisions, fill: (cell, limit) => fillWith(cell, perSecond(decisions(limit) / limit.seconds)) },
  { title: "Near limit", isNumber: true, isOptional: true, sort: (limit) => limit.near_limit ?? 0, fill: fillNear },
  { title: "Denied", isNumber: true, isDefault: true, sort: denials, fill: fillDenied },
  { title: "Other decisions", isNumber: true, isOptional: true, fill: fillOthers },
  { title: "Settled costs", isNumber: true, isOptional: true, sort: (limit) => limit.settled_reserved ?? 0, fill: fillSettled },
  { title: "Denials, last hour", isNumber: true, isOptional: true, fill: fillMinutes },
], () => showTables(), decisions);

const routeTable = new Table("routes", [
  { title: "Route", fill: (cell, route) => fillWith(cell, routeName(route.name)) },
  { title: "Requests", isNumber: true, sort: (route) => route.requests ?? 0, fill: (cell, route) => fillWith(cell, perSecond((route.requests ?? 0) / route.seconds)) },
  { title: "429", isNumber: true, isDefault: true, sort: (route) => route.denied ?? 0, fill: (cell, route) => fillRate(cell, route.denied ?? 0, route.requests ?? 0, route.seconds) },
  { title: "5xx", isNumber: true, sort: (route) => route.errors ?? 0, fill: (cell, route) => fillRate(cell, route.errors ?? 0, route.requests ?? 0, route.seconds) },
  { title: "p50", isNumber: true, isOptional: true, sort: (route) => route.p50 ?? 0, fill: (cell, route) => fillWith(cell, seconds(route.p50)) },
  { title: "p99", isNumber: true, isOptional: true, sort: (route) => route.p99 ?? 0, fill: (cell, route) => fillWith(cell, seconds(route.p99)) },
  { title: "429, last hour", isNumber: true, isOptional: true, fill: fillMinutes },
], () => showTables(), (route) => route.requests ?? 0);

const serverTable = new Table("upstreams", [
  { title: "Server", fill: fillServer },
  { title: "State", fill: fillServerState },
  { title: "Requests", isNumber: true, fill: (cell, server) => fillWith(cell, perSecond(server.requests / server.seconds)) },
  { title: "Failed", isNumber: true, fill: (cell, server) => fillRate(cell, server.failures, server.requests, server.seconds) },
  { title: "p99", isNumber: true, isOptional: true, fill: (cell, server) => fillWith(cell, seconds(server.latency?.p99)) },
]);

function fillLimit(cell, limit) {
  const summary = limitsByName.get(limit.name);
  const mode = isPassive(summary?.mode) ? summary.mode : null;
  const open = () => lookUp(limit.name);
  const name = element("button", { type: "button", class: "link", onclick: open, title: "Enter a key of this limit" }, limit.name);
  const sub = summary && `${summary.numbers} (${summary.algorithm})`;
  fillWith(cell, `${limit.name} ${sub} ${mode}`, name, mode ? element("span", { class: "tag-shadow" }, mode) : null,
    sub && element("span", { class: "sub" }, sub));
}

// A rate and its share of all.
function fillRate(cell, count, all, span) {
  if (count === 0) return fillWith(cell, "0");
  const share = count / Math.max(all, 1);
  const text = [perSecond(count / span), percent(share)];
  return fillWith(cell, text.join(" "), text[0], element("span", { class: "sub" }, text[1]), bar(share));
}

function fillNear(cell, limit) {
  fillWith(cell, limit.near_limit ? percent(limit.near_limit / decisions(limit)) : "0");
}

function fillDenied(cell, limit) {
  const passed = limit.marked ? `${number(limit.marked)} ${deniedWord("mark")}` : limit.shadow_denied ? `${number(limit.shadow_denied)} ${deniedWord("shadow")}` : null;
  if (passed) return fillWith(cell, passed, "0", element("span", { class: "sub" }, passed));
  fillRate(cell, denials(limit), decisions(limit), limit.seconds);
}

function fillOthers(cell, limit) {
  const parts = Object.keys(OUTCOMES).filter((outcome) => limit[outcome] > 0).map((outcome) => `${number(limit[outcome])} ${OUTCOMES[outcome]}`);
  fillWith(cell, parts.join(", ") || "–");
}

// Units that responses have settled: what was reserved and charged in the end, and the corrections below.
const SETTLED = ["refunded", "extra", "cut"];

// Whether a limit settles costs by responses: otherwise the column is not shown.
let settlesCosts = false;

const hasSettled = (limit) => Object.keys(limit).some((field) => field.startsWith("settled_"));

function fillSettled(cell, limit) {
  const units = (outcome) => limit[`settled_${outcome}`] ?? 0;
  const corrections = SETTLED.filter((outcome) => units(outcome) > 0).map((outcome) => `${short(units(outcome))} ${outcome}`);
  const unknown = units("unknown") > 0 ? [plural(units("unknown"), "unknown cost")] : [];
  cell.hidden = !settlesCosts;
  if (!hasSettled(limit)) return fillWith(cell, "–");
  const text = `${short(units("settled"))} of ${short(units("reserved"))} reserved`;
  const sub = [...corrections, ...unknown].join(", ");
  fillWith(cell, `${text} ${sub}`, text, sub ? element("span", { class: "sub" }, sub) : null);
}

function fillMinutes(cell, item) {
  const minutes = item.minutes.slice(-coveredMinutes(lastFrame.time));
  fillWith(cell, minutes.join(), sparkline(minutes));
}

function fillServer(cell, server) {
  const sub = [server.upstream, ...admissionWords(server.admission)].join(", ");
  fillWith(cell, `${server.id} ${sub}`, server.server, element("span", { class: "sub" }, sub));
}

// The limit of an upstream with `overload`, and what it has refused in the last minute.
function admissionWords(admission) {
  if (!admission) return [];
  const refused = recentAdmissions(admission.upstream, lastFrame.time).refused.map(([word, count]) => `${number(count)} ${word}`);
  const words = [`${number(admission.in_flight)} of ${number(admission.limit)} in flight`];
  return refused.length > 0 ? [...words, `refused: ${refused.join(", ")}`] : words;
}

function fillServerState(cell, server) {
  const kind = { healthy: "ok", degraded: "warn" }[server.state] ?? "bad";
  const addresses = server.addresses > 1 ? `${server.healthy} of ${server.addresses} addresses` : null;
  fillWith(cell, `${server.state} ${addresses}`, state(kind, server.state), addresses && element("span", { class: "sub" }, addresses));
}

// The rows of a table for the chosen window.
function rowsOf(table, all) {
  return [...table.values()].filter((entry) => entry.isInside).map((entry) => ({ ...entry, id: entry.name, seconds: all.seconds }));
}

function showTables() {
  const frame = lastFrame;
  if (!frame) return;
  const [span, word] = WINDOWS[chosenWindow()];
  const all = totals(span, frame.time, true);
  const names = { limits: [limitTable, "limit", "decisions"], routes: [routeTable, "route", "requests"] };
  for (const [part, [table, thing, what]] of Object.entries(names)) {
    const rows = rowsOf(all[part], all);
    if (part === "limits") showSettledColumn(rows);
    const matching = table.show(rows);
    const shown = Math.min(matching, table.maximum);
    setText(byId(`${part}-note`), tableNote({ rows: rows.length, matching, shown, thing, what, word, leftOut: frame[`${part}_left_out`] }));
  }
}

function showSettledColumn(rows) {
  settlesCosts = rows.some(hasSettled);
  const index = limitTable.columns.findIndex((column) => column.fill === fillSettled);
  byId("limits-head").children[index].hidden = !settlesCosts;
}

function tableNote({ rows, matching, shown, thing, what, word, leftOut }) {
  if (rows === 0) return `No ${what} in the last ${word}.`;
  if (matching === 0) return `No ${thing} with ${what} in the last ${word} has this in its name.`;
  const texts = [];
  if (matching > shown) texts.push(`${plural(shown, thing)}, and ${number(matching - shown)} more with ${what}.`);
  else if (matching < rows) texts.push(`${number(matching)} of ${plural(rows, thing)}.`);
  if (leftOut > 0) texts.push(`In the last second ${number(leftOut)} more were active: only the 100 most active are counted.`);
  return texts.join(" ");
}

function showServers(frame) {
  const admissions = new Map((frame.admissions ?? []).map((one) => [one.upstream, one]));
  const list = frame.upstreams.flatMap(({ name, servers }) =>
    servers.map((server) => ({ ...server, upstream: name, admission: admissions.get(name), seconds: frame.seconds, id: `${name} ${server.server}` })));
  serverTable.show(list);
  const more = frame.servers_left_out > 0 ? `and ${number(frame.servers_left_out)} more servers` : "";
  setText(byId("upstreams-note"), list.length > 0 ? more : "No upstream is configured.");
}

function showStore(frame) {
  const { store } = frame;
  recentStore.frames = [...recentStore.frames, frame].filter(({ time }) => time > frame.time - 60);
  for (const field of ["errors", "requests"]) recentStore[field] = recentStore.frames.reduce((sum, { store: one }) => sum + one[field], 0);
  const isMemory = store.kind === "memory";
  const where = isMemory ? state("ok", "in this process") : state(store.state === "up" ? "ok" : "bad", `Redis ${store.state}`);
  const span = Math.max(recentStore.frames.reduce((sum, one) => sum + one.seconds, 0), 1);
  const calls = recentStore.frames.reduce((sum, { store: one }) => sum + one.calls, 0);
  const rows = [["Counts", where]];
  if (!isMemory) {
    rows.push(["Calls", perSecond(calls / span)], ["Requests a call", calls > 0 ? short(recentStore.requests / calls) : "–"]);
    rows.push(["Failed, last minute", number(recentStore.errors)], ["p50 / p99", `${seconds(store.latency?.p50)} / ${seconds(store.latency?.p99)}`]);
    rows.push(["Circuit breaker", store.breakers_open > 0 ? `open in ${plural(store.breakers_open, "worker")}` : "closed"]);
    rows.push(["Owed", store.owed_units > 0 ? `${plural(store.owed_units, "unit")} of ${plural(store.owed_keys, "key")}` : "nothing"]);
  }
  pairs(byId("store-facts"), rows);
  setText(byId("store-note"), isMemory ? "Each process counts for itself. With Redis several share their limits." : "");
}
