-- interval: a token bucket that gets N tokens at each whole P since the request that found it full; twin of
-- crates/limit/src/limit/interval.rs.
--
-- In      numbers {N, P, limit}
-- State   "<ddd" (24 bytes): timestamp in µs, the last tick of the grid at or before it, and the missing tokens. A full
--         bucket has no grid.
-- TTL     until the tick that fills it

local function update_interval(state, units, period, limit, now)
  if not state or #state ~= 24 then return now, now, 0, false end
  local stamp, tick, missing = struct.unpack("<ddd", state)
  if not (is_whole(stamp) and is_whole(tick) and is_whole(missing) and tick <= stamp) then
    return now, now, 0, false
  end
  local at, set_back = math.max(now, stamp), false
  if stamp > now + SET_BACK then
    at, tick, set_back = now, math.max(0, tick - (stamp - now)), true
  end
  missing = math.min(missing, limit)
  local ticks = div_floor(at - tick, period)
  if ticks >= div_ceil(missing, units) then return at, at, 0, set_back end
  return at, tick + ticks * period, missing - ticks * units, set_back
end

return function(state, numbers, now, cost, taken, kind)
  local units, period, limit = numbers[1], numbers[2], numbers[3]
  local at, tick, missing, set_back = update_interval(state, units, period, limit, now)
  -- Time from now until so many tokens are added.
  local function until_back(tokens)
    if tokens == 0 then return 0 end
    return div_ceil(tokens, units) * period - (at - tick) + (at - now)
  end
  if kind == REFUND then
    -- The ticks since then have refilled some of it.
    local back = cost - div_ceil(math.max(0, tick - taken), period) * units
    back = math.min(math.max(0, back), missing)
    local after = missing - back
    local reset = until_back(after)
    local next_state = back > 0 and (after > 0 and struct.pack("<ddd", at, tick, after) or "") or nil
    return 1, limit - after, reset, 0, 0, next_state, reset
  end
  if kind == LATE then
    taken = math.min(taken, at)
    local ticks = div_floor(math.max(0, (missing == 0 and at or tick) - taken), period)
    local after = math.min(limit, missing + math.max(0, math.min(cost, limit) - ticks * units))
    local is_more = after > missing
    -- A charge on a full bucket starts its grid.
    if is_more and missing == 0 then tick = taken + ticks * period end
    local reset = until_back(after)
    return 1, limit - after, reset, 0, 0, is_more and struct.pack("<ddd", at, tick, after) or nil, reset
  end
  local room = limit - missing
  if cost > room then
    local reset = until_back(missing)
    local retry = -1
    if cost <= limit then retry = until_back(cost - room) end
    local moved = set_back and struct.pack("<ddd", at, tick, missing) or nil
    return 0, room, reset, retry, 0, moved, reset
  end
  if missing == 0 then tick = at end
  missing = missing + cost
  local reset = until_back(missing)
  local next_state = cost > 0 and struct.pack("<ddd", at, tick, missing) or nil
  return 1, limit - missing, reset, 0, 0, next_state, reset
end
