// Changes of a key, each after a dialog that says what will happen.

const DURATION = { name: "for", label: "For", pattern: "\\s*[0-9].*", hint: "such as 30s, 10m, 1h or 7days" };
const FACTOR = { name: "by", label: "By", pattern: "\\s*[0-9]+([.][0-9]+)?x\\s*", hint: "a factor such as 2x or 1.5x" };

// `text` says what the change does, from the values of the fields.
const ACTIONS = {
  reset: {
    verb: "Reset",
    fields: [],
    text: () => "Its count, its denials and its ban are cleared, so its quota is whole again at once. A block stays.",
  },
  block: {
    verb: "Block",
    fields: [{ ...DURATION, value: "10m" }],
    text: (values) => `Every request of this key is denied for ${values.for || "…"}, whatever its quota. “Unblock” ends it earlier.`,
  },
  unblock: {
    verb: "Unblock",
    fields: [],
    text: () => "Its block and its ban end now. Its count stays, so it may still be denied until its quota allows a request.",
  },
  raise: {
    verb: "Raise",
    fields: [{ ...FACTOR, value: "2x" }, { ...DURATION, value: "1h" }],
    text: (values, key) => `It gets ${values.by || "…"} the numbers of this limit for ${values.for || "…"}${raisedTo(values, key)}. What it has spent stays spent. Another raise of this key is replaced.`,
  },
  "end-raise": {
    verb: "End raise",
    fields: [],
    text: () => "The limit has its own numbers again for this key, at once.",
  },
};

function raisedTo({ by }, { statuses }) {
  const factor = Number.parseFloat(by);
  const status = statuses[0];
  if (!(factor > 1) || !status) return "";
  const own = status.of / (Number.parseFloat(status.raised) || 1);
  return `: ${number(Math.ceil(own * factor))} units at once, in place of ${number(Math.round(own))}`;
}

// Asks for confirmation, changes the key, and returns what the server says of it; null if the reader cancels.
function confirmChange(name, key) {
  const action = ACTIONS[name];
  const [dialog, form, submit] = ["confirm", "confirm-form", "confirm-submit"].map(byId);
  const inputs = action.fields.map((field) => fieldOf(field));
  const values = () => Object.fromEntries(inputs.map(({ input }) => [input.name, input.value.trim()]));
  const where = sharesStore() ? "This applies on every proxy that shares this Redis." : "This applies in this process only.";
  const describe = () => {
    setText(byId("confirm-text"), `${action.text(values(), key)} ${where}`);
  };
  setText(byId("confirm-title"), `${action.verb} key ${key.title} in limit ${key.limit}?`);
  byId("confirm-fields").replaceChildren(...inputs.map(({ label }) => label));
  setText(submit, action.verb);
  show("confirm-problem", null);
  form.oninput = describe;
  describe();
  return new Promise((resolve) => {
    let result = null;
    dialog.onclose = () => {
      // The event of an earlier dialog can arrive only after this one was opened.
      if (!dialog.open) resolve(result);
    };
    byId("confirm-cancel").onclick = () => dialog.close();
    form.onsubmit = async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        const body = { limit: key.limit, key: key.tag, ...values() };
        result = await requestJson(`/v1/keys/${name}`, { body });
        dialog.close();
      } catch (error) {
        show("confirm-problem", error.message);
      } finally {
        submit.disabled = false;
      }
    };
    dialog.showModal();
    (inputs[0]?.input ?? byId("confirm-cancel")).focus();
  });
}

function fieldOf({ name, label, pattern, hint, value }) {
  const input = element("input", { name, pattern, required: "", autocomplete: "off", spellcheck: "false", title: hint, value });
  return { input, label: element("label", {}, `${label}, ${hint}`, input) };
}
