// What the engineer on call has to know first, in words.

const SHOWN_FINDINGS = 6;
const SLOW_STORE = 0.05;
let announced = "";

// `kind` is bad, warn or ok; `id` is the same as long as the finding is the same. `key` is what the text ends with, as a link.
function finding(kind, id, text, key = null) {
  return { kind, id, text, key };
}

function showFindings(frame, now) {
  const recent = totals(60, now, false);
  const found = [...storeFindings(frame.store, recent), ...serverFindings(frame), ...overloadFindings(frame), ...certificateFindings(frame), ...errorFindings(recent), ...limitFindings(recent, now), ...foreignDenials(recent)];
  if (found.length === 0) {
    const text = recent.requests === 0 ? "No requests in the last minute." : "No denials in the last minute, and all servers respond.";
    found.push(finding("ok", "nothing", text));
  }
  const more = found.length - SHOWN_FINDINGS;
  const list = found.slice(0, SHOWN_FINDINGS);
  if (more > 0) list.push(finding("warn", "more", `and ${number(more)} more: see the tables below`));
  setText(byId("now-note"), "");
  updateRows(byId("findings"), list, createFinding, updateFinding);
  announce(list);
}

function createFinding() {
  return element("li", {}, mark(), element("p", {}, element("span"), element("button", { type: "button", class: "link key" })));
}

function updateFinding(row, { kind, text, key }) {
  row.dataset.state = kind;
  const [words, link] = row.lastChild.children;
  setText(words, text);
  setText(link, key ? keyName(key) : "");
  link.hidden = !key;
  link.onclick = () => select(key.limit, key.key);
}

// Tells screen readers when a finding comes or goes, and not when its numbers change.
function announce(list) {
  const ids = list.map(({ id }) => id).join(" ");
  if (ids === announced) return;
  announced = ids;
  setText(byId("announcement"), list.map(({ text, key }) => text + (key ? keyName(key) : "")).join(". "));
}

function storeFindings(store, recent) {
  if (store.kind === "memory") return [];
  const owed = store.owed_units > 0 ? ` ${plural(store.owed_units, "unit")} of ${plural(store.owed_keys, "key")} will be charged later.` : "";
  if (store.state !== "up") {
    return [finding("bad", "store", `Redis is unreachable: each limit follows its on_store_failure.${owed}`)];
  }
  if (recentStore.errors > 0) {
    const text = `Redis: ${number(recentStore.errors)} of ${plural(recentStore.requests, "request")} failed in the last minute.${owed}`;
    return [finding("warn", "store", text)];
  }
  if (store.latency?.p99 > SLOW_STORE) return [finding("warn", "store", `Redis is slow: p99 ${seconds(store.latency.p99)} a call.${owed}`)];
  return owed ? [finding("warn", "store", `Redis responds again.${owed}`)] : [];
}

function serverFindings({ upstreams }) {
  return upstreams.flatMap(({ name, servers }) => {
    const down = servers.filter((server) => server.state !== "healthy");
    if (down.length === 0) return [];
    const isDown = servers.every((server) => server.healthy === 0);
    const list = down.slice(0, 3).map(serverProblem).join(", ");
    const rest = down.length > 3 ? " …" : "";
    const count = `${number(down.length)} of ${plural(servers.length, "server")}`;
    return [finding(isDown ? "bad" : "warn", `upstream ${name}`, `Upstream ${name}: ${count} not healthy: ${list}${rest}`)];
  });
}

function serverProblem({ server, state: word, healthy, addresses }) {
  const some = addresses > 1 ? ` (${healthy} of ${addresses} addresses available)` : "";
  return `${server} is ${word}${some}`;
}

// Upstreams with `overload` that refuse requests.
function overloadFindings({ admissions, upstreams, time }) {
  return (admissions ?? []).flatMap(({ upstream, limit, in_flight: inFlight }) => {
    const { refused, count, served } = recentAdmissions(upstream, time);
    if (count === 0) return [];
    const servers = upstreams.find(({ name }) => name === upstream)?.servers ?? [];
    const slowest = Math.max(...servers.map(({ latency }) => latency?.p99 ?? 0), 0);
    const classes = refused.map(([word, some]) => `${number(some)} ${word}`).join(", ");
    const now = `${number(inFlight)} of ${number(limit)} requests in flight${slowest > 0 ? `, p99 ${servers.length > 1 ? "of the slowest server " : ""}${seconds(slowest)}` : ""}`;
    const text = `Upstream ${upstream} refused ${percent(count / (count + served))} of its requests in the last minute (${classes}): ${now}`;
    return [finding(refused.some(([word]) => word === "critical") ? "bad" : "warn", `overload ${upstream}`, text)];
  });
}

// Certificates of an ACME server.
function certificateFindings({ certificates_missing: missing, certificates_failing: failing }) {
  const why = failing > 0 ? ". tidegate status shows why" : "";
  if (missing > 0) return [finding("bad", "certificates", `No valid certificate for ${plural(missing, "name")}: TLS handshakes fail${why}`)];
  return failing > 0 ? [finding("warn", "certificates", `${plural(failing, "certificate")} can't be renewed${why}`)] : [];
}

function errorFindings(recent) {
  const share = recent.errors / Math.max(recent.requests, 1);
  if (recent.errors < 5 || share < 0.01) return [];
  const worst = [...recent.routes.values()].sort((one, other) => (other.errors ?? 0) - (one.errors ?? 0))[0];
  const where = worst?.errors > 0 ? `, most on route ${routeName(worst.name)}` : "";
  const rate = perSecond(recent.errors / recent.seconds);
  return [finding(share > 0.1 ? "bad" : "warn", "errors", `5xx: ${rate}, ${percent(share)} of all responses${where}`)];
}

function limitFindings(recent, now) {
  const inside = [...recent.limits.values()].filter((limit) => limit.isInside);
  const denying = inside.filter((limit) => denials(limit) > 0).sort((one, other) => denials(other) - denials(one));
  const found = denying.map((limit) => {
    const rate = perSecond(denials(limit) / recent.seconds);
    const share = percent(denials(limit) / decisions(limit));
    const key = mainKey(limit.name);
    const by = key ? `; ${key.share} by ` : "";
    const text = `Limit ${limit.name} denies ${rate}, ${share} of its requests, ${sinceWhen(limit.name, now)}${by}`;
    return finding("warn", `limit ${limit.name}`, text, key);
  });
  const isNear = (limit) => denials(limit) === 0 && (limit.near_limit ?? 0) > 0.2 * decisions(limit);
  const near = inside.filter(isNear).map((limit) => {
    const share = percent(limit.near_limit / decisions(limit));
    return finding("warn", `near ${limit.name}`, `Limit ${limit.name} is nearly used up: ${share} of its requests left less than a fifth of it`);
  });
  return [...found, ...near];
}

function sinceWhen(limit, now) {
  const { since, isFromStart, isExact } = deniedSince(limit);
  if (isFromStart) return `since the start, ${duration(now - hello.started)} ago`;
  return isExact ? `since ${timeOfDay(since)}` : `since ${timeOfDay(since)} or earlier`;
}

// Responses 429 that no limit has caused.
function foreignDenials(recent) {
  const own = [...recent.limits.values()].reduce((sum, limit) => sum + denials(limit), 0);
  const foreign = recent.denied - own;
  // Of limits that are not listed the denials are not known.
  if (lastFrame.limits_left_out > 0 || foreign < 5 || foreign < 0.2 * recent.denied) return [];
  const text = `${perSecond(foreign / recent.seconds)} of the 429 responses come from upstream servers or max_requests_per_client, not from limits`;
  return [finding("warn", "foreign", text)];
}

// The key with the most denials of a limit, and its share of them; null if it has none.
function mainKey(limit) {
  const top = topKeys.find((entry) => entry.limit === limit);
  const first = top?.keys[0];
  if (!first || first.count === 0) return null;
  const share = percent((first.count - first.error) / top.total);
  return { ...first, limit, share: `${share} of ${plural(top.total, "denial")} in the last ${WINDOWS[chosenWindow()][1]}` };
}
