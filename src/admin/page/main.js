// The connection to the process, and what each event changes.

const SILENCE = 10_000;
let hello = null;
let lastFrame = null;
let stream = null;
let isLive = false;
// Frames that come while the history is read.
let waiting = null;
let frames = 0;

const isConnected = () => isLive;
const canChange = () => hello?.can_change === true;
const sharesStore = () => lastFrame?.store.kind === "redis";

addChart("Requests", perSecond, [{ name: "requests", title: "all", read: (slot) => slot.requests / slot.seconds }]);
addChart("Denied (429)", perSecond, [{ name: "denied", title: "429", read: (slot) => slot.denied / slot.seconds }]);
addChart("Errors (5xx)", perSecond, [{ name: "errors", title: "5xx", read: (slot) => slot.errors / slot.seconds }]);
addChart("Latency", seconds, [
  { name: "p50", title: "p50", read: (slot) => (slot.measured > 0 ? slot.p50 : null) },
  { name: "p99", title: "p99", read: (slot) => (slot.measured > 0 ? slot.p99 : null) },
]);

function showConnection(kind, text) {
  byId("connection").dataset.state = kind;
  setText(byId("connection-text"), text);
}

// Follows the events until the stream ends. A stream that is silent is given up.
async function follow() {
  stream = new AbortController();
  let timer = null;
  const watch = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stream.abort(), SILENCE);
  };
  try {
    for await (const { name, data } of events("/v1/events", stream.signal)) {
      watch();
      if (name === "hello") greet(data);
      if (name === "frame") receive(data);
    }
  } finally {
    clearTimeout(timer);
    isLive = false;
  }
}

// The first event, and again after a reload.
function greet(data) {
  const isFirst = hello === null;
  hello = data;
  isLive = true;
  limitsByName = new Map(data.limits.map((limit) => [limit.name, limit]));
  limitInfos = null;
  byId("limit-names").replaceChildren(...data.limits.map(({ name }) => element("option", { value: name })));
  setText(byId("version"), data.version);
  showConnection("connected", "Connected");
  show("problem", null);
  if (waiting) return;
  waiting = [];
  loadHistory();
  followTop();
  if (isFirst) openFragment();
  else inspect();
}

async function loadHistory() {
  try {
    const history = await requestJson("/v1/history");
    slots.clear();
    history.frames.forEach(addFrame);
    // What the history has is not counted twice.
    const end = history.frames.at(-1)?.time ?? 0;
    waiting.filter((frame) => frame.time - frame.seconds / 2 > end).forEach(addFrame);
  } catch (error) {
    show("problem", `The last hour can't be shown: ${error.message}`);
    waiting?.forEach(addFrame);
  }
  waiting = null;
  frames = 0;
  if (lastFrame) showAll();
}

function receive(frame) {
  lastFrame = frame;
  if (waiting) waiting.push(frame);
  else addFrame(frame);
  if (!waiting) showAll();
}

function showAll() {
  const frame = lastFrame;
  const list = [["Up", duration(frame.time - hello.started)], ["Connections", number(frame.connections)]];
  list.push(["Routes", number(hello.routes)], ["Limits", number(hello.limits.length + hello.limits_left_out)]);
  pairs(byId("facts"), list);
  showStore(frame);
  showServers(frame);
  showFindings(frame, frame.time);
  showOverload(frame);
  // Over a longer time a second changes little, and there may be thousands of limits.
  frames += 1;
  if (chosenWindow() === "1m" || frames % 3 === 1) showTables();
  drawCharts(frame.time);
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

// A hidden page needs no data, and the process serves a limited number of streams.
async function untilVisible() {
  if (!document.hidden) return;
  showConnection("paused", "Paused");
  await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

async function run() {
  for (let attempt = 0; ; attempt += 1) {
    await untilVisible();
    let reason = "the stream has ended";
    try {
      await follow();
      attempt = 0;
    } catch (error) {
      if (error.status === 401) return showConnection("stopped", "Stopped: a token is required");
      if (error instanceof ApiError) reason = error.message;
      else if (error.name !== "AbortError") reason = "the connection was lost";
    }
    waiting = null;
    if (document.hidden) continue;
    const last = lastFrame ? `, last data ${timeWithSeconds(lastFrame.time)}` : "";
    showConnection("reconnecting", `Reconnecting: ${reason}${last}`);
    await pause(Math.min(15_000, 1_000 * 2 ** attempt));
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stream?.abort();
});
addEventListener("hashchange", openFragment);
byId("window").addEventListener("change", () => {
  followTop();
  showTables();
});
byId("group").addEventListener("change", showTop);
byId("lookup-limit").addEventListener("change", describeParts);
byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const [limit, key, consumer] = ["lookup-limit", "lookup-key", "lookup-consumer"].map((id) => byId(id).value.trim());
  if (key || consumer) select(limit, key, consumer);
  else show("inspector-problem", "Enter a key: the values of its parts, or its tag.");
});
byId("change-token").hidden = !token;
byId("change-token").addEventListener("click", async () => {
  await askForToken(null).then(() => {
    stream?.abort();
    if (byId("connection").dataset.state === "stopped") run();
  }, () => {});
});
setText(byId("host"), location.host);
document.title = `tidegate ${location.host}`;
run();
