-- concurrency: at most N units in flight at once, each held under a lease; twin of crates/limit/src/limit/slots.rs.
--
-- In      numbers {N, lease}
-- State   "<dddd": timestamp in µs, units held, lower and upper bound of the ends of all leases; then for each holder
--         24 bytes: its id, 8 bytes, and "<dd" the end of its lease, and its units
-- TTL     until the last lease ends

-- The time at which a slot is released is unknown: retry_after is this many µs.
local GUESS = 1000000
local NEVER = 2 ^ 53
-- The longest possible lease in µs; see MAX_LEASE in the twin.
local LONGEST = 86400000000

-- Returns the time, a text and the position in it from which on the holders are, their units, the bounds of their
-- leases, and whether the clock was set back. The text is the state itself if possible: copying all holders is what
-- makes a call slow.
local function update_leases(state, now)
  if not state or #state < 32 or (#state - 32) % 24 ~= 0 then return now, "", 1, 0, NEVER, 0, false end
  local stamp, used, earliest, latest = struct.unpack("<dddd", state)
  local is_own = is_whole(stamp) and is_whole(used) and is_whole(earliest) and is_whole(latest)
  if not is_own or (used > 0 and earliest > latest) or latest > stamp + LONGEST then
    return now, "", 1, 0, NEVER, 0, false
  end
  local set_back = stamp > now + SET_BACK
  local at = (set_back or stamp < now) and now or stamp
  if not set_back and earliest > at then return at, state, 33, used, earliest, latest, false end
  -- The holders whose leases have not ended, with leases that end earlier by as much as the clock was set back.
  local kept, shift = {}, set_back and stamp - now or 0
  used, earliest, latest = 0, NEVER, 0
  for i = 33, #state, 24 do
    local finish, units = struct.unpack("<dd", state, i + 8)
    finish = math.max(0, finish - shift)
    if finish > at and finish <= at + LONGEST and is_whole(finish) and is_whole(units) then
      kept[#kept + 1] = string.sub(state, i, i + 7) .. struct.pack("<dd", finish, units)
      used, earliest, latest = used + units, math.min(earliest, finish), math.max(latest, finish)
    end
  end
  return at, table.concat(kept), 1, used, earliest, latest, set_back
end

-- The position of `holder` among the holders of `text`, which start at `first`, and its units.
local function position_of(text, first, holder)
  local from = first
  while true do
    local at = string.find(text, holder, from, true)
    if not at then return nil, 0 end
    if (at - first) % 24 == 0 then return at, (struct.unpack("<d", text, at + 16)) end
    from = at + 1
  end
end

return function(state, numbers, now, cost, holder, kind)
  local limit, lease = numbers[1], numbers[2]
  local at, text, first, used, earliest, latest, set_back = update_leases(state, now)
  local allowed, retry, writes, position, had, added = 1, 0, false, nil, 0, ""
  if kind == RELEASE then
    position, had = position_of(text, first, holder)
    used, writes = math.max(0, used - had), had > 0
  elseif kind ~= RENEW and cost > math.max(0, limit - used) then
    allowed, retry, writes = 0, cost <= limit and GUESS or -1, set_back
  elseif cost > 0 then
    position, had = position_of(text, first, holder)
    added = holder .. struct.pack("<dd", at + lease, cost)
    used, writes = math.max(0, used - had) + cost, true
    local finish = at + lease
    if finish < earliest then earliest = finish end
    if finish > latest then latest = finish end
  end
  local next_state
  if writes then
    -- One expression, so that no intermediate strings are created.
    local numbers_now = struct.pack("<dddd", at, used, earliest, latest)
    if position then
      next_state = numbers_now .. string.sub(text, first, position - 1) .. string.sub(text, position + 24) .. added
    else
      next_state = numbers_now .. string.sub(text, first) .. added
    end
  end
  local lifetime, remaining = used > 0 and latest - now or 0, limit - used
  if remaining < 0 then remaining = 0 end
  return allowed, remaining, used > 0 and GUESS or 0, retry, 0, next_state, lifetime
end
