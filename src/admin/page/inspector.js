// One key: its state, its last hour, and what can be done for it.

const INSPECT_AGAIN = 5_000;
// The chosen key: { limit, key, consumer }, of which `key` or `consumer` may be missing; null if none is.
let chosen = null;
let inspectTimer = null;
let inspection = null;
let limitInfos = null;

const isSelected = (limit, tag) => chosen?.limit === limit && chosen.tag === tag;

// The fragment of the address names the key, so that a link to it can be shared.
function select(limit, key, consumer) {
  const parts = { limit, ...(key && { key }), ...(consumer && { consumer }) };
  const fragment = `#${new URLSearchParams(parts)}`;
  if (location.hash === fragment) openFragment();
  else location.hash = fragment;
}

function openFragment() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const [limit, key, consumer] = ["limit", "key", "consumer"].map((name) => parts.get(name));
  chosen = limit && (key || consumer) ? { limit, key, consumer, tag: key } : null;
  byId("lookup-limit").value = limit ?? "";
  byId("lookup-key").value = key ?? "";
  byId("lookup-consumer").value = consumer ?? "";
  byId("inspected").hidden = true;
  byId("inspected").replaceChildren();
  byId("inspected").shownKey = null;
  byId("inspector-empty").hidden = chosen !== null;
  show("inspector-problem", null);
  describeParts();
  showTop();
  if (!chosen) return;
  if (matchMedia("(max-width: 999px)").matches) byId("inspector").scrollIntoView();
  inspect();
}

// Fills in the limit of the form.
function lookUp(limit) {
  byId("lookup-limit").value = limit;
  describeParts();
  byId("inspector").scrollIntoView({ block: "nearest" });
  byId("lookup-key").focus();
}

// Says what a key of the limit in the form consists of.
async function describeParts() {
  const name = byId("lookup-limit").value;
  if (!name || !isConnected()) return;
  try {
    limitInfos ??= requestJson("/v1/limits");
    const { limits } = await limitInfos;
    const parts = limits.find((limit) => limit.name === name)?.key ?? [];
    const others = parts.filter((part) => part !== "consumer");
    const hasConsumer = others.length < parts.length;
    byId("lookup-consumer-label").hidden = !hasConsumer;
    if (!hasConsumer) byId("lookup-consumer").value = "";
    setText(byId("lookup-key-label"), hasConsumer && others.length === 0 ? "or its tag" : `Key: ${others.join(" | ") || "values or tag"}`);
  } catch (error) {
    limitInfos = null;
    show("inspector-problem", error.message);
  }
}

// Reads the state of the chosen key again and again while the page is visible.
async function inspect() {
  clearTimeout(inspectTimer);
  inspection?.abort();
  if (!chosen || !isConnected()) return;
  inspection = new AbortController();
  const { signal } = inspection;
  const key = chosen;
  try {
    const params = { limit: key.limit };
    if (key.key) params.key = key.key;
    if (key.consumer) params.consumer = key.consumer;
    const reads = ["/v1/keys/peek", "/v1/keys/history"].map((path) => requestJson(path, { params, signal }));
    const [{ keys }, history, { raises }] = await Promise.all([...reads, requestJson("/v1/keys/raises", { signal })]);
    if (key !== chosen) return;
    if (key.tag !== history.key) {
      // Its row in the list is known only now.
      key.tag = history.key;
      showTop();
    }
    showKey(key, { statuses: told(keys), history, raise: raises.find(({ limit, key: tag }) => limit === key.limit && tag === key.tag) });
    show("inspector-problem", null);
  } catch (error) {
    if (error.name === "AbortError" || key !== chosen) return;
    show("inspector-problem", error.message);
  }
  if (!document.hidden) inspectTimer = setTimeout(inspect, INSPECT_AGAIN);
}

// The tiers that have counted the key, or else the limit itself.
function told(statuses) {
  const notable = statuses.filter((status) => !status.allowed || status.reset_after > 0);
  return notable.length > 0 ? notable : statuses.slice(0, 1);
}

function showKey(key, { statuses, history, raise }) {
  const place = byId("inspected");
  const listed = topKeys.find(({ limit }) => limit === key.limit)?.keys.find((entry) => entry.key === key.tag);
  const typed = key.key === key.tag ? null : key.key;
  const title = listed ? keyName(listed) : [key.consumer, typed].filter(Boolean).join("|") || key.tag;
  const described = { ...key, title, statuses };
  // Built once for a key, so that the focus stays on its buttons.
  const shown = place.shownKey;
  place.shownKey = key;
  if (shown?.tag !== key.tag || shown.limit !== key.limit) {
    const parts = ["identity", "standings", "advice", "done", "history", "actions"].map((name) => element("div", { class: name }));
    place.replaceChildren(...parts);
    place.lastChild.append(...actionButtons());
    place.querySelector(".done").setAttribute("role", "status");
  }
  place.hidden = false;
  const [identity, standings, advice, done, hour, actions] = place.children;
  const names = [element("span", { class: "key" }, title), element("span", { class: "muted" }, `in limit ${key.limit}`)];
  const tag = title === key.tag ? null : element("span", { class: "key muted" }, key.tag);
  identity.replaceChildren(...names, ...(tag ? [tag] : []));
  standings.replaceChildren(...statuses.map((status) => standing(status, raise)));
  setText(advice, adviceFor(statuses, history));
  done.hidden = !done.textContent;
  hour.replaceChildren(...hourOf(history, place.clientWidth || 600));
  updateActions(actions, { described, raise });
}

function standing(status, raise) {
  const tier = status.tier ? element("h3", {}, `Tier ${status.tier}`) : null;
  const why = { quota: "its quota is used up", ban: `banned until ${until(status.until)}`, block: `blocked until ${until(status.until)}` };
  const isShadow = isPassive(limitsByName.get(status.limit)?.mode);
  const denied = `${isShadow ? "Would be denied" : "Denied"}: ${why[status.cause]}`;
  const verdict = status.allowed ? state("ok", "Allowed") : state(isShadow ? "warn" : "bad", denied);
  const reset = status.reset_after > 0 ? `; all available again in ${duration(Math.ceil(status.reset_after))}` : "";
  const reserved = status.reserved ? `, ${number(status.reserved)} reserved by requests in flight` : "";
  const left = `${number(status.remaining)} of ${plural(status.of, "unit")} left${reserved}${reset}`;
  const raised = status.raised ? `Raised by ${status.raised}${raise ? ` until ${until(raise.until)}, by ${raise.started_by}` : ""}` : null;
  return element("div", { class: "standing" }, tier, element("p", { class: "verdict" }, verdict), element("p", {}, left),
    bar(status.of > 0 ? 1 - status.remaining / status.of : 0), raised && element("p", {}, raised));
}

// What would help.
function adviceFor(statuses, { slots: list, mode }) {
  if (isPassive(mode)) return `The limit is in ${mode} mode: it counts this key and denies nothing.`;
  const denied = list.filter((slot) => slot.denials > 0);
  const causes = statuses.map((status) => status.cause);
  if (causes.includes("block")) return "An operator has blocked it. “Unblock” lets it pass.";
  if (causes.includes("ban")) return "It is banned, since it was denied too often. “Unblock” ends the ban, “Reset” clears its count too.";
  const recent = denied.filter((slot) => slot.from + slot.seconds > list.at(-1).from - 300);
  if (recent.length === 0) return denied.length > 0 ? `It was denied last at about ${timeOfDay(denied.at(-1).from + denied.at(-1).seconds)}.` : "It was not denied in the last hour.";
  const last = list.at(-1);
  if (last.from + last.seconds - denied[0].from > 180 || denied.length > 3) {
    return `It has been denied since about ${timeOfDay(denied[0].from)}: it sends more than its quota allows. “Reset” helps for a moment, “Raise” for a while.`;
  }
  return "It was denied in the last minutes. “Reset” makes its quota whole again at once.";
}

function hourOf(history, width) {
  const sum = (field) => history.slots.reduce((total, slot) => total + slot[field], 0);
  const word = deniedWord(history.mode);
  const counts = `${plural(sum("requests"), "request")}, ${number(sum("denials"))} ${word}`;
  const error = history.max_error > 0 ? `, each bar up to ${number(history.max_error)} too high` : "";
  const legend = element("p", { class: "legend" }, element("span", {}, element("i", { class: "requests" }), "requests"),
    element("span", {}, element("i"), word));
  const span = history.slots.at(-1).from + history.slots.at(-1).seconds - history.slots[0].from;
  const title = element("h3", {}, `Last ${duration(Math.min(span, HOUR))}: ${counts}${error}`);
  return sum("requests") + sum("denials") > 0 ? [title, keyBars(history, width), legend] : [title];
}

function actionButtons() {
  return Object.entries(ACTIONS).map(([name, action]) => element("button", { type: "button", "data-action": name }, `${action.verb}…`));
}

function updateActions(place, { described, raise }) {
  const isHeld = described.statuses.some(({ cause }) => cause === "ban" || cause === "block");
  const isShadow = isPassive(limitsByName.get(described.limit)?.mode);
  const focused = document.activeElement;
  for (const button of place.children) {
    const name = button.dataset.action;
    button.disabled = !canChange();
    button.hidden = (name === "unblock" && !isHeld) || (name === "end-raise" && !raise) || (name === "block" && isShadow);
    button.title = canChange() ? "" : "This token is for reading only";
    button.onclick = async () => {
      const change = await confirmChange(name, described);
      if (!change || !byId("inspected").shownKey) return;
      const end = change.until ? ` until ${until(change.until)}` : "";
      setText(byId("inspected").querySelector(".done"), `${timeWithSeconds(Date.now() / 1000)} Key ${described.title}: ${change.done}${end}.`);
      inspect();
    };
  }
  // A hidden button loses the focus.
  if (focused?.hidden && place.contains(focused)) [...place.children].find((button) => !button.hidden)?.focus();
}
