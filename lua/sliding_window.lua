-- sliding_window: counters of the parts of a period; see timeline.lua. Twin of crates/limit/src/limit/sliding_window.rs.
--
-- In      numbers {N, w, buckets}: a part is w µs, a period buckets·w; N·w <= 2^53, N < 2^47
-- State   for each part with units "<I2I6", its number modulo 2^16 and the total modulo 2^48; then "<ddd" timestamp
--         in µs, total before the first entry, w. Numbers count from the newest part, which contains the timestamp.
--         Counters of another width are ignored.
-- TTL     until the newest part has expired
-- Out     as in debt.lua

local function part_entry(state, index)
  return struct.unpack("<I2I6", state, index * 8 - 7)
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
      if set_back then stamp = now + (stamp - now) % width end
    end
  end
  local at = stamp > now and stamp or now
  local part, last = (at - at % width) / width, (stamp - stamp % width) / width
  -- The distance from the newest to the oldest part, of which the period covers only a fraction.
  local oldest = buckets - (part - last)
  local first, before, position, counted =
    first_entry(part_entry, state, 1, past, base, false, newest, 2^16, oldest + 1)
  if kind == REFUND then
    --@inline parts_refund
    local age = made and (made - made % width - (taken - taken % width)) / width
    local back = made and refund_part(state, first, before, past, newest, age, cost, last, width, stamp)
    local _, remaining, reset = window_step(back or state, numbers, now, 0)
    return 1, remaining, reset, 0, 0, back, reset
  end
  local whole, earlier, old = first, before, 0
  if position and (newest - position) % 2^16 == oldest then
    whole, earlier, old = first + 1, counted, (counted - before) % 2^48
  end
  local full = (total - earlier) % 2^48
  local partial = -old * ((part + 1) * width - at) / width
  partial = partial % 1 - partial
  local remaining = limit - full - partial
  if remaining < 0 then remaining = 0 end
  if kind == LATE then
    --@inline parts_late
    taken = math.min(taken, at)
    local allowed = numbers.most or limit
    local late, room, next_state = (taken - taken % width) / width, math.max(0, allowed - full - partial), nil
    if part - late >= buckets then
      -- Only a fraction of the oldest part counts.
      local most, rest = math.max(0, allowed - full) * width, (part + 1) * width - at
      room = math.max(0, math.min((most - most % rest) / rest, allowed) - old)
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
      local left = (room - full) * width
      retry = (leaving + 1) * width - (left - left % old) / old - now
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
