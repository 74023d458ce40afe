-- sliding_window: counters of the parts of a period; see timeline.lua. Twin of crates/limit/src/limit/sliding_window.rs.
--
-- In      numbers {N, w, buckets}: a part is w µs, a period buckets·w; N·w <= 2^53, N < 2^47
-- State   for each part with units "<I2I6", its number modulo 2^16 and the total modulo 2^48; then "<ddd" timestamp
--         in µs, total before the first entry, w. Numbers count from the newest part, which contains the timestamp.
--         Counters of another width are ignored.
-- TTL     until the newest part has expired
-- Out     as in debt.lua

local first_entry = timeline()

local function part_entry(state, index)
  return struct.unpack("<I2I6", state, index * 8 - 7)
end

-- The counters without `cost` of the units in the part that is `age` before the newest, whose number is `last`; nil if
-- that part no longer exists.
local function refund_part(state, first, before, past, newest, age, cost, last, width, stamp)
  if age < 0 or age >= 2^16 then return nil end
  local index, earlier, number, total =
    first_entry(part_entry, state, first, past, before, false, newest, 2^16, age + 1)
  if not number or (newest - number) % 2^16 ~= age then return nil end
  local spent = (total - earlier) % 2^48
  local back = math.min(spent, cost)
  if back == 0 then return nil end
  local from = back == spent and index + 1 or index
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  for i = from, past - 1 do
    number, total = part_entry(state, i)
    kept[#kept + 1] = struct.pack("<I2I6", number, (total - back) % 2^48)
  end
  local entries = table.concat(kept)
  if entries == "" then return "" end
  if from == past then
    -- The timestamp is in the newest part: as late in it as possible.
    number = part_entry(entries, #entries / 8)
    stamp = (last - (newest - number) % 2^16 + 1) * width - 1
  end
  return entries .. struct.pack("<ddd", stamp, before, width)
end

-- The counters with `units` more in the part `late`, which contains `taken`; those from `first` on count.
local function late_part(state, first, before, past, newest, total, units, late, last, width, stamp, taken)
  if first == past then return struct.pack("<I2I6ddd", late % 2^16, units, taken, 0, width) end
  if late >= last then
    local kept = string.sub(state, first * 8 - 7, late == last and -33 or -25)
    local number = (newest + late - last) % 2^16
    return kept .. struct.pack("<I2I6ddd", number, (total + units) % 2^48, math.max(stamp, taken), before, width)
  end
  local age = last - late
  local index, earlier, number = first_entry(part_entry, state, first, past, before, false, newest, 2^16, age + 1)
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  if not number or (newest - number) % 2^16 ~= age then
    kept[2] = struct.pack("<I2I6", (newest - age) % 2^16, (earlier + units) % 2^48)
  end
  for i = index, past - 1 do
    number, total = part_entry(state, i)
    kept[#kept + 1] = struct.pack("<I2I6", number, (total + units) % 2^48)
  end
  return table.concat(kept) .. struct.pack("<ddd", stamp, before, width)
end

local function window_step(state, numbers, now, cost, taken, kind)
  local limit, width, buckets = numbers[1], numbers[2], numbers[3]
  local stamp, base, past, newest, total, set_back = now, 0, 1, 0, 0, false
  local made
  if state and #state > 24 and #state % 8 == 0 then
    local number, counted, as_of, earlier, from = struct.unpack("<I2I6ddd", state, #state - 31)
    if from == width and is_whole(as_of) and is_whole(earlier) then
      newest, total, stamp, base, past = number, counted, as_of, earlier, #state / 8 - 2
      made = as_of
      -- By whole parts, so that none of them weighs less than before; the rest elapses as if the clock were behind.
      set_back = stamp > now + SET_BACK and stamp - now >= width
      if set_back then stamp = stamp - div_floor(stamp - now, width) * width end
    end
  end
  local at = math.max(now, stamp)
  local part, last = div_floor(at, width), div_floor(stamp, width)
  -- The distance from the newest to the oldest part, of which the period covers only a fraction.
  local oldest = buckets - (part - last)
  local first, before, position, counted =
    first_entry(part_entry, state, 1, past, base, false, newest, 2^16, oldest + 1)
  if kind == REFUND then
    local age = made and div_floor(made, width) - div_floor(taken, width)
    local back = made and refund_part(state, first, before, past, newest, age, cost, last, width, stamp)
    local _, remaining, reset = window_step(back or state, numbers, now, 0)
    return 1, remaining, reset, 0, 0, back, reset
  end
  local whole, earlier, old = first, before, 0
  if position and (newest - position) % 2^16 == oldest then
    whole, earlier, old = first + 1, counted, (counted - before) % 2^48
  end
  local full = (total - earlier) % 2^48
  local partial = div_ceil(old * ((part + 1) * width - at), width)
  local remaining = math.max(0, limit - full - partial)
  if kind == LATE then
    taken = math.min(taken, at)
    local allowed = numbers.most or limit
    local late, room, next_state = div_floor(taken, width), math.max(0, allowed - full - partial), nil
    if part - late >= buckets then
      -- Only a fraction of the oldest part counts.
      local most = div_floor(math.max(0, allowed - full) * width, (part + 1) * width - at)
      room = math.max(0, math.min(most, allowed) - old)
    end
    cost = math.min(cost, room)
    if cost > 0 and part - late <= buckets then
      next_state = late_part(state, first, before, past, newest, total, cost, late, last, width, stamp, taken)
    end
    local _, left, reset = window_step(next_state or state, numbers, now, 0)
    return 1, left, reset, 0, 0, next_state, reset
  end
  local reset = first < past and (last + buckets + 1) * width - now or 0
  if cost > remaining then
    local retry = -1
    if cost <= limit then
      -- The decisive part is the first one after which at most `room` was spent. `left` is the longest time before the end
      -- of its time as the oldest part at which the request fits.
      local room, leaving = limit - cost, part
      if full > room then
        local _
        _, earlier, position, counted =
          first_entry(part_entry, state, whole, past, earlier, true, total, 2^48, room + 1)
        leaving = last + buckets - (newest - position) % 2^16
        old, full = (counted - earlier) % 2^48, (total - counted) % 2^48
      end
      local left = div_floor((room - full) * width, old)
      retry = (leaving + 1) * width - left - now
    end
    local moved = set_back and string.sub(state, 1, -25) .. struct.pack("<ddd", at, base, width) or nil
    return 0, remaining, reset, retry, 0, moved, reset
  end
  if cost == 0 then return 1, remaining, reset, 0, 0, nil, reset end
  reset = (part + buckets + 1) * width - now
  local number, kept = (newest + part - last) % 2^16, ""
  if first == past then
    number, before, total = part % 2^16, 0, cost
  else
    -- Charges within one part share a counter.
    kept = string.sub(state, first * 8 - 7, part == last and -33 or -25)
    total = (total + cost) % 2^48
  end
  local next_state = kept .. struct.pack("<I2I6ddd", number, total, at, before, width)
  return 1, remaining - cost, reset, 0, 0, next_state, reset
end

return window_step
