-- interval: a token bucket that gets N tokens at each whole P since the request that found it full; twin of
-- crates/limit/src/limit/interval.rs.
--
-- In      numbers {N, P, limit}
-- State   "<ddd" (24 bytes): timestamp in µs, the last tick of the grid at or before it, and the missing tokens. A full
--         bucket has no grid.
-- TTL     until the tick that fills it

local function update_interval(state, units, period, most, now)
  if not state or #state ~= 24 then return now, now, 0, false end
  local stamp, tick, missing = struct.unpack("<ddd", state)
  if not (is_whole(stamp) and is_whole(tick) and is_whole(missing) and tick <= stamp) then
    return now, now, 0, false
  end
  local at, set_back = math.max(now, stamp), false
  if stamp > now + SET_BACK then
    at, tick, set_back = now, math.max(0, tick - (stamp - now)), true
  end
  missing = math.min(missing, most)
  local ticks = div_floor(at - tick, period)
  if ticks >= div_ceil(missing, units) then return at, at, 0, set_back end
  return at, tick + ticks * period, missing - ticks * units, set_back
end

return function(state, numbers, now, cost, taken, kind)
  local units, period, limit = numbers[1], numbers[2], numbers[3]
  local most = numbers.most or limit
  local at, tick, missing, set_back = update_interval(state, units, period, most, now)
  -- Time from now until so many tokens are added.
  local function until_back(tokens)
    if tokens == 0 then return 0 end
    return div_ceil(tokens, units) * period - (at - tick) + (at - now)
  end
  local before, allowed, retry = missing, 1, 0
  if kind == REFUND then
    -- The ticks since then have refilled some of it.
    local back = cost - div_ceil(math.max(0, tick - taken), period) * units
    missing = missing - math.min(math.max(0, back), missing)
  elseif kind == LATE then
    taken = math.min(taken, at)
    local ticks = div_floor(math.max(0, (missing == 0 and at or tick) - taken), period)
    missing = math.min(most, missing + math.max(0, math.min(cost, most) - ticks * units))
    -- A charge on a full bucket starts its grid.
    if before == 0 and missing > 0 then tick = taken + ticks * period end
  elseif cost > math.max(0, limit - missing) then
    allowed, retry = 0, cost <= limit and until_back(cost - (limit - missing)) or -1
  else
    if missing == 0 then tick = at end
    missing = missing + cost
  end
  local reset, next_state = until_back(missing), nil
  if missing ~= before or (allowed == 0 and set_back) then
    next_state = kind == REFUND and missing == 0 and "" or struct.pack("<ddd", at, tick, missing)
  end
  return allowed, math.max(0, limit - missing), reset, retry, 0, next_state, reset
end
