-- timeline: precedes sliding_log and sliding_window; twin of crates/limit/src/limit/timeline.rs.
--
-- State   8 bytes for each entry, the oldest first: a position, and the running total of all that was spent up to it;
--         both wrap around. After them the timestamp of the newest entry, and the total before the first.
--         (Elsewhere they would cost a charge one or two more strings.)

-- Finds the first of the entries low to high - 1 whose position (or total) is less than `below` before
-- `from`, where numbers wrap around at `span`. `read` decodes an entry; `before` is the total before `low`.
-- Returns its index, the total before it, and its position and total; if there is none: high, and the total
-- before that. The result is usually near the front, so the steps start there, and grow.
local function first_entry(read, state, low, high, before, by_total, from, span, below)
  local step, larger, position, total = 0, 0, nil, nil
  while low < high do
    local half = high - low
    half = (half - half % 2) / 2
    local middle = low + (step < half and step or half)
    local p, t = read(state, middle)
    if (from - (by_total and t or p)) % span < below then
      high, position, total = middle, p, t
    else
      low, before, step, larger = middle + 1, t, larger, larger * 2 + 1
    end
  end
  return low, before, position, total
end
