-- lone_leaky: decides a charge on a queue whose state has its unit and a plain time.
--
-- In   text: the policy; record, key; kind, cost; now
-- Out  returns the reply, or nothing if the functions of leaky_bucket.lua have to decide
local drain, unit, limit = unpack_struct("<ddd", text, #text - 23)
local full, price, state, created, stamp, ticks, deadline = limit * unit, cost * unit, record, nil, nil, nil, nil
--@inline debt_state
if ticks and cost <= limit then
  local before, charged, allowed, remaining, reset, wait = ticks, kind == TAKE and price or 0
  --@inline debt_decide
  if allowed == 1 and charged > 0 then
    state = pack_struct("<ddd", stamp, ticks, unit)
    local lifetime = reset
    --@inline set
    if before > 0 then
      -- The delay: until what was in the queue has drained.
      ticks = before
      --@inline debt_reset
      wait = reset
      reset = lifetime
    end
  end
  return pack_struct("<bdddd", allowed, remaining, reset, wait, now)
end
