-- debt: what token_bucket and gcra share; twin of src/limit/bucket.rs.
--
-- State   "<ddd" (24 bytes): stamp in µs, debt in ticks, and how many ticks are one unit.
--         N' ticks drain each µs. Nothing is ever rounded, and every number stays at or below 2^53.
-- TTL     until the debt has drained.

-- How far ahead of the clock a stamp may lie, in µs, before it means that the clock was set back.
local SET_BACK = 1000000

-- a / b rounded up, exact for whole numbers up to 2^53, which math.ceil(a / b) is not.
local function div_ceil(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

local function div_floor(a, b)
  return (a - math.fmod(a, b)) / b
end

-- Time from `now` until `ticks` of debt as of `at` have drained.
local function until_drained(ticks, drain, at, now)
  if ticks == 0 then return 0 end
  return math.max(0, at + div_ceil(ticks, drain) - now)
end

-- A debt that was counted in `from` ticks a unit, in `unit` ticks: whole units stay whole, the rest of one
-- rounds up, and no debt is above `full`.
local function in_own_unit(ticks, from, unit, full)
  if from == unit then return math.min(ticks, full) end
  local units = div_floor(ticks, from)
  if units * unit >= full then return full end
  return math.min(units * unit + math.ceil(math.fmod(ticks, from) / from * unit), full)
end

-- In:   state as stored or false; numbers {N', P', limit}; now in µs; cost in units.
-- Out:  allowed (1 or 0), remaining, reset_after in µs, retry_after in µs (-1: never), delay in µs,
--       the next state or nil, and its lifetime in µs.
local function debt_step(state, numbers, now, cost)
  local drain, unit, limit = numbers[1], numbers[2], numbers[3]
  local full = limit * unit
  local at, ticks, set_back = now, 0, false
  if state and #state == 24 then
    local stamp, from
    stamp, ticks, from = struct.unpack("<ddd", state)
    ticks = in_own_unit(ticks, from, unit, full)
    if stamp > now + SET_BACK then
      set_back = true
    else
      at = math.max(now, stamp)
      ticks = math.max(0, ticks - (at - stamp) * drain)
    end
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
