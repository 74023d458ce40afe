-- debt: shared by token_bucket, gcra and leaky_bucket; twin of crates/limit/src/limit/bucket.rs.
--
-- State   "<ddd" (24 bytes): timestamp in µs, debt in ticks, and the number of ticks in one unit.
--         N' ticks drain each µs. Nothing is ever rounded, and every number stays at or below 2^53.
-- TTL     until the debt has drained

-- Time from `now` until `ticks` of debt as of `at` have drained.
local function until_drained(ticks, drain, at, now)
  if ticks == 0 then return 0 end
  -- In this order: the wait may be so long that its sum with the time would not be exact.
  return div_ceil(ticks, drain) + (at - now)
end

-- Converts a debt with `from` ticks a unit to `unit` ticks a unit: whole units stay whole, the rest of one rounds up,
-- and no debt exceeds `full`.
local function in_own_unit(ticks, from, unit, full)
  if from == unit then return math.min(ticks, full) end
  local units = div_floor(ticks, from)
  if units * unit >= full then return full end
  return math.min(units * unit + math.ceil(math.fmod(ticks, from) / from * unit), full)
end

-- The debt at `now`: the time, the ticks, and whether the clock was set back.
local function update_debt(state, drain, unit, full, now)
  if not state or (#state ~= 24 and #state ~= 32) then return now, 0, false end
  local stamp, ticks, from = struct.unpack("<ddd", state)
  if not (is_whole(stamp) and is_whole(ticks) and is_whole(from) and from > 0) then return now, 0, false end
  ticks = in_own_unit(ticks, from, unit, full)
  if stamp > now + SET_BACK then return now, ticks, true end
  local at = math.max(now, stamp)
  return at, math.max(0, ticks - (at - stamp) * drain), false
end

-- In:   numbers {N', P', limit}
local function debt_step(state, numbers, now, cost, taken, kind)
  local drain, unit, limit = numbers[1], numbers[2], numbers[3]
  local full = limit * unit
  local at, ticks, set_back = update_debt(state, drain, unit, full, now)
  if kind == REFUND then
    local back = math.min(cost, limit) * unit - math.max(0, at - taken) * drain
    back = math.min(math.max(0, back), ticks)
    local after = ticks - back
    local reset = until_drained(after, drain, at, now)
    local next_state = back > 0 and (after > 0 and struct.pack("<ddd", at, after, unit) or "") or nil
    return 1, div_floor(full - after, unit), reset, 0, 0, next_state, reset
  end
  if kind == LATE then
    local owed = math.max(0, math.min(cost, limit) * unit - math.max(0, at - taken) * drain)
    local after = math.min(full, ticks + owed)
    local reset = until_drained(after, drain, at, now)
    local next_state = after > ticks and struct.pack("<ddd", at, after, unit) or nil
    return 1, div_floor(full - after, unit), reset, 0, 0, next_state, reset
  end
  local room = full - ticks
  if cost <= limit and cost * unit <= room then
    local after = ticks + cost * unit
    local reset = until_drained(after, drain, at, now)
    local next_state = cost > 0 and struct.pack("<ddd", at, after, unit) or nil
    return 1, div_floor(full - after, unit), reset, 0, 0, next_state, reset
  end
  local retry = -1
  if cost <= limit then retry = until_drained(cost * unit - room, drain, at, now) end
  local reset = until_drained(ticks, drain, at, now)
  -- A denial moves a state only if the clock was set back: otherwise the key would stay denied until the old time is
  -- reached again.
  local moved = set_back and struct.pack("<ddd", at, ticks, unit) or nil
  return 0, div_floor(room, unit), reset, retry, 0, moved, reset
end

return debt_step, update_debt, until_drained
