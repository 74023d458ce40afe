-- lone_window: decides a charge on a fixed window whose state has its grid and a plain time.
--
-- In   text: the policy; record, key; kind, cost; now
-- Out  returns the reply, or nothing if the functions of fixed_window.lua have to decide
local limit, grid = unpack_struct("<dd", text, #text - 15)
local state, created, stamp, held, own, start, finish = record, nil, nil, nil, nil, nil, nil
--@inline window_state
if held and cost <= limit then
  --@inline window_start
  --@inline window_units
  local charged, allowed, remaining, reset, wait = kind == TAKE and cost or 0
  --@inline window_decide
  if allowed == 1 and charged > 0 then
    state = pack_struct("<dddd", stamp, start, grid, held)
    if start == own then
      -- Redis keeps the state until its window ends.
      call("SETRANGE", key, "0", state)
    else
      local lifetime = reset
      --@inline set
    end
  end
  return pack_struct("<bdddd", allowed, remaining, reset, wait, now)
end
