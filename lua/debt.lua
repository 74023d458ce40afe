-- debt: what token_bucket, gcra and leaky_bucket share; twin of src/limit/bucket.rs.
--
-- State   "<ddd" (24 bytes): stamp in µs, debt in ticks, and how many ticks are one unit.
--         N' ticks drain each µs. Nothing is ever rounded, and every number stays at or below 2^53.
-- TTL     until the debt has drained.

-- Time from `now` until `ticks` of debt as of `at` have drained.
local function until_drained(ticks, drain, at, now)
  if ticks == 0 then return 0 end
  -- In this order: the wait may be so long that a sum with the time would not be exact.
  return div_ceil(ticks, drain) + (at - now)
end

-- A debt that was counted in `from` ticks a unit, in `unit` ticks: whole units stay whole, the rest of one
-- rounds up, and no debt is above `full`.
local function in_own_unit(ticks, from, unit, full)
  if from == unit then return math.min(ticks, full) end
  local units = div_floor(ticks, from)
  if units * unit >= full then return full end
  return math.min(units * unit + math.ceil(math.fmod(ticks, from) / from * unit), full)
end

-- The debt at `now`: when that is, its ticks, and whether the clock was set back.
local function settle_debt(state, drain, unit, full, now)
  if not state or #state ~= 24 then return now, 0, false end
  local stamp, ticks, from = struct.unpack("<ddd", state)
  if not (is_whole(stamp) and is_whole(ticks) and is_whole(from) and from > 0) then return now, 0, false end
  ticks = in_own_unit(ticks, from, unit, full)
  if stamp > now + SET_BACK then return now, ticks, true end
  local at = math.max(now, stamp)
  return at, math.max(0, ticks - (at - stamp) * drain), false
end

-- In:   numbers {N', P', limit}
local function debt_step(state, numbers, now, cost, taken, manner)
  local drain, unit, limit = numbers[1], numbers[2], numbers[3]
  local full = limit * unit
  local at, ticks, set_back = settle_debt(state, drain, unit, full, now)
  if manner == REFUND then
    local back = math.min(cost, limit) * unit - math.max(0, at - taken) * drain
    back = math.min(math.max(0, back), ticks)
    local after = ticks - back
    local reset = until_drained(after, drain, at, now)
    local next_state = back > 0 and (after > 0 and struct.pack("<ddd", at, after, unit) or "") or nil
    return 1, div_floor(full - after, unit), reset, 0, 0, next_state, reset
  end
  if manner == LATE then
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
  -- Only a clock that was set back moves a state on a denial: without that the key would stay refused until
  -- the old time comes round.
  local moved = set_back and struct.pack("<ddd", at, ticks, unit) or nil
  return 0, div_floor(room, unit), reset, retry, 0, moved, reset
end

return debt_step, settle_debt, until_drained
