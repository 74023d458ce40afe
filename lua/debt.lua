-- debt: shared by token_bucket, gcra and leaky_bucket; twin of crates/limit/src/limit/bucket.rs.
--
-- State   "<ddd" (24 bytes): timestamp in µs, debt in ticks, and the number of ticks in one unit.
--         N' ticks drain each µs. Nothing is ever rounded, and every number stays at or below 2^53.
-- TTL     until the debt has drained

-- Time from `now` until `ticks` of debt as of `stamp` have drained.
local function until_drained(ticks, drain, stamp, now)
  if ticks == 0 then return 0 end
  local ahead, reset = stamp - now, nil
  --@inline debt_reset
  return reset
end

-- Converts a debt with `from` ticks a unit to `unit` ticks a unit: whole units stay whole, the rest of one rounds up,
-- and no debt exceeds `most`.
local function in_own_unit(ticks, from, unit, most)
  if from == unit then return math.min(ticks, most) end
  local units = div_floor(ticks, from)
  if units * unit >= most then return most end
  return math.min(units * unit + math.ceil(math.fmod(ticks, from) / from * unit), most)
end

-- The debt at `now`: the time, the ticks, and whether the clock was set back.
local function update_debt(state, drain, unit, most, now)
  if not state or (#state ~= 24 and #state ~= 32) then return now, 0, false end
  local made, ticks, from = struct.unpack("<ddd", state)
  if not (is_whole(made) and is_whole(ticks) and is_whole(from) and from > 0) then return now, 0, false end
  ticks = in_own_unit(ticks, from, unit, most)
  local stamp = now
  if made > now + SET_BACK then return stamp, ticks, true end
  --@inline debt_drain
  return stamp, ticks, false
end

-- In:   numbers {N', P', limit}
local function debt_step(state, numbers, now, cost, taken, kind)
  local drain, unit, limit = numbers[1], numbers[2], numbers[3]
  local full, price, most = limit * unit, cost * unit, numbers.most or limit
  local stamp, ticks, set_back = update_debt(state, drain, unit, most * unit, now)
  local before = ticks
  if kind == REFUND or kind == LATE then
    local owed = math.max(0, math.min(cost, most) * unit - math.max(0, stamp - taken) * drain)
    ticks = kind == LATE and math.min(most * unit, ticks + owed) or math.max(0, ticks - owed)
    price = 0
  end
  -- Nothing fits into a debt that exceeds the limit, except nothing.
  if price == 0 and ticks > full then full = ticks end
  local charged, allowed, remaining, reset, wait = price
  --@inline debt_decide
  if remaining < 0 then remaining = 0 end
  if ticks == 0 then reset = 0 end
  if allowed == 0 and cost > limit then wait = -1 end
  -- A denial moves a state only if the clock was set back: otherwise the key would stay denied until the old time is
  -- reached again.
  local next_state
  if ticks ~= before or (allowed == 0 and set_back) then
    next_state = kind == REFUND and ticks == 0 and "" or struct.pack("<ddd", stamp, ticks, unit)
  end
  return allowed, remaining, reset, wait, 0, next_state, reset
end

return debt_step, update_debt, until_drained
