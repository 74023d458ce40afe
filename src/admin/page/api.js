// Requests to the admin interface. The token is kept for this tab only, and sent in a header, never in a URL.

const TOKEN = "tidegate-token";
let token = stored();
let asking = null;

// A browser may deny access to its storage.
function stored() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function keep(value) {
  token = value;
  byId("change-token").hidden = false;
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    // It then holds until the page is loaded again.
  }
}

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The error of a response, in the words of the server.
async function errorOf(response) {
  const body = await response.json().catch(() => null);
  const wait = response.headers.get("retry-after");
  const parts = [body?.error ?? `the response is ${response.status}`, body?.help];
  if (wait) parts.push(`try again in ${plural(Number(wait), "second")}`);
  return new ApiError(response.status, parts.filter(Boolean).join("; "));
}

function send(path, { params, body, signal, authorization = token } = {}) {
  const query = params ? `?${new URLSearchParams(params)}` : "";
  const headers = {};
  if (authorization) headers.Authorization = `Bearer ${authorization}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  const options = { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store", redirect: "error" };
  return fetch(path + query, { ...options, credentials: "same-origin" });
}

// A response with a status of success. Asks for the token if the server wants one.
async function request(path, options = {}) {
  for (;;) {
    const used = token;
    let response;
    try {
      response = await send(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "tidegate can't be reached");
    }
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401) throw error;
    if (token === used) await askForToken(used ? error.message : null);
  }
}

async function requestJson(path, options) {
  const response = await request(path, options);
  return response.json();
}

// The events of a stream of server-sent events. EventSource could not send the token.
async function* events(path, signal) {
  const response = await request(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", data: "" };
      for (const line of block.split("\n")) {
        const [, field, content] = /^(event|data): ?(.*)$/.exec(line) ?? [];
        if (field === "event") event.name = content;
        if (field === "data") event.data += content;
      }
      if (event.data) yield { name: event.name, data: JSON.parse(event.data) };
    }
  }
}

// Shows the form for the token, once for all requests that wait for it. Fails if the reader cancels.
function askForToken(problem) {
  show("token-problem", problem);
  asking ??= new Promise((resolve, reject) => {
    const [dialog, form, input] = ["token", "token-form", "token-input"].map(byId);
    const end = (settle) => {
      asking = null;
      form.onsubmit = null;
      dialog.onclose = null;
      dialog.close();
      settle();
    };
    form.onsubmit = async (event) => {
      event.preventDefault();
      const rejection = await wrongToken(input.value);
      if (rejection) {
        show("token-problem", rejection);
        input.select();
        return;
      }
      keep(input.value);
      input.value = "";
      end(resolve);
    };
    dialog.onclose = () => end(() => reject(new ApiError(401, "a token is required")));
    byId("token-cancel").onclick = () => dialog.close();
    dialog.showModal();
    input.focus();
  });
  return asking;
}

// Tries a token with a single request: wrong ones are counted, and too many lock this address out for a while.
async function wrongToken(value) {
  try {
    const response = await send("/v1/keys/raises", { authorization: value });
    return response.ok ? null : (await errorOf(response)).message;
  } catch {
    return "tidegate can't be reached, or this is not a token";
  }
}
