-- grants: units that processes may spend without a call, of limits that grant them; twin of crates/limit/src/limit/grants.rs.
--
-- In      policies {letter, step, numbers, span, share, window}: how long a grant lasts in µs; a grant has at most one in
--         `share` of the units that are left; and update_window of a fixed window
-- State   a trailer after the algorithm's state: "<dddddd" and "r" (49 bytes): of the generation that new grants belong to,
--         when it was opened, its units that were not reported yet, and when its last grant ends; then the same of the
--         generation before. The trailer of penalty.lua follows. Without granted units there is no trailer.
-- TTL     until the last grant has ended, and its units, charged then, no longer count

local TRAILER = 49
-- The fewest units of a grant; the fewest of a paced one, and how many must be wanted for one.
local FEWEST, FEWEST_PACED, WANTED_PACED = 4, 2, 8
-- How far ahead units of an exhausted bucket are granted, in µs.
local PACED_AHEAD = 100000
-- Bounds for the factors of products that a double must hold exactly.
local MOST_WANTED, MOST_DRAINED = 2 ^ 30, 2 ^ 36
-- How long before its window a grant ends, in µs, so that no unit is spent in the next window.
local BEFORE_END = 1000
-- The longest time in µs from when a generation was opened until its last grant ends: several times the longest grant.
local LONGEST = 60000000
-- The largest debt, in ticks, whose wait a double holds exactly.
local LONGEST_WAIT = 2 ^ 53 - 1000000
-- More than any limit.
local TOO_MUCH = 2 ^ 53 + 2

local update_debt, until_drained

-- Returns the state without its grants, or false, and the two generations.
local function split_grants(record)
  local current, previous = { opened = 0, units = 0, finish = 0 }, { opened = 0, units = 0, finish = 0 }
  if not record or #record % 8 ~= 1 then return { state = record, current = current, previous = previous } end
  local counts = { state = false, current = current, previous = previous }
  if #record < TRAILER or string.sub(record, -1) ~= "r" then return counts end
  local opened, units, finish, opened_before, units_before, finish_before =
    struct.unpack("<dddddd", record, #record - TRAILER + 1)
  local is_own = is_whole(opened) and is_whole(units) and is_whole(finish)
  if not (is_own and is_whole(opened_before) and is_whole(units_before) and is_whole(finish_before)) then
    return counts
  end
  if finish > opened + LONGEST or finish_before > opened_before + LONGEST then return counts end
  current.opened, current.units, current.finish = opened, units, finish
  previous.opened, previous.units, previous.finish = opened_before, units_before, finish_before
  if #record > TRAILER then counts.state = string.sub(record, 1, #record - TRAILER) end
  return counts
end

local function granted_units(counts)
  return counts.current.units + counts.previous.units
end

local function join_grants(counts)
  local current, previous = counts.current, counts.previous
  local state = counts.state or ""
  if granted_units(counts) == 0 then return state end
  return state .. struct.pack("<dddddd", current.opened, current.units, current.finish,
    previous.opened, previous.units, previous.finish) .. "r"
end

-- Charges units as if they were spent now. Returns what remains, reset_after, the state, or nil if it does not change, and its
-- lifetime.
local function charge(policy, state, now, units)
  local _, remaining, reset, _, _, charged, lifetime = policy.algorithm(state, policy.numbers, now, units, FOREVER, LATE)
  return remaining, reset, charged, lifetime
end

-- Whole units that the state leaves, granted ones included.
local function available(policy, state, now)
  local _, remaining = policy.algorithm(state, policy.numbers, now, 0, nil, TAKE)
  return remaining
end

local function until_ended(counts, now)
  return math.max(0, counts.current.finish - now, counts.previous.finish - now)
end

-- The record, and its lifetime; "" if it equals none.
local function stored(policy, counts, now)
  local _, _, _, lifetime = charge(policy, counts.state, now, granted_units(counts))
  lifetime = lifetime + until_ended(counts, now)
  return lifetime > 0 and join_grants(counts) or "", lifetime
end

-- Moves the grants back with the clock if it was set back: they last as long from now as they did from the last one.
local function move_with_clock(counts, now)
  local latest = math.max(counts.current.opened, counts.previous.opened)
  if latest <= now + SET_BACK then return false end
  for _, generation in ipairs({ counts.current, counts.previous }) do
    generation.opened = math.max(0, generation.opened - (latest - now))
    generation.finish = math.max(0, generation.finish - (latest - now))
  end
  return true
end

-- Charges the generation if its last grant has ended; returns whether it has. Units that were spent in a fixed window that
-- is over count no more.
local function settle(policy, counts, generation, now)
  if generation.units == 0 or now < generation.finish then return false end
  local units, finish, opened = generation.units, generation.finish, generation.opened
  generation.opened, generation.units, generation.finish = 0, 0, 0
  if policy.window then
    local _, _, _, start = policy.window(counts.state, policy.numbers, now)
    if not counts.state and policy.numbers[2] < 0 and not policy.numbers[3] then
      -- A window that starts with the first request may be open although nothing counts in it: what has opened it may have
      -- been refunded.
      if now >= opened - policy.numbers[2] then return true end
    elseif finish <= start then
      return true
    end
  end
  local _, _, charged = charge(policy, counts.state, now, units)
  counts.state = charged or counts.state
  return true
end

-- The state and the grants at `now`, and whether they differ from the record.
local function settled(policy, record, now)
  local counts = split_grants(record)
  local changed = move_with_clock(counts, now)
  changed = settle(policy, counts, counts.previous, now) or changed
  changed = settle(policy, counts, counts.current, now) or changed
  return counts, changed
end

local function is_smooth(policy)
  return policy.letter == "b" or policy.letter == "g"
end

-- The debt of a bucket at `now`: the time, and the ticks.
local function debt_at(policy, state, now)
  if not update_debt then
    local _
    _, update_debt, until_drained = debt()
  end
  local drain, unit, limit = policy.numbers[1], policy.numbers[2], policy.numbers[3]
  return update_debt(state, drain, unit, (policy.numbers.most or limit) * unit, now)
end

-- What remains without the granted units, the time until all units are back, the state with them charged, and its lifetime.
-- Units that are promised for later refill after the others, so that the reset may be later than that of a full debt.
local function shown(policy, state, now, granted)
  local remaining, reset, charged, lifetime = charge(policy, state, now, granted)
  if remaining == 0 and is_smooth(policy) then
    local at, ticks = debt_at(policy, state, now)
    local drain, unit, limit = policy.numbers[1], policy.numbers[2], policy.numbers[3]
    reset = until_drained(math.min(ticks + math.min(granted, limit) * unit, LONGEST_WAIT), drain, at, now)
  end
  return remaining, reset, charged, lifetime
end

-- Time from `now` until `units` fit into a bucket beside the granted ones, together perhaps more than its limit; at most the
-- time in which the largest debt drains. Sums of units may exceed what a double holds exactly, so the limit is subtracted first.
local function until_free(policy, state, now, granted, units)
  local at, ticks = debt_at(policy, state, now)
  local drain, unit, limit = policy.numbers[1], policy.numbers[2], policy.numbers[3]
  local most = (policy.numbers.most or limit) * unit
  local excess = math.min(granted - limit + units, limit) * unit + ticks
  return until_drained(math.max(0, math.min(most, excess)), drain, at, now)
end

-- The denial of a request that does not fit beside the granted units; returns what a step does.
local function deny(policy, counts, now, cost)
  local state, numbers, granted = counts.state, policy.numbers, granted_units(counts)
  local remaining, reset, charged = shown(policy, state, now, granted)
  local retry, _ = -1, nil
  if not is_smooth(policy) then
    _, _, _, retry = policy.algorithm(charged or state, numbers, now, cost, nil, TAKE)
  elseif cost <= numbers[3] then
    retry = until_free(policy, state, now, granted, cost)
  end
  -- More than any limit is always denied, which moves the state if the clock was set back.
  local _, _, _, _, _, moved, lifetime = policy.algorithm(state, numbers, now, TOO_MUCH, nil, TAKE)
  return 0, remaining, reset, retry, 0, moved, lifetime
end

-- The step of a policy on states with grants.
local function step_with_grants(policy)
  return function(record, numbers, now, cost, taken, kind)
    if not record or #record % 8 == 0 then return policy.algorithm(record, numbers, now, cost, taken, kind) end
    local counts, changed = settled(policy, record, now)
    local granted = granted_units(counts)
    local allowed, remaining, reset, retry, delay, after, lifetime
    if kind == TAKE and cost > 0 and granted > 0 and cost > available(policy, counts.state, now) - granted then
      allowed, remaining, reset, retry, delay, after, lifetime = deny(policy, counts, now, cost)
    else
      allowed, remaining, reset, retry, delay, after, lifetime =
        policy.algorithm(counts.state, numbers, now, cost, taken, kind)
    end
    if after then
      counts.state, changed = lifetime > 0 and after, true
    end
    if granted == 0 then
      -- A refund leaves out what equals no state.
      if kind == REFUND and lifetime <= 0 then counts.state = false end
      local next_state = changed and (counts.state or "") or nil
      return allowed, remaining, reset, retry, delay, next_state, counts.state and lifetime or 0
    end
    local left, back, _, alive = shown(policy, counts.state, now, granted)
    if allowed == 1 then remaining, reset = left, back end
    return allowed, remaining, reset, retry, delay, changed and join_grants(counts) or nil, alive + until_ended(counts, now)
  end
end

-- Applies the report of a grant; returns the record and its lifetime, or nil if it does not change. A generation that is
-- unknown has been charged, unless it can't have ended yet: then the store has lost it, and what was spent is charged.
local function report(policy, record, now, request)
  local counts, changed = settled(policy, record, now)
  local at
  for _, generation in ipairs({ counts.current, counts.previous }) do
    if not at and generation.units > 0 and generation.opened == request.opened then
      generation.units = math.max(0, generation.units - request.spent - request.returned)
      if generation.units == 0 then generation.opened, generation.finish = 0, 0 end
      -- In the window or part in which they were granted, if the clock is slightly behind. All others count from now: a
      -- later charge would let what was charged before expire earlier.
      local has_windows = policy.window or policy.letter == "s"
      at, changed = has_windows and math.max(now, request.opened) or now, true
    end
  end
  if not at and now < request.finish then at = now end
  if at then
    local _, _, charged = charge(policy, counts.state, at, request.spent)
    if charged then counts.state, changed = charged, true end
  end
  if changed then return stored(policy, counts, now) end
end

-- When a grant is opened and when it ends, or nil if there can be none. A grant of a fixed window ends with it; until the
-- first request it is unknown when the window starts.
local function span_of(policy, counts, now)
  local opened, finish = now, now + policy.span
  if policy.window then
    local grid = policy.numbers[2]
    local _, units, _, start, edge = policy.window(counts.state, policy.numbers, now)
    opened = math.max(now, start)
    finish = math.min(opened + policy.span, math.max(0, edge - BEFORE_END))
    if not policy.numbers[3] and grid < 0 and units == 0 then return nil end
  end
  if finish > opened then return opened, finish end
end

-- The units of a paced grant, or nil, and how long until the first.
local function paced(policy, counts, now, left, wanted)
  if not is_smooth(policy) or wanted < WANTED_PACED then return nil end
  local drain, unit, limit = policy.numbers[1], policy.numbers[2], policy.numbers[3]
  local granted, span = granted_units(counts), math.max(1, policy.span)
  local _, ticks = debt_at(policy, counts.state, now)
  if ticks > limit * unit then return nil end
  local soon = math.min(PACED_AHEAD, span)
  local coming = div_floor(math.min(drain, MOST_DRAINED) * soon, unit) - math.max(0, granted - left)
  local units = math.min(div_floor(math.min(wanted, MOST_WANTED) * soon, span), div_floor(math.max(0, coming), 4))
  if units < FEWEST_PACED or granted + units > div_floor(limit, 2) then return nil end
  return units, until_free(policy, counts.state, now, granted, 1)
end

-- Grants units after a decision, or nothing if there are too few. Returns the record, its lifetime, what remains, reset_after,
-- and the grant: units, when its generation was opened, how long it lasts, and how long until the first unit of a paced one.
local function grant(policy, record, now, wanted, is_denied)
  local counts = settled(policy, record, now)
  local opened, finish = span_of(policy, counts, now)
  if not opened then return nil end
  local left, first = available(policy, counts.state, now), -1
  local free = math.max(0, left - granted_units(counts))
  local units = is_denied and 0 or math.min(wanted, div_floor(free, policy.share))
  if units < FEWEST then
    units, first = paced(policy, counts, now, left, wanted)
    if not units then return nil end
  end
  local current, previous = counts.current, counts.previous
  if previous.units == 0 and opened - current.opened >= policy.span then
    counts.previous, counts.current = current, previous
    current = counts.current
    current.opened, current.units, current.finish = 0, 0, 0
  end
  if current.units == 0 then current.opened, current.finish = opened, 0 end
  current.units, current.finish = current.units + units, math.max(current.finish, finish)
  local remaining, reset = shown(policy, counts.state, now, granted_units(counts))
  local next_record, lifetime = stored(policy, counts, now)
  return next_record, lifetime, remaining, reset, units, current.opened, finish - now, first
end

return step_with_grants, report, grant
