-- sliding_log: every admitted request of the last period; see timeline.lua. Twin of crates/limit/src/limit/sliding_log.rs.
--
-- In      numbers {N, P, …}: the rates that share the log, the longest period first, each of the others with a
--         shorter one and fewer units; N < 2^19, P <= 2^45 µs
-- State   for each entry "<I6I2", the little-endian word of its time modulo 2^45 µs and, above that, the total
--         modulo 2^19; then "<dd" timestamp in µs, total before the first entry. Times count from the newest
--         entry, which was made at the timestamp.
-- TTL     until the newest entry is as old as the longest P
-- Out     as in debt.lua

local first_entry = timeline()

local function log_entry(state, index)
  local low, high = struct.unpack("<I6I2", state, index * 8 - 7)
  local time = low % 2^45
  return time, (low - time) / 2^45 + high * 8
end

-- Time from `now` until `cost` units fit every rate, if nothing is spent except `charge` at `at`. The entries that
-- count are those from `first` to `past` - 1, with `spent` units; `newest` and `total` are those of the last one, made
-- at `stamp`.
local function log_wait(state, numbers, cost, charge, now, at, stamp, first, past, spent, newest, total)
  local wait = 0
  for i = 1, #numbers, 2 do
    local room = numbers[i] - cost
    if spent + charge > room then
      -- The last entry that has to expire, or else the charge itself.
      local made, left = at, room - charge
      if left >= 0 then
        -- Each entry has at least one unit, which bounds how far back it can be.
        local low = math.max(first, past - 1 - left)
        local _, _, time = first_entry(log_entry, state, low, past, 0, true, total, 2^19, left + 1)
        made = stamp - (newest - time) % 2^45
      end
      wait = math.max(wait, made + numbers[i + 1] - now)
    end
  end
  return wait
end

-- The log without `cost` of the units of the entry that is `age` µs older than the newest, which counts as made at
-- `stamp`; nil if that entry no longer exists.
local function refund_log(state, first, before, past, newest, age, cost, stamp)
  if age < 0 or age >= 2^45 then return nil end
  local index, earlier, time, total =
    first_entry(log_entry, state, first, past, before, false, newest, 2^45, age + 1)
  if not time or (newest - time) % 2^45 ~= age then return nil end
  local spent = (total - earlier) % 2^19
  local back = math.min(spent, cost)
  if back == 0 then return nil end
  local from = back == spent and index + 1 or index
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  for i = from, past - 1 do
    time, total = log_entry(state, i)
    total = (total - back) % 2^19
    kept[#kept + 1] = struct.pack("<I6I2", time + total % 8 * 2^45, (total - total % 8) / 8)
  end
  local entries = table.concat(kept)
  if entries == "" then return "" end
  if from == past then time = log_entry(entries, #entries / 8) end
  return entries .. struct.pack("<dd", stamp - (newest - time) % 2^45, before)
end

local function log_word(time, total)
  local low = total % 8
  return struct.pack("<I6I2", time + low * 2^45, (total - low) / 8)
end

-- The log with `units` more that were taken at `taken`; entries from `first` on count.
local function late_log(state, first, before, past, newest, total, units, taken, stamp)
  if first == past then return log_word(taken % 2^45, units) .. struct.pack("<dd", taken, 0) end
  if taken >= stamp then
    local kept = string.sub(state, first * 8 - 7, taken == stamp and -25 or -17)
    return kept .. log_word((newest + taken - stamp) % 2^45, (total + units) % 2^19) .. struct.pack("<dd", taken, before)
  end
  local age = stamp - taken
  local index, earlier, time = first_entry(log_entry, state, first, past, before, false, newest, 2^45, age + 1)
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  if not time or (newest - time) % 2^45 ~= age then
    kept[2] = log_word((newest - age) % 2^45, (earlier + units) % 2^19)
  end
  for i = index, past - 1 do
    time, total = log_entry(state, i)
    kept[#kept + 1] = log_word(time, (total + units) % 2^19)
  end
  return table.concat(kept) .. struct.pack("<dd", stamp, before)
end

local function log_step(state, numbers, now, cost, taken, kind)
  local limit, longest = numbers[#numbers - 1], numbers[2]
  local stamp, base, past, newest, total = now, 0, 1, 0, 0
  local made
  if state and #state > 16 and #state % 8 == 0 then
    local low, high, as_of, earlier = struct.unpack("<I6I2dd", state, #state - 23)
    if is_whole(as_of) and is_whole(earlier) then
      stamp, base, past, newest = as_of, earlier, #state / 8 - 1, low % 2^45
      made = as_of
      total = (low - newest) / 2^45 + high * 8
    end
  end
  local set_back = stamp > now + SET_BACK
  if set_back then stamp = now end
  local at = math.max(now, stamp)
  -- Entries less than this older than the newest are inside the longest period.
  local reach = longest - (at - stamp)
  local first, before = first_entry(log_entry, state, 1, past, base, false, newest, 2^45, reach)
  if kind == REFUND then
    local back = made and refund_log(state, first, before, past, newest, made - taken, cost, stamp)
    local _, remaining, reset, _, _, _, alive = log_step(back or state, numbers, now, 0)
    return 1, remaining, reset, 0, 0, back, alive
  end
  local spent = (total - before) % 2^19
  if kind == LATE then
    taken, cost = math.min(taken, at), math.min(cost, (numbers.most or numbers[1]) - spent)
    local late
    if cost > 0 and at - taken < longest then
      late = late_log(state, first, before, past, newest, total, cost, taken, stamp)
    end
    local _, remaining, reset, _, _, _, alive = log_step(late or state, numbers, now, 0)
    return 1, remaining, reset, 0, 0, late, alive
  end
  local remaining = numbers[1] - spent
  local index, earlier = first, before
  for i = 3, #numbers, 2 do
    -- Each entry has at least one unit, so N entries exhaust the rate.
    local low = past - numbers[i]
    if low > index then
      local _
      index, _, earlier = low, log_entry(state, low - 1)
    end
    reach = numbers[i + 1] - (at - stamp)
    index, earlier = first_entry(log_entry, state, index, past, earlier, false, newest, 2^45, reach)
    remaining = math.min(remaining, numbers[i] - (total - earlier) % 2^19)
  end
  remaining = math.max(0, remaining)
  if cost > remaining then
    local reset = log_wait(state, numbers, limit, 0, now, at, stamp, first, past, spent, newest, total)
    local retry = -1
    if cost <= limit then
      retry = log_wait(state, numbers, cost, 0, now, at, stamp, first, past, spent, newest, total)
    end
    local moved = set_back and string.sub(state, 1, -17) .. struct.pack("<dd", now, base) or nil
    return 0, remaining, reset, retry, 0, moved, stamp + longest - now
  end
  local reset = log_wait(state, numbers, limit, cost, now, at, stamp, first, past, spent, newest, total)
  if cost == 0 then return 1, remaining, reset, 0, 0, nil, first < past and stamp + longest - now or 0 end
  local time, kept = (newest + at - stamp) % 2^45, ""
  if first == past then
    time, before, total = at % 2^45, 0, cost
  else
    -- Charges within one microsecond share an entry.
    kept = string.sub(state, first * 8 - 7, at == stamp and -25 or -17)
    total = (total + cost) % 2^19
  end
  local word, rest = time + total % 8 * 2^45, (total - total % 8) / 8
  local next_state = kept .. struct.pack("<I6I2dd", word, rest, at, before)
  return 1, remaining - cost, reset, 0, 0, next_state, at + longest - now
end

return log_step
