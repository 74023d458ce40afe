-- concurrency: at most N units in flight at once, each held under a lease; twin of src/limit/slots.rs.
--
-- In      numbers {N, lease}
-- State   "<dddd": stamp in µs, units held, no lease ends before, none after; then of each holder 24 bytes: who, in
--         8 bytes, and "<dd" when its lease ends, and its units
-- TTL     until the latest lease ends.

-- Nobody can know when a slot comes free, so this is what a client is told, in µs.
local GUESS = 1000000
local NEVER = 2 ^ 53
-- The longest lease that there is, in µs; see MAX_LEASE in the twin.
local LONGEST = 86400000000
local GIVE_BACK, RENEW = 3, 4

-- Those whose leases have not ended at `at`, and which then end `shift` earlier.
local function live_leases(held, at, shift)
  local kept, used, earliest, latest = {}, 0, NEVER, 0
  for i = 1, #held, 24 do
    local finish, units = struct.unpack("<dd", held, i + 8)
    finish = math.max(0, finish - shift)
    if finish > at and finish <= at + LONGEST and is_whole(finish) and is_whole(units) then
      kept[#kept + 1] = string.sub(held, i, i + 7) .. struct.pack("<dd", finish, units)
      used, earliest, latest = used + units, math.min(earliest, finish), math.max(latest, finish)
    end
  end
  return table.concat(kept), used, earliest, latest
end

local function settle_leases(state, now)
  if not state or #state < 32 or (#state - 32) % 24 ~= 0 then return now, "", 0, NEVER, 0, false end
  local stamp, used, earliest, latest = struct.unpack("<dddd", state)
  local is_own = is_whole(stamp) and is_whole(used) and is_whole(earliest) and is_whole(latest)
  if not is_own or (used > 0 and earliest > latest) or latest > stamp + LONGEST then return now, "", 0, NEVER, 0, false end
  local held = string.sub(state, 33)
  local set_back = stamp > now + SET_BACK
  local at = set_back and now or math.max(now, stamp)
  if set_back or earliest <= at then
    held, used, earliest, latest = live_leases(held, at, set_back and stamp - now or 0)
  end
  return at, held, used, earliest, latest, set_back
end

-- Where `holder` stands in `held`.
local function place_of(held, holder)
  local from = 1
  while true do
    local at = string.find(held, holder, from, true)
    if not at or (at - 1) % 24 == 0 then return at end
    from = at + 1
  end
end

-- `held` without `holder`, and the units that it had.
local function without(held, holder)
  local at = place_of(held, holder)
  if not at then return held, 0 end
  local units = struct.unpack("<d", held, at + 16)
  return string.sub(held, 1, at - 1) .. string.sub(held, at + 24), units
end

return function(state, numbers, now, cost, holder, manner)
  local limit, lease = numbers[1], numbers[2]
  local at, held, used, earliest, latest, set_back = settle_leases(state, now)
  local allowed, retry, writes = 1, 0, false
  if manner == GIVE_BACK then
    local units
    held, units = without(held, holder)
    used, writes = math.max(0, used - units), units > 0
  elseif manner ~= RENEW and cost > math.max(0, limit - used) then
    allowed, retry, writes = 0, cost <= limit and GUESS or -1, set_back
  elseif cost > 0 then
    local had
    held, had = without(held, holder)
    held = held .. holder .. struct.pack("<dd", at + lease, cost)
    used, writes = used - had + cost, true
    earliest, latest = math.min(earliest, at + lease), math.max(latest, at + lease)
  end
  local next_state
  if writes then next_state = struct.pack("<dddd", at, used, earliest, latest) .. held end
  local lifetime = used > 0 and latest - now or 0
  return allowed, math.max(0, limit - used), used > 0 and GUESS or 0, retry, 0, next_state, lifetime
end
