-- lone_interval: decides a charge on an interval bucket whose state has a plain time.
--
-- In   text: the policy; record, key; kind, cost; now
-- Out  returns the reply, or nothing if the functions of interval.lua have to decide
local units, period, limit = unpack_struct("<ddd", text, #text - 23)
local stamp, tick, missing = now, now, 0
if record then
  if #record == 24 then stamp, tick, missing = unpack_struct("<ddd", record) else stamp = FOREVER end
end
if cost <= limit and tick >= 0 and tick <= stamp and tick % 1 == 0 and stamp <= now + SET_BACK and stamp % 1 == 0
  and missing >= 0 and missing <= limit and missing % 1 == 0 then
  local at, charged, allowed, remaining, reset, wait = stamp > now and stamp or now, kind == TAKE and cost or 0
  --@inline interval_ticks
  --@inline interval_decide
  if allowed == 1 and charged > 0 then
    local state, lifetime = pack_struct("<ddd", at, tick, missing), reset
    --@inline set
  end
  return pack_struct("<bdddd", allowed, remaining, reset, wait, now)
end
