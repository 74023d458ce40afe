-- window_state: the state of a fixed window, if it has the grid of its policy and a plain time.
--
-- In   state; created: now if the states of the policy have the time of their creation; grid; now
-- Out  stamp: now, or the time of the state if that is slightly ahead; held: the units of the state, or nil if the functions of
--      fixed_window.lua have to decide; own: the start of its window, or nil; created: when the state was created
stamp = now
held = 0
if state then
  local made, own_grid
  if created then
    if #state == 40 then created, made, own, own_grid, held = unpack_struct("<ddddd", state) end
  elseif #state == 32 then
    made, own, own_grid, held = unpack_struct("<dddd", state)
  end
  if own_grid == grid and own >= 0 and own <= FOREVER and own % 1 == 0
    and made >= 0 and made <= now + SET_BACK and made % 1 == 0 and held >= 0 and held <= FOREVER and held % 1 == 0
    and (not created or (created >= 0 and created <= now and created % 1 == 0)) then
    if made > now then stamp = made end
  else
    held = nil
  end
end
