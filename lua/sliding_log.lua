-- sliding_log: every admitted request of the last period; see timeline.lua. Twin of src/limit/sliding_log.rs.
--
-- In      numbers {N, P, …}: the rates that share the log, the longest period first, each of the others with a
--         shorter one and fewer units; N < 2^19, P <= 2^45 µs
-- State   "<dd" stamp in µs, total before the first entry; then of each entry "<I6I2", the little-endian word
--         of its time modulo 2^45 µs and, above that, the total modulo 2^19. Times count from the newest
--         entry, which was made at the stamp.
-- TTL     until the newest entry is as old as the longest P
-- Out     as in debt.lua

local function log_entry(state, place)
  local low, high = struct.unpack("<I6I2", state, place * 8 + 9)
  local time = low % 2^45
  return time, (low - time) / 2^45 + high * 8
end

-- Time from `now` until `cost` units would fit every rate, if nothing else is spent than `charge` at `at`.
-- The entries that count are those from `first` to `past` - 1; `before` is the total before them, and `newest`
-- and `total` are those of the last one, which was made at `stamp`.
local function log_wait(state, numbers, cost, charge, now, at, stamp, first, past, before, newest, total)
  local wait = 0
  for i = 1, #numbers, 2 do
    local room, made = numbers[i] - cost, charge > 0 and at or stamp
    local earlier, time, _ = before, nil, nil
    -- The last entry that has to be out. Without room that is the newest of all.
    if room > 0 then
      _, earlier, time = first_entry(log_entry, state, first, past, before, true, total + charge, 2^19, room + 1)
      if time then made = stamp - (newest - time) % 2^45 end
    end
    local out = made + numbers[i + 1]
    if (total + charge - earlier) % 2^19 > room and out > at then wait = math.max(wait, out - now) end
  end
  return wait
end

ALGORITHMS["l"] = function(state, numbers, now, cost)
  local limit, longest = numbers[#numbers - 1], numbers[2]
  local stamp, base, past, newest, total = now, 0, 1, 0, 0
  if state and #state > 16 and #state % 8 == 0 then
    local as_of, earlier = struct.unpack("<dd", state)
    if is_whole(as_of) and is_whole(earlier) then
      stamp, base, past = as_of, earlier, #state / 8 - 1
      newest, total = log_entry(state, past - 1)
    end
  end
  local set_back = stamp > now + SET_BACK
  if set_back then stamp = now end
  local at = math.max(now, stamp)
  -- What lies less than this before the newest entry is inside the longest period.
  local reach = longest - (at - stamp)
  local first, before = first_entry(log_entry, state, 1, past, base, false, newest, 2^45, reach)
  local remaining = numbers[1] - (total - before) % 2^19
  local place, earlier = first, before
  for i = 3, #numbers, 2 do
    reach = numbers[i + 1] - (at - stamp)
    place, earlier = first_entry(log_entry, state, place, past, earlier, false, newest, 2^45, reach)
    remaining = math.min(remaining, numbers[i] - (total - earlier) % 2^19)
  end
  remaining = math.max(0, remaining)
  local charge = cost > remaining and 0 or cost
  local reset = log_wait(state, numbers, limit, charge, now, at, stamp, first, past, before, newest, total)
  if cost > remaining then
    local retry = -1
    if cost <= limit then
      retry = log_wait(state, numbers, cost, 0, now, at, stamp, first, past, before, newest, total)
    end
    local moved = set_back and struct.pack("<d", now) .. string.sub(state, 9) or nil
    return 0, remaining, reset, retry, 0, moved, stamp + longest - now
  end
  if cost == 0 then return 1, remaining, reset, 0, 0, nil, 0 end
  local time, kept = (newest + at - stamp) % 2^45, ""
  if first == past then
    time, before, total = at % 2^45, 0, cost
  else
    -- Within one microsecond the newest entry grows.
    kept = string.sub(state, first * 8 + 9, at == stamp and -9 or -1)
    total = (total + cost) % 2^19
  end
  local word, rest = time + total % 8 * 2^45, (total - total % 8) / 8
  local next_state = struct.pack("<dd", at, before) .. kept .. struct.pack("<I6I2", word, rest)
  return 1, remaining - cost, reset, 0, 0, next_state, at + longest - now
end
