// The keys and consumers with the most denials.

const REFRESH = 3_000;
const TOP_ROWS = 15;
let topKeys = [];
let topCovered = 0;
let topTimer = null;

const keyName = (key) => key.name ?? key.consumer ?? key.key;
const denier = ({ limit, mode }) => (mode === "shadow" ? `${limit} (would deny)` : mode === "mark" ? `${limit} (mark)` : limit);

// Reads the list again and again while the page is visible. A list that takes long is read less often.
async function followTop() {
  clearTimeout(topTimer);
  const start = performance.now();
  try {
    const list = await requestJson("/v1/top", { params: { window: chosenWindow(), by: "denials", count: TOP_ROWS } });
    if (list.window === chosenWindow()) {
      topKeys = list.limits.filter((limit) => limit.total > 0);
      topCovered = list.seconds;
      showTop();
    }
  } catch (error) {
    setText(byId("denied-note"), `The list is not current: ${error.message}`);
  }
  clearTimeout(topTimer);
  if (!document.hidden && isConnected()) topTimer = setTimeout(followTop, Math.max(REFRESH, 4 * (performance.now() - start)));
}

function showTop() {
  const isByKey = document.querySelector("input[name=group]:checked").value === "keys";
  const rows = (isByKey ? keyRows() : consumerRows()).sort((one, other) => other.most - one.most);
  setText(byId("denied-who"), isByKey ? "Key" : "Consumer");
  updateRows(byId("denied-rows"), rows.slice(0, TOP_ROWS), createTopRow, updateTopRow);
  const [span, word] = WINDOWS[chosenWindow()];
  const covered = topCovered < span - 5 ? ` This process counts for ${duration(topCovered)}.` : "";
  const nothing = isByKey || topKeys.length === 0 ? `No denials in the last ${word}.` : `No denials of consumers in the last ${word}.`;
  const more = rows.length > TOP_ROWS ? `and ${number(rows.length - TOP_ROWS)} more` : "";
  setText(byId("denied-note"), rows.length > 0 ? more : nothing + covered);
}

function keyRows() {
  return topKeys.flatMap((limit) => limit.keys.map((key) => ({
    id: `${limit.limit} ${key.key}`,
    title: keyName(key),
    sub: subtitle(key),
    limits: denier(limit),
    least: key.count - key.error,
    most: key.count,
    of: limit.total,
    select: () => select(limit.limit, key.key),
    isSelected: () => isSelected(limit.limit, key.key),
  })));
}

function subtitle(key) {
  const consumer = key.several_consumers ? "several consumers" : key.consumer;
  return [consumer, key.key].filter((text) => text && text !== keyName(key)).join(" · ");
}

// The denials of each consumer, in all limits. Its row opens its key with the most.
function consumerRows() {
  const consumers = new Map();
  for (const row of topKeys.flatMap((limit) => limit.keys.map((key) => ({ limit, key })))) {
    const { limit, key } = row;
    if (!key.consumer) continue;
    const sum = consumers.get(key.consumer) ?? { limits: new Set(), least: 0, most: 0, of: 0, first: row };
    consumers.set(key.consumer, sum);
    if (!sum.limits.has(denier(limit))) sum.of += limit.total;
    sum.limits.add(denier(limit));
    sum.least += key.count - key.error;
    sum.most += key.count;
    if (key.count > sum.first.key.count) sum.first = row;
  }
  return [...consumers].map(([name, { limits, least, most, of, first }]) => ({
    id: `consumer ${name}`,
    title: name,
    sub: "",
    limits: [...limits].join(", "),
    least,
    most,
    of,
    select: () => select(first.limit.limit, first.key.key),
    isSelected: () => isSelected(first.limit.limit, first.key.key),
  }));
}

function createTopRow() {
  const open = element("button", { type: "button", class: "link key" });
  const who = element("td", {}, open, element("span", { class: "sub key" }));
  return element("tr", {}, who, element("td"), element("td", { class: "number" }));
}

function updateTopRow(row, item) {
  const [who, limit, count] = row.children;
  who.firstChild.onclick = item.select;
  setText(who.firstChild, item.title);
  setText(who.lastChild, item.sub);
  setText(limit, item.limits);
  const range = item.least === item.most ? number(item.most) : `${number(item.least)}–${number(item.most)}`;
  const share = item.least / Math.max(item.of, 1);
  fillWith(count, `${range} ${percent(share)}`, range, element("span", { class: "sub" }, percent(share)), bar(share));
  if (item.isSelected()) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}
