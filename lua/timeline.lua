-- timeline: what sliding_log and sliding_window share; twin of src/limit/timeline.rs.
--
-- State   8 bytes an entry, the oldest first: a position, and the running total of all that was spent up to
--         there; both wrap around. Behind them the stamp of the newest entry, and the total before the first.
--         (In front, or apart from the newest entry, they would cost a charge one more string or two.)

-- Finds the first of the entries low to high - 1 whose position (or total) lies less than `below` before
-- `from`, where numbers wrap around at `span`. `read` takes an entry apart; `before` is the total before `low`.
-- Returns its place, the total before it, and its position and total; if there is none: high, and the total
-- before that. What is asked for mostly lies near the front, so the steps begin there, and grow.
return function(read, state, low, high, before, by_total, from, span, below)
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
