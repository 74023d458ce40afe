// Tables whose rows are updated in place, so that focus and selection stay, and that can be sorted by their columns.

// The rows that a table shows at first, and after “Show more”.
const FEW_ROWS = 12;
const MAX_ROWS = 100;
const hasHover = matchMedia("(hover: hover)").matches;
const known = new WeakMap();

// Shows `items`, each in the row of its `id`. While the pointer or the focus is in the table its rows keep their places:
// a row would otherwise move away from under the pointer.
function updateRows(body, items, create, update) {
  const rows = known.get(body) ?? new Map();
  known.set(body, rows);
  const next = new Map(items.map((item) => [item.id, item]));
  for (const [id, row] of rows) {
    if (next.has(id) || row.contains(document.activeElement)) continue;
    row.remove();
    rows.delete(id);
  }
  const isInUse = (hasHover && body.matches(":hover")) || body.contains(document.activeElement);
  items.forEach((item, place) => {
    let row = rows.get(item.id);
    if (!row) rows.set(item.id, (row = create(item)));
    update(row, item);
    if (isInUse && row.isConnected) return;
    if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
  });
}

// A table with columns { title, sort: item => number, isNumber, isOptional, fill: (cell, item) => … }. `sort` is none for
// columns that can't be sorted by. Items that are equal there are sorted by `then`, and then by their names.
class Table {
  constructor(name, columns, shown, then = () => 0) {
    this.then = then;
    this.columns = columns;
    this.body = byId(`${name}-rows`);
    this.sortedBy = columns.find((column) => column.isDefault) ?? null;
    this.heads = columns.map((column) => this.head(column));
    byId(`${name}-head`).append(...this.heads);
    this.filter = byId(`${name}-filter`);
    this.filter?.addEventListener("input", shown);
    this.maximum = FEW_ROWS;
    this.more = byId(`${name}-more`);
    this.more?.addEventListener("click", () => {
      this.maximum = this.maximum === FEW_ROWS ? MAX_ROWS : FEW_ROWS;
      shown();
    });
    this.shown = shown;
    this.markSorted();
  }

  classes(column) {
    return [column.isNumber && "number", column.isOptional && "optional"].filter(Boolean).join(" ");
  }

  head(column) {
    const sort = () => {
      this.sortedBy = column;
      this.markSorted();
      this.shown();
    };
    const content = column.sort ? element("button", { type: "button", class: "sort", onclick: sort }, column.title) : column.title;
    return element("th", { scope: "col", class: this.classes(column) }, content);
  }

  markSorted() {
    this.columns.forEach((column, index) => {
      if (column === this.sortedBy) this.heads[index].setAttribute("aria-sort", "descending");
      else this.heads[index].removeAttribute("aria-sort");
    });
  }

  // Shows the first of the items, and returns how many there are of those that match the filter.
  show(items) {
    const wanted = this.filter?.value.trim().toLowerCase() ?? "";
    const matching = wanted ? items.filter((item) => item.id.toLowerCase().includes(wanted)) : items;
    const sort = this.sortedBy?.sort;
    if (sort) matching.sort((one, other) => sort(other) - sort(one) || this.then(other) - this.then(one) || one.id.localeCompare(other.id));
    const create = () => element("tr", {}, ...this.columns.map((column) => element("td", { class: this.classes(column) })));
    const update = (row, item) => this.columns.forEach((column, index) => column.fill(row.children[index], item));
    const maximum = this.more ? this.maximum : MAX_ROWS;
    updateRows(this.body, matching.slice(0, maximum), create, update);
    if (this.more) {
      this.more.hidden = matching.length <= FEW_ROWS;
      setText(this.more, this.maximum === FEW_ROWS ? `Show ${number(Math.min(matching.length, MAX_ROWS) - FEW_ROWS)} more` : "Show fewer");
    }
    return matching.length;
  }
}

// Replaces the content of a cell if its text has changed.
function fillWith(cell, text, ...nodes) {
  if (cell.shownText === text) return;
  cell.shownText = text;
  cell.replaceChildren(...(nodes.length > 0 ? nodes.filter((node) => node != null) : [text]));
}
