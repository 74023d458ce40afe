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
  --@inline interval_ticks
  return at, tick, missing, set_back
end

return function(state, numbers, now, cost, taken, kind)
  local units, period, limit = numbers[1], numbers[2], numbers[3]
  local most = numbers.most or limit
  local at, tick, missing, set_back = update_interval(state, units, period, most, now)
  local before = missing
  if kind == REFUND then
    -- The ticks since then have refilled some of it.
    local ticks = math.min(0, taken - tick) / period
    local back = cost - (ticks % 1 - ticks) * units
    missing = missing - math.min(math.max(0, back), missing)
    cost = 0
  elseif kind == LATE then
    taken = math.min(taken, at)
    local late = math.max(0, (missing == 0 and at or tick) - taken)
    local ticks = (late - late % period) / period
    missing = math.min(most, missing + math.max(0, math.min(cost, most) - ticks * units))
    -- A charge on a full bucket starts its grid.
    if before == 0 and missing > 0 then tick = taken + ticks * period end
    cost = 0
  end
  local charged, allowed, remaining, reset, wait = cost
  --@inline interval_decide
  if remaining < 0 then remaining = 0 end
  if cost > limit then wait = -1 end
  local next_state
  if missing ~= before or (allowed == 0 and set_back) then
    next_state = kind == REFUND and missing == 0 and "" or struct.pack("<ddd", at, tick, missing)
  end
  return allowed, remaining, reset, wait, 0, next_state, reset
end
