-- decide_charge: decides one of the charges of a request.
--
-- In   key, index, kind, cost: of the charge; limit; passes: whether it is made if it is allowed; the tables of take.lua
-- Out  allowed, or nil if the functions have to decide; remaining, reset, wait; next_state, or false; deadline
local state, grid, created, stamp, charged = states[key], grids[index], creations[index], nil, 0
next_state = false
if grid then
  local held, own, start, finish
  --@inline window_state
  if held then
    --@inline window_start
    --@inline window_units
    -- Redis keeps the state until its window ends.
    if start == own then deadline = finish end
    if passes and kind == TAKE then charged = cost end
    --@inline window_decide
    if charged > 0 and allowed > 0 then next_state = pack_struct("<dddd", stamp, start, grid, held) end
  end
else
  local ticks
  drain = drains[index]
  unit = units[index]
  local full, price = limit * unit, cost * unit
  --@inline debt_state
  if ticks then
    if passes and kind == TAKE then charged = price end
    --@inline debt_decide
    if charged > 0 and allowed > 0 then next_state = pack_struct("<ddd", stamp, ticks, unit) end
  end
end
if created then
  deadline = nil
  if next_state then next_state = pack_struct("<d", created) .. next_state end
end
